"""Check an answer of the lab sheet:  python scripts/lab_sheet.py 1 2.62

docs/lab_sheet.md has the exercises, of which 1 to 5 have an answer to check. The script confirms a
right answer, and gives a hint on a wrong answer.
"""

import argparse
import inspect
import math
import random
import runpy
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import wawa_transformer.run.script  # noqa: F401  (a sentence for Ctrl-C during imports)

import torch

from wawa_transformer import PositionalEncoding, load
from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.scores import score_study
from wawa_transformer.positional.alibi import ALiBi
from wawa_transformer.positional.base import EncodingContext, consecutive

STUDY = Path("results/lab_sheet")
TABLE, BUFFER = "test_the_table_is_the_papers_formula", "test_the_contract_of_the_buffer"


class Wrong(Exception):
    """A wrong answer, with a hint."""


def score(answer: str) -> str:
    """Check exercise 1: the score of query man and key dog."""
    dog, man = torch.tensor([-1.0, 1, 1, 0]), torch.tensor([-1.0, 1, -1, 0])
    table = PositionalEncoding(4).pe[0]
    product = float((man + table[2]) @ (dog + table[0]))
    given = float(answer)
    if math.isclose(given, product / 2, abs_tol=0.01):
        return f"the score is {product / 2:.2f}"
    hints = {product: "divide by √d", float(man @ dog) / 2: "add the positions first"}
    near = min(hints, key=lambda mistake: abs(mistake - given))
    raise Wrong(hints[near] if abs(near - given) < 0.02 else "multiply number by number, and add")


def failing_test() -> str:
    """Check exercise 2: the encoding is broken, but its table is right."""
    tests = [f"tests/core/test_positional.py::{test}" for test in (TABLE, BUFFER)]
    command = [sys.executable, "-m", "pytest", "-rA", *tests]
    done = subprocess.run(command, cwd=CONFIG_DIR.parent, capture_output=True, text=True)
    if not done.stdout:
        sys.exit(f"error: pytest does not start here ({done.stderr.strip()}); run make check once.")
    passes = {test: f"PASSED {test}" in done.stdout for test in tests}
    said = ", ".join(f"{test} {'passes' if well else 'fails'}" for test, well in passes.items())
    if [*passes.values()] != [True, False]:
        raise Wrong(said)
    return said


def alibi(path: str) -> str:
    """Check exercise 3: the ALiBi bias in the student's file.

    The file must define ``bias(query, key, heads)``. The package's ALiBi is the reference.
    """
    if not Path(path).is_file():
        raise Wrong(f"there is no file {path}")
    bias = runpy.run_path(path).get("bias")
    if not callable(bias):
        raise Wrong(f"{path} has no function bias(query, key, heads)")
    query, key = consecutive(4, 3), consecutive(7)
    for heads in (2, 8):
        q = torch.zeros(1, heads, 4, 8)
        expected = ALiBi(EncodingContext(8 * heads, heads)).bias(q, q, query, key)[0]  # (H,Q,K)
        answer = torch.as_tensor(bias(query.ids[0, 0], key.ids[0, 0], heads))
        if answer.shape != expected.shape:
            raise Wrong(f"the shape is {[*answer.shape]}, not heads, queries, keys {[4, 7]}")
        wrong = ~((answer - expected).abs() <= 1e-6)  # a NaN is wrong, too
        for h, i, j in wrong.nonzero().tolist():
            value = f"{answer[h, i, j]:.4f} and not {expected[h, i, j]:.4f}"
            raise Wrong(f"head {h + 1} of {heads}, query at {i + 3}, key at {j}: {value}")
    return "it is the package's ALiBi, with 2 heads and with 8"


def reversing(*answers: str) -> str:
    """Check exercise 4: which encodings reverse over 90% of new sequences."""
    there = (STUDY / "results.csv").is_file()
    made = score_study(read_study(STUDY)) if there else None
    if made is None or len(made.study.encodings) < 4:
        raise Wrong(f"{STUDY} has not the runs of 4 encodings: run the study of exercise 4 first")
    means = {pe: made.mean("reverse", pe, "exact_match").mean for pe in made.study.encodings}
    said = ", ".join(f"{pe} {mean:.3f}" for pe, mean in means.items())
    if {*answers} != {pe for pe, mean in means.items() if mean > 0.9}:
        raise Wrong(f"measured were {said}")
    return said


def dimensions(*answers: str) -> str:
    """Check exercise 5: the groups of eight dimensions that reversing needs.

    A group is needed if exact match falls below 0.9 when the mean over positions replaces it.
    """
    paths = sorted(STUDY.glob("reverse/sinusoidal/*/result.json"))
    if not paths:
        raise Wrong(f"{STUDY} has no model: run the study of exercise 4 first")
    run, drawn = load(paths[0].parent), random.Random(0)
    sources = [[*map(str, drawn.choices(range(1, 11), k=n))] for n in [*range(1, 11)] * 10]
    asked, targets = [" ".join(s) for s in sources], [" ".join(s[::-1]) for s in sources]
    positions: list[Any] = [run.model.src_position, run.model.tgt_position]
    table, shares = positions[0].pe, {}
    for first in range(0, 64, 8):
        without = table.clone()
        group = without[:, :11, first : first + 8]
        group[:] = group.mean(dim=1, keepdim=True)
        positions[0].pe = positions[1].pe = without
        answered = run.translate(asked)
        shares[first] = statistics.mean(a == t for a, t in zip(answered, targets, strict=True))
    said = ", ".join(f"{first} {share:.2f}" for first, share in shares.items())
    used, given = {first for first, share in shares.items() if share < 0.9}, {*map(int, answers)}
    if used - given:
        raise Wrong(f"a group is missing; {len(used)} of 8 are used")
    if given - used:
        raise Wrong("what all positions share tells none apart: put the mean in place of zeros")
    return f"without each group: {said}"


CHECKS = [score, failing_test, alibi, reversing, dimensions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exercise", type=int, choices=range(1, 6))
    parser.add_argument("answer", nargs="*")
    given = parser.parse_args()
    check = CHECKS[given.exercise - 1]
    try:
        inspect.signature(check).bind(*given.answer)
    except TypeError:
        parser.error(f"exercise {given.exercise}: see docs/lab_sheet.md for what is answered")
    try:
        print(f"right: {check(*given.answer)}")
    except Wrong as why:
        sys.exit(f"wrong: {why}")
    except ValueError as error:
        sys.exit(f"wrong: {error}")


if __name__ == "__main__":
    main()
