"""A model that several processes train: copied to each, or divided between them.

Divided (``trainer.shard``), each process keeps its rows of every weight, gradient and moment, and a
layer's weights come together only while it computes (Rajbhandari et al. 2020, stage 3; Zhao et al.
2023). torch calls it FSDP2. A checkpoint holds whole tensors either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wawa_transformer.config import UserError
from wawa_transformer.processes import is_main, rank, world
from wawa_transformer.transformer import Transformer


def in_parallel(model: nn.Module, device: torch.device) -> nn.Module:
    """The model as each process calls it: its gradients become the mean over all processes."""
    if world() == 1 or is_divided(model):
        return model
    return DistributedDataParallel(model, [device] if device.type == "cuda" else None)


def is_divided(model: nn.Module) -> bool:
    """Whether :func:`divide` has had it; the class to ask for takes a second to import."""
    return hasattr(model, "unshard")


def uncompiled(model: nn.Module) -> Callable[..., Tensor]:
    """How to call the model with shapes that its compiler shall not see.

    A divided one has no compiler, and must itself be called, by all processes equally often: that
    is what brings its parts together.
    """
    return model if is_divided(model) else model.forward


def divide(model: Transformer, device: torch.device) -> None:
    """Leave each process its rows of every parameter, on ``device``; in place.

    All that is no layer's comes and goes as one: embeddings, norms, encodings, output.

    Raises:
        UserError: a parameter has no rows.
    """
    for name, parameter in model.named_parameters():
        if not parameter.ndim:
            raise UserError(
                f"trainer.shard=true divides every parameter by its rows, and {name} is a single "
                f"number; train this encoding with trainer.shard=false."
            )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard  # a second, for which no other run shall wait

    mesh = init_device_mesh(device.type, (world(),))
    for layer in (*model.encoder_layers, *model.decoder_layers):
        fully_shard(layer, mesh=mesh)
    # Whole until the backward pass: the loss reads the output's weight after the forward pass.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)


def rows_of(whole: Tensor, parameter: Any) -> Tensor:
    """Of a tensor in the shape of a divided ``parameter`` the rows that this process keeps."""
    from torch.distributed.tensor import DTensor

    parts = whole.chunk(world())  # fewer than there are processes, where there are few rows
    mine = parts[rank()] if rank() < len(parts) else whole[:0]
    return DTensor.from_local(
        mine.clone().to(parameter.device),
        parameter.device_mesh,
        parameter.placements,
        shape=whole.shape,
        stride=whole.stride(),
    )


def whole(tensor: Tensor) -> Tensor:
    """All rows of a tensor, where each process has some; for all."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gathered(state: dict[Any, Any]) -> dict[Any, Any]:
    """A state with whole tensors, on the main process's CPU; others take part and get nothing."""

    def gather(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: gather(inner) for key, inner in value.items()}
        if hasattr(value, "full_tensor"):
            value = value.full_tensor()
            return value.cpu() if is_main() else None
        return value

    return {key: gather(value) for key, value in state.items()}
