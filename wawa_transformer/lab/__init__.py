"""Studies of many runs: intervals, rules and the report."""
