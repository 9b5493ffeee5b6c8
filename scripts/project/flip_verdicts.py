"""Show that no verdict can be changed unnoticed:  python scripts/project/flip_verdicts.py

Gives every claim of docs/claims.yaml every other verdict, one at a time and in memory alone, and
asks tests/project/test_claims.py to judge it. Each check is computed once. Names what passes, and
fails if anything does.
"""

import argparse
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"

if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    sys.path[:0] = [str(TESTS), str(TESTS / "project")]
    import test_claims

    for topic in test_claims.TOPICS:
        test_claims.judge(topic)  # a check that always fails would notice every flip
    claims = sum(len(entry["claims"]) for entry in test_claims.TOPICS.values())
    passed = test_claims.unnoticed_flips()
    print(f"{claims} claims, {claims * (len(test_claims.VERDICTS) - 1)} flips,", end=" ")
    print(f"unnoticed: {', '.join(passed) or 'none'}")
    sys.exit(bool(passed))
