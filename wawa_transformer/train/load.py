"""Load a trained run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tokenizers import Tokenizer
from torch import Tensor

from wawa_transformer.common.limits import check_choice
from wawa_transformer.common.messages import UserError, first_line, warn
from wawa_transformer.data.load import digest_of, parts_of
from wawa_transformer.data.tasks import build_task
from wawa_transformer.decode.strategies import Greedy, build_strategy
from wawa_transformer.decode.translation import answers, read
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.config import build_model, check_memory, transformer_config
from wawa_transformer.run.device import require_defaults, take_device
from wawa_transformer.run.imports import import_modules, modules_digest
from wawa_transformer.run.provenance import code_digest
from wawa_transformer.run.run_dir import LATER, Run
from wawa_transformer.run.schema import CHECKPOINTS, Config
from wawa_transformer.train import checkpoint


def load_model(run: Run, which: str = "last", device: torch.device | None = None) -> Trained:
    """Load a model in evaluation mode, its tokenizer and its configuration.

    ``which`` is ``last``, ``best``, ``previous``, or ``average`` (of the weights kept).
    """
    check_choice("checkpoint", which, CHECKPOINTS)
    path = run.checkpoint("last" if which == "average" else which)
    own = run.configuration()
    state = checkpoint.load_own(path, own)
    tokenizer = checkpoint.load_tokenizer(path, state)
    result = run.result()
    check_data_of(path, state, result)
    if result and which == "last" and state["step"] != result["steps"]:
        warn(
            f"warning: {path} is of step {state['step']}, and the result of {run.directory} of "
            f"step {result['steps']}; put the run's own last checkpoint back"
        )
    try:
        if "${" in repr(state["config"]):  # not in what a run has written
            raise UserError("it refers to other keys or to the environment")
        # What a run leaves out of its record has the value it had, whatever the default is now.
        parts = OmegaConf.structured(Config), LATER, state["config"]
        config = cast(DictConfig, OmegaConf.merge(*parts))
    except (UserError, OmegaConfBaseException) as error:
        raise refused(path, error) from None
    import_modules(config.imports)
    if result is None:
        warn(f"warning: {run.directory} has not finished training")
    if (now := modules_digest(config.imports)) != config.import_digest:
        warn(
            f"warning: the code of {', '.join(config.imports)} has changed since {run.directory} "
            f"was trained (digest {config.import_digest} then, {now} now)"
        )
    elif (code := code_digest(config)) not in str(state.get("code", code)):
        warn(
            f"warning: the code has changed since {run.directory} was trained, so that its model "
            f"may compute other numbers (code {state['code']} then, {code} now)"
        )
    with checkpoint.fitting(path, state):
        try:
            build_task(config)
            shape = transformer_config(config, tokenizer)
            # Before it is built: an altered configuration may ask for any amount of memory.
            check_memory(config, shape, "cpu", bytes_each=4)
            model = build_model(config, tokenizer)
        except (UserError, OmegaConfBaseException) as error:
            raise refused(path, error) from None
        weights = checkpoint.average(run, own, state) if which == "average" else state["model"]
        checkpoint.load_weights(model, weights)
    model.trained_sizes = state.get("trained_sizes", model.trained_sizes)  # older ones have none
    return Trained(model.to(device or "cpu").eval(), tokenizer, config)


def refused(path: Path, error: Exception) -> UserError:
    """Make the error for a checkpoint whose configuration cannot be used."""
    said = first_line(error)
    return UserError(f"{path} cannot be used, since its configuration is refused: {said}.")


def check_data_of(path: Path, state: dict[str, Any], result: dict[str, Any] | None) -> None:
    """Refuse a checkpoint of other data than the run's result or the checkpoint's vocabulary."""
    data = state.get("data")
    if result and result.get("data") != data:
        raise UserError(
            f"{path} was trained on data {data}, and the result in its folder on "
            f"{result.get('data')}: one of them is another run's; put the run's own file back."
        )
    vocabulary = digest_of(state["tokenizer"].encode())
    if data and parts_of(data)["vocabulary"] != vocabulary:
        raise UserError(
            f"{path} was trained on data {data}, and holds another vocabulary, {vocabulary}; put "
            f"the run's own checkpoint back."
        )


class Trained(NamedTuple):
    """A trained run for Python: ``wawa_transformer.load(run)``."""

    model: Transformer
    tokenizer: Tokenizer
    config: DictConfig

    def __repr__(self) -> str:
        task, pe = self.config.task.name, self.config.pe.name
        return f"Trained(task={task}, pe={pe}, seed={self.config.seed})"

    def translate(self, texts: list[str], decode: str = "greedy", **settings: Any) -> list[str]:
        """Decode the best answer to each text; ``settings`` belong to ``decode``, as ``size=5``.

        A text that is blank, or too long for the encoding, gets an empty answer; as in
        scripts/translate.py, standard error names what a reader must know.

        Raises:
            UserError: an unknown way of decoding or setting.
        """
        lines = list(texts) if isinstance(texts, Iterable) else [texts]
        if isinstance(texts, str) or not all(isinstance(line, str) for line in lines):
            raise UserError(f"translate({str(texts)[:60]!r}) must be given a list of texts.")
        method = build_strategy(OmegaConf.create({"decode": {"kind": decode, **settings}}))
        decoded = answers(self.model, self.tokenizer, lines, method)
        return [every[0].text if every else "" for every in decoded]

    def attention(self, text: str) -> tuple[Tensor, list[str], list[str]]:
        """Get the last layer's cross-attention ``(H,T,S)``, and the T and S tokens.

        The target is the model's greedy answer.
        """
        from wawa_transformer.train.tracking import cross_attention  # which imports TensorBoard

        lines = [text] if isinstance(text, str) else []
        decoded = answers(self.model, self.tokenizer, lines, Greedy())
        if not any(decoded):
            raise UserError(f"attention({str(text)[:60]!r}) must be given one text to translate.")
        sources = read(self.tokenizer, lines)
        return cross_attention(self.model, self.tokenizer, sources[0], decoded[0][0].ids)


def load(run: str | Path, checkpoint: str = "last") -> Trained:
    """Load a trained run from its folder.

    Raises:
        UserError: there is no such run, it is damaged, or torch's defaults are others.
    """
    if not isinstance(run, str | Path):
        raise UserError(f"load({str(run)[:60]}) must be given a run's folder.")
    require_defaults()
    return load_model(Run.at(Path(run)), checkpoint)


def data_of(run: Run) -> str | None:
    """Read the digest of the data that a run was trained on, of its last checkpoint or result."""
    return (run.result() or checkpoint.load(run.checkpoint("last"))).get("data")


def open_trained(config: DictConfig) -> tuple[Run, Transformer, Tokenizer, DictConfig]:
    """Load the run that ``run=`` and ``checkpoint=`` name."""
    device = take_device(config.trainer)
    run = Run.at(Path(config.run))
    return run, *load_model(run, config.checkpoint, device)
