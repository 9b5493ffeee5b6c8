"""Make the mistakes of docs/does_not_learn.md:  python scripts/dev/mistakes.py [1]

Each mistake is an edit of the package, made in a temporary copy, or a setting. The script trains
each copy on reverse as the default study does, 500 steps, and measures it after 100 and 500.
benchmarks/mistakes/mistakes.csv gets a row for each measured step; runs that the file holds are
kept. A run takes 20 seconds of one core.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from shutil import copytree
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "mistakes" / "mistakes.csv"
MEASURED = (100, 500)
COLUMNS = (
    "mistake", "seed", "step", "loss", "token_accuracy", "exact_match",
    "length_5", "length_10", "length_15", "changed", "found",
)  # fmt: skip

# A mistake's edits: a file of the package, what the file says, and what it says by mistake.
EDITS: dict[str, list[tuple[str, str, str]]] = {
    "no causal mask": [
        ("model/masks.py", "return ones.tril(diagonal=offset)", "return ones"),
    ],
    "targets not shifted": [
        ("data/batching.py", "target_out=examples.target.padded(indices, first=1,",
         "target_out=examples.target.padded(indices, last=1,"),
    ],
    "sqrt(d) twice": [
        ("model/transformer.py", "embedding(ids) * self.embedding_scale",
         "embedding(ids) * self.d_model"),
    ],
    "padding not masked": [
        ("model/masks.py", "return (ids != PAD)[:, None, None, :]",
         "return torch.ones_like(ids, dtype=torch.bool)[:, None, None, :]"),
    ],
    "loss over padding": [
        ("model/loss.py", 'targets.flatten(), ignore_index=PAD, reduction="sum")',
         'targets.flatten(), reduction="sum")'),
        ("data/batching.py", "return int((self.target_out != PAD).sum())",
         "return self.target_out.numel()"),
    ],
    "zeros as target": [
        ("data/batching.py", "target_in=examples.target.padded(indices, last=1,",
         "target_in=0 * examples.target.padded(indices, last=1,"),
    ],
    "positions restart in cached decoding": [
        ("model/transformer.py", "positions.target(offset, tgt.size(1))",
         "positions.target(0, tgt.size(1))"),
    ],
}  # fmt: skip
SETTINGS = {
    "no positions": ["pe=none"],
    "no warm-up": ["trainer.warmup=0"],
    "learning rate 0.02": ["trainer.lr=0.02"],
    "learning rate 0.02, no warm-up": ["trainer.lr=0.02", "trainer.warmup=0"],
}
RUNS = ("right code", *EDITS, *SETTINGS)


def copy_package(folder: Path, mistake: str) -> None:
    """Copy the package and make the mistake's edits in the copy."""
    for name in ("wawa_transformer", "configs"):
        copytree(ROOT / name, folder / name)
    for file, right, wrong in EDITS.get(mistake, ()):
        path = folder / "wawa_transformer" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(right) == 1, f"{file} must say once: {right}"
        path.write_text(text.replace(right, wrong), encoding="utf-8")


def train_a_copy(mistake: str, seed: int) -> list[dict[str, Any]]:
    """Train a copy of the package with the mistake; a row of ``COLUMNS`` a measured step."""
    with tempfile.TemporaryDirectory() as folder:
        copy_package(Path(folder), mistake)
        keys = ["task=reverse", f"seed={seed}", *SETTINGS.get(mistake, ()), f"run_dir={folder}/run"]
        done = subprocess.run(
            [sys.executable, __file__, "train", *keys],
            env={**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        sys.exit(f"error: {mistake}: {done.stderr}")
    rows = json.loads(done.stdout.splitlines()[-1])
    return [{"mistake": mistake, "seed": seed, **row} for row in rows]


def train(overrides: list[str]) -> list[dict[str, Any]]:
    """Train the run of ``overrides`` with the package that is imported, and measure it."""
    from wawa_transformer.model.check import check_model
    from wawa_transformer.model.probe import ORDER
    from wawa_transformer.run.compose import compose
    from wawa_transformer.run.run_dir import Run
    from wawa_transformer.train.loop import batch_stream, train_step
    from wawa_transformer.train.setup import build_state

    # Without the check before training, which refuses some of the mistakes.
    config = compose([*overrides, "trainer.check=false", "trainer.device=cpu"])
    state = build_state(config, Run.from_config(config), None)
    batches = batch_stream(state.data.train, state.trainer, config.seed, 0)
    rows: list[dict[str, Any]] = []
    state.model.train()
    while state.step < state.trainer.steps:
        train_step(state, next(batches))
        if state.step in MEASURED:
            rows.append({"step": state.step, **measure(state.model, state.data)})
    rows[-1]["changed"] = changed_alone(state.model, state.data)
    with redirect_stdout(io.StringIO()):
        report = check_model(state.model)
    # A model that ignores the order breaks no promise; the report says so as information.
    broken = [each for each in report if not each.holds and (each.promised or each.name == ORDER)]
    rows[-1]["found"] = "; ".join(each.name for each in broken)
    return rows


def measure(model: Any, data: Any) -> dict[str, float]:
    """Loss and accuracy as the copy computes them; exact match of what greedy decoding writes."""
    from wawa_transformer.data.batching import collate
    from wawa_transformer.model.masks import causal_mask
    from wawa_transformer.model.modes import evaluating

    batch = collate(data.validation, range(len(data.validation.source)))
    given = batch.source, batch.target_in, None, causal_mask(batch.target_in.size(1))
    with evaluating(model):
        loss = model(*given, targets=batch.target_out)[0] / batch.target_tokens
        right = model(*given).argmax(dim=-1) == batch.target_out  # (B,T)
    lengths = data.test.text["length"][:]

    def exact_match(of: range) -> float:
        rows = [row for row, length in enumerate(lengths) if length in of]
        expected = [data.test.target[row].tolist()[1:] for row in rows]  # without BOS
        outputs = answers(model, data.test, rows)
        return sum(a == b for a, b in zip(outputs, expected, strict=True)) / len(rows)

    numbers = {
        "loss": loss.item(),
        "token_accuracy": right[batch.target_out != 0].float().mean().item(),
        "exact_match": exact_match(range(1, 11)),
        **{f"length_{n}": exact_match(range(n, n + 1)) for n in (5, 10, 15)},
    }
    return {name: round(number, 4) for name, number in numbers.items()}


def answers(model: Any, test: Any, rows: list[int]) -> list[list[int]]:
    """Decode sources in one batch, greedily; the ids of each answer."""
    from wawa_transformer.decode.greedy import greedy

    source = test.source.padded(rows)  # (B,S)
    return [row[row != 0].tolist() for row in greedy(model, source, source.size(1) + 1)]


def changed_alone(model: Any, data: Any) -> float:
    """The share of 100 sources of 1 to 10 symbols whose answer is another one without a batch."""
    rows = list(range(0, 2000, 20))  # the test has 200 sources of each length
    together = answers(model, data.test, rows)
    alone = [answers(model, data.test, [row])[0] for row in rows]
    return sum(a != b for a, b in zip(together, alone, strict=True)) / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=1, help="how many; 1 by default")
    seeds = range(parser.parse_args().seeds)
    known = set(pd.read_csv(TABLE).set_index(["mistake", "seed"]).index) if TABLE.exists() else ()
    for run in ((name, seed) for seed in seeds for name in RUNS):
        if run in known:
            print(f"{run[0]} {run[1]}: kept in {TABLE.name}")
        else:
            rows = pd.DataFrame(train_a_copy(*run), columns=COLUMNS)
            rows.to_csv(TABLE, mode="a", header=not TABLE.exists(), index=False)
            print(*run, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        print(json.dumps(train(sys.argv[2:])))
    else:
        main()
