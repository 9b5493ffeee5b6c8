"""SCAN: navigation commands to actions, the longest of which are never trained."""

import functools
import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from datasets import DatasetDict
from tokenizers import Tokenizer

from wawa_transformer.common.limits import setting
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.data.tasks import SPLITS, Task
from wawa_transformer.data.words import parallel, word_tokenizer


@dataclass
class Scan(Task, kind="scan"):
    """Commands to actions, all 20,910 of them (Lake and Baroni 2018).

    ``length`` counts actions, 1 to 48. The split is that paper's length split: commands of at most
    ``cutoff`` actions for training (the paper: 22). ``held_out`` of them leave the training split
    for validation, and as many are tested beside all that are beyond the cutoff.
    """

    cutoff: int = setting(22, least=1, most=48)
    held_out: int = setting(500, least=1, most=20_000)

    from_seed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = [len(actions) for actions in scan_commands().values()]
        within = sum(length <= self.cutoff for length in lengths)
        if self.cutoff >= max(lengths) or within <= 2 * self.held_out:
            raise UserError(
                f"task.cutoff={self.cutoff} splits nothing off or leaves {within} commands to "
                f"train on, of which 2 × task.held_out={self.held_out} are set aside; the longest "
                f"of SCAN has {max(lengths)} actions: choose a cutoff from 6 to {max(lengths) - 1}."
            )

    @property
    def trained_lengths(self) -> tuple[int, int]:
        return 1, self.cutoff

    def dataset(self, seed: int) -> DatasetDict:
        commands = scan_commands()
        random = np.random.default_rng(seed_for(seed, "data", "scan"))
        names = random.permutation(list(commands)).tolist()
        within = [name for name in names if len(commands[name]) <= self.cutoff]
        beyond = [name for name in names if len(commands[name]) > self.cutoff]
        test, rest = within[: self.held_out] + beyond, within[self.held_out :]
        validation, train = rest[: self.held_out], rest[self.held_out :]
        splits = DatasetDict()
        for name, chosen in zip(SPLITS, (train, validation, test), strict=True):
            pairs = [(command.split(), commands[command]) for command in chosen]
            splits[name] = parallel(pairs, [len(actions) for _, actions in pairs], "Scan")
        return splits

    def tokenizer(self, data: DatasetDict) -> Tokenizer:
        commands = scan_commands()
        words = {word for name in commands for word in name.split()}
        return word_tokenizer([*sorted(words), *sorted({a for c in commands.values() for a in c})])


@functools.cache
def scan_commands() -> dict[str, list[str]]:
    """Every command of SCAN and its actions, from the grammar (Lake and Baroni 2018, figure 6).

    Ten actions at most for a verb phrase ("around" turns four times), three times that for
    "thrice", two of them for a sentence: 48 is the longest.
    """
    actions = {verb: [verb.upper()] for verb in ("walk", "look", "run", "jump")}
    phrases = dict(actions)  # what "twice" and "thrice" repeat
    for side in ("left", "right"):
        turn = [f"TURN_{side.upper()}"]
        for verb, act in (*actions.items(), ("turn", [])):
            phrases[f"{verb} {side}"] = turn + act
            phrases[f"{verb} opposite {side}"] = turn * 2 + act
            phrases[f"{verb} around {side}"] = (turn + act) * 4
    sentences = {
        f"{phrase}{times}": act * count
        for phrase, act in phrases.items()
        for times, count in (("", 1), (" twice", 2), (" thrice", 3))
    }
    commands = dict(sentences)
    for (first, one), (second, two) in itertools.product(sentences.items(), repeat=2):
        commands[f"{first} and {second}"] = one + two
        commands[f"{first} after {second}"] = two + one
    return commands
