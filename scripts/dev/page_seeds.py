"""Train what the playground trains:  python scripts/dev/page_seeds.py [10]

The script runs the worker of docs/playground.html in Node, for the page's default pair: reverse,
sinusoidal and no encoding, study=page. benchmarks/page/in_the_page.csv gets exact match at the last
step on new sources of trained lengths, on longer ones, and on the validation split. Rows that the
file holds are kept. Then the script prints the means beside those of the package's runs with the
same seeds, and their paired differences. A seed takes 45 seconds of one core beside other work.
"""

import argparse
import json
import re
import subprocess
import sys

import evidence
import pandas as pd
from evidence import BENCHMARKS

from wawa_transformer.lab.statistics import difference, estimate

TABLE = BENCHMARKS / "page" / "in_the_page.csv"
TASK, ENCODINGS = "reverse", ("sinusoidal", "none")
DRIVER = """
const [task, seed, ...encodings] = process.argv.slice(2);
training = new Training({ ...STUDIES.page, task, seed: Number(seed), encodings });
while (!training.ended) training.advance();
const rows = training.scores().map(({ trained, beyond, exact: validation }, m) =>
  ({ task, pe: encodings[m], seed: Number(seed), trained, beyond, validation }));
console.log(JSON.stringify(rows));
"""


def train_in_node(seed: int) -> pd.DataFrame:
    """Train the pair with one seed; a row for each encoding."""
    page = (BENCHMARKS.parent / "docs" / "playground.html").read_text(encoding="utf-8")
    worker = re.search(r'id="worker">(.*?)</script>', page, re.DOTALL)
    assert worker is not None
    command = ["node", "-", TASK, str(seed), *ENCODINGS]
    done = subprocess.run(command, input=worker[1] + DRIVER, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {done.stderr}")
    return pd.DataFrame(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=10, help="how many; 10 by default")
    seeds = range(parser.parse_args().seeds)
    known = set(pd.read_csv(TABLE)["seed"]) if TABLE.exists() else set()
    for seed in (each for each in seeds if each not in known):
        rows = train_in_node(seed)
        rows.to_csv(TABLE, mode="a", header=not TABLE.exists(), index=False)
        print(f"seed {seed}", flush=True)
    table = pd.read_csv(TABLE)
    for pe in ENCODINGS:
        page = table[table["pe"] == pe].set_index("seed")["trained"]
        package = evidence.seeds("page", TASK, pe)
        print(
            f"{pe}: page {estimate(page):z.3f}, package {estimate(package):z.3f}, "
            f"paired difference {difference(page, package):+z.3f}"
        )


if __name__ == "__main__":
    main()
