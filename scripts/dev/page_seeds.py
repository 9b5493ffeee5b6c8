"""Train what the playground trains, ten seeds:  python scripts/dev/page_seeds.py

The script runs the worker of docs/playground.html in Node, for every task, encoding and seed of
study=page, and writes benchmarks/page/in_the_page.csv: exact match at step 500 on new sources of
trained lengths, on longer ones, and on the validation split. Rows that the file holds are kept.
180 runs take 40 minutes of one core.
"""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "page" / "in_the_page.csv"
ENCODINGS = ("sinusoidal", "learned", "none", "rotary", "shaw", "shaw_cross")
COLUMNS = ("task", "pe", "seed", "trained", "beyond", "validation")
DRIVER = """
const [task, seed, ...encodings] = process.argv.slice(2);
training = new Training({ ...STUDIES.page, task, seed: Number(seed), encodings });
while (!training.ended) training.advance();
const rows = training.scores().map(({ trained, beyond, exact }, m) =>
  [task, encodings[m], Number(seed), trained, beyond, exact]);
console.log(JSON.stringify(rows));
"""


def main() -> None:
    page = (ROOT / "docs" / "playground.html").read_text(encoding="utf-8")
    worker = re.search(r'id="worker">(.*?)</script>', page, re.DOTALL)
    assert worker is not None
    known = TABLE.read_text("utf-8").splitlines() if TABLE.exists() else [",".join(COLUMNS)]
    TABLE.write_text("\n".join(known) + "\n", encoding="utf-8")
    done = {tuple(row.split(",")[0:3:2]) for row in known}
    for task in ("reverse", "letters", "sort"):
        for seed in range(10):
            if (task, str(seed)) in done:
                continue
            command = ["node", "-", task, str(seed), *ENCODINGS]
            program = worker[1] + DRIVER
            found = subprocess.run(command, input=program, capture_output=True, text=True)
            if found.returncode:
                sys.exit(f"error: {found.stderr}")
            with TABLE.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(json.loads(found.stdout))
            print(task, seed, flush=True)


if __name__ == "__main__":
    main()
