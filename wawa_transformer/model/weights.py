"""Read a trained model with torch alone, without Hydra, datasets and tokenizers."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from wawa_transformer.common.messages import UserError
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.model.transformer import Transformer


def read_model(path: str | Path) -> Transformer:
    """Read the model of a run's folder, of a checkpoint or of an export, in evaluation mode.

    An export needs safetensors besides. A run with ``import=`` needs its modules imported before.

    Raises:
        UserError: there is no model, a checkpoint is older than the shape it should hold, or the
            module of the model's class is not imported.
    """
    path = Path(path)
    if (path / "config.json").is_file():
        return read_export(path)
    file = path / "checkpoints" / "last.pt" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{path} holds no model; name a run's folder, a checkpoint or an export's folder."
        )
    state = torch.load(file, map_location="cpu", weights_only=True)
    if "transformer" not in state:
        raise UserError(
            f"{file} does not hold the shape of its model, as a checkpoint of today's code does; "
            f"read it with wawa_transformer.load({str(path)!r})."
        )
    model = class_of(path, state.get("model_class"))(TransformerConfig(**state["transformer"]))
    model.load_state_dict(state["model"])
    model.trained_sizes = tuple(state.get("trained_sizes", model.trained_sizes))
    return model.eval()


def read_export(directory: Path) -> Transformer:
    """Read ``config.json`` and ``model.safetensors``."""
    from safetensors.torch import load_model

    given: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
    trained_sizes = given.pop("trained_sizes", Transformer.trained_sizes)
    cls = class_of(directory, given.pop("model_class", None))
    model = cls(TransformerConfig(**given))
    load_model(model, str(directory / "model.safetensors"))
    model.trained_sizes = tuple(trained_sizes)
    return model.eval()


def name_of(model: Transformer) -> str:
    """The module and the name of a model's class, which is a fork's where it has its own."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def class_of(path: Path, name: str | None) -> type[Transformer]:
    """Find the class of a model among the modules that are imported; older files have none.

    Raises:
        UserError: it is not there, and another class would compute something else.
    """
    if name is None:
        return Transformer
    module, _, own = name.rpartition(".")
    cls = getattr(sys.modules.get(module), own, None)
    if not (isinstance(cls, type) and issubclass(cls, Transformer)):
        raise UserError(
            f"{path} holds a model of the class {name}, which is not here; import {module} first."
        )
    return cls
