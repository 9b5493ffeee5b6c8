"""Studies: many runs, intervals, rules and the report."""
