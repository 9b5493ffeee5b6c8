"""One step of several seeds: models that differ in their seed alone, as one batched model.

Their weights are the rows of one matrix, ``torch.vmap`` turns the model of one row into the model
of all, and what belongs to a seed stays its own: data, dropout, the mean over its tokens, the norm
its gradient is clipped at.

Shapes: K seeds, N parameters, B rows, S source and T target positions, D ``d_model``.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector
from torch.overrides import TorchFunctionMode

from wawa_transformer.attention import MultiHeadAttention
from wawa_transformer.batching import Batch
from wawa_transformer.counting import Count
from wawa_transformer.dropout import LEVELS, Dropout, draw_mask
from wawa_transformer.linear import mkl_alone
from wawa_transformer.loss import plain_loss_and_nll
from wawa_transformer.positional import Positions
from wawa_transformer.preparation import Training, adamw
from wawa_transformer.scoring import fused
from wawa_transformer.tracking import Silence, Tracker
from wawa_transformer.training import schedule
from wawa_transformer.transformer import Transformer, causal_mask, padding_mask


class Seed:
    """One of the runs: what it would have alone, its streams of random numbers among that."""

    tracker: Tracker | Silence

    def __init__(self, training: Training) -> None:
        """``training`` was the last to be prepared: torch's own generators are at its state."""
        self.training = training
        self.generator = torch.Generator()
        self.generator.set_state(torch.get_rng_state())
        self.masks = self.generator  # which draws those of dropout
        if training.device.type == "cuda":
            self.masks = torch.Generator(training.device)
            self.masks.set_state(torch.cuda.get_rng_state(training.device))

    def hand_back_streams(self) -> None:
        """Set torch's own generators, which a checkpoint keeps, to this run's state."""
        torch.set_rng_state(self.generator.get_state())
        if self.masks is not self.generator:
            torch.cuda.set_rng_state(self.masks.get_state(), self.training.device)

    def count(self, batch: Batch) -> tuple[Positions, Positions]:
        """Where the tokens of source and target stand, as this run's own stream draws it."""
        torch.set_rng_state(self.generator.get_state())
        count = self.training.model.count(batch.source)
        self.generator.set_state(torch.get_rng_state())
        return count.source, count.target(0, batch.target_in.size(1))


class Outside(Function):
    """What vmap has no good way for: ``call`` is given the tensors of all seeds, ``(K,…)`` each."""

    @staticmethod
    def forward(call: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
        raise AssertionError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing to keep: what ``call`` does is differentiated as it is."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], call: Callable[..., Tensor], *tensors: Any
    ) -> tuple[Tensor, int]:
        def every(tensor: Tensor | None, dim: int | None) -> Tensor | None:
            if tensor is None:
                return None
            return (
                tensor.expand(info.batch_size, *tensor.shape)
                if dim is None
                else (tensor.movedim(dim, 0))
            )

        return call(*map(every, tensors, in_dims[1:])), 0


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of all seeds, ``(K,B,H,·,·)`` each: their rows are rows of one batch."""
    seeds, rows = q.shape[:2]
    if mask is not None:
        mask = mask.expand(-1, rows, -1, -1, -1).flatten(0, 1)  # (K,B or 1,…) -> (K*B,…)
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    return fused(q, k, v, mask).unflatten(0, (seeds, rows))


class BiasInHalf(TorchFunctionMode):
    """A linear layer in bf16 as autocast makes it; in vmap it would add the bias in fp32."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear and len(args) == 3 and args[2] is not None:
            x, weight, bias = args
            product = F.linear(x, weight)
            return product + bias.to(product.dtype)
        return func(*args, **(kwargs or {}))


class Losses(nn.Module):
    """A model and its loss, so that both take their parameters from one call."""

    def __init__(self, model: Transformer, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing
        self.end = 0  # of the places that are drawn

    def forward(
        self, source: Tensor, target_in: Tensor, target_out: Tensor, *places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Summed loss and NLL of one seed; ``places``: of source and target, if they are drawn."""
        if places:
            of_source, of_target = (Positions(place, self.end) for place in places)
            count = Count(of_source, lambda length: of_target)
        else:
            count = self.model.count(source)
        memory = self.model.encode(source, None, count)
        masks = causal_mask(target_in.size(1), device=source.device), padding_mask(source)
        states = self.model.decode(target_in, memory, *masks, count=count, logits=False)
        weight = self.model.output.weight
        return plain_loss_and_nll(states, weight, target_out, self.label_smoothing)


class Bundle:
    """The models of ``seeds``, which stand at one step, as one: ``weights (K,N)``."""

    def __init__(self, seeds: Sequence[Seed]) -> None:
        self.seeds = seeds
        first = seeds[0].training
        self.device, self.trainer = first.device, first.trainer
        for seed in seeds:
            seed.training.at_once = len(seeds)
        models = [seed.training.model for seed in seeds]
        rows = [parameters_to_vector(model.parameters()) for model in models]
        self.weights = torch.stack(rows).detach().requires_grad_()
        self.optimizer = adamw([self.weights], self.trainer)
        if first.optimizer.state:
            step = first.optimizer.state[next(models[0].parameters())]["step"]
            moments = (self.moments("exp_avg"), self.moments("exp_avg_sq"))
            self.optimizer.state[self.weights] = dict(
                zip(("step", "exp_avg", "exp_avg_sq"), (step.clone(), *moments), strict=True)
            )
        # Its parameters lend their names and shapes, and nothing else.
        self.losses = Losses(copy.deepcopy(models[0]).train(), self.trainer.label_smoothing)
        self.shapes = [p.shape for p in self.losses.parameters()]
        place = {p: i for i, p in enumerate(self.losses.parameters())}
        # Every name, since functional_call leaves what shares a parameter apart.
        named = self.losses.named_parameters(remove_duplicate=False)
        self.place = {name: place[p] for name, p in named}
        self.drawn_by_seed = drawn_by_seed(models)
        self.sizes: dict[str, list[tuple[int, int]]] = {}  # each seed's own rows and positions
        for name, module in self.losses.model.named_modules():
            match module:
                case Dropout():
                    side = "source" if name.startswith(("src", "encoder")) else "target"
                    module.forward = partial(self.drop, module.p, side)  # type: ignore[method-assign]
                case MultiHeadAttention():
                    module.whole = True  # vmap cannot look into a mask
                    module.attend = partial(Outside.apply, attend)  # type: ignore[method-assign]

    def moments(self, name: str) -> Tensor:
        """One of AdamW's moments, ``(K,N)``, from what each run has of it."""
        every = ((seed.training.optimizer, seed.training.model) for seed in self.seeds)
        return torch.stack(
            [
                parameters_to_vector(optimizer.state[p][name] for p in model.parameters())
                for optimizer, model in every
            ]
        )

    def drop(self, p: float, side: str, x: Tensor) -> Tensor:
        """Dropout of one seed's ``x (B,S,D)``, inside vmap."""
        lost = min(round(p * LEVELS), LEVELS - 1)
        return Outside.apply(partial(self.dropped, lost, side), x) if lost else x

    def dropped(self, lost: int, side: str, x: Tensor) -> Tensor:
        """``x (K,B,S,D)``, each seed's own part times a mask that its own stream draws."""
        mask = torch.ones_like(x)
        for seed, own, (rows, width) in zip(self.seeds, mask, self.sizes[side], strict=True):
            shape = (rows, width, x.size(-1))
            own[:rows, :width] = draw_mask(shape, lost, x.dtype, seed.masks)
        return x * mask

    def step(self, batches: Sequence[list[Batch]]) -> Tensor:
        """One step on the ``batches`` of each seed; loss, NLL and gradient norm: ``(3,K)``."""
        tokens = [sum(batch.target_tokens for batch in each) for each in batches]
        divisor = torch.tensor(tokens, device=self.device)
        total = torch.zeros(2, len(self.seeds), device=self.device)
        for part in zip(*batches, strict=True):
            losses = torch.stack(self.loss_and_nll(part)) / divisor  # (2,K)
            losses[0].sum().backward()  # no seed's loss knows the weights of another
            total += losses.detach()
        gradient = self.weights.grad
        assert gradient is not None
        norm = gradient.norm(dim=1)  # (K,)
        gradient *= (self.trainer.clip / (norm + 1e-6)).clamp(max=1)[:, None]
        for group in self.optimizer.param_groups:
            group["lr"] = self.trainer.lr * schedule(self.seeds[0].training.step, self.trainer)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for seed, count in zip(self.seeds, tokens, strict=True):
            seed.training.step += 1
            seed.training.target_tokens += count
        return torch.cat((total, norm[None]))

    def loss_and_nll(self, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
        """Loss and NLL, summed over each seed's tokens: ``(K,)`` each."""
        self.sizes = {
            "source": [tuple(batch.source.shape) for batch in batches],  # type: ignore[misc]
            "target": [tuple(batch.target_in.shape) for batch in batches],  # type: ignore[misc]
        }
        whole = stacked(batches).to(self.device)
        tensors = [whole.source, whole.target_in, whole.target_out]
        counting = self.losses.model.counting
        if counting.moved or counting.randomized:
            tensors += self.places(batches)
        with contextlib.ExitStack() as stack:
            stack.enter_context(mkl_alone())  # vmap knows nothing of another way
            if self.trainer.bf16:
                stack.enter_context(torch.autocast(self.device.type, torch.bfloat16))
                stack.enter_context(BiasInHalf())
            return vmap(self.of_one)(self.weights, self.drawn_by_seed, *tensors)

    def places(self, batches: Sequence[Batch]) -> list[Tensor]:
        """What each seed draws of positions in source and target, ``(K,1 or B,1 or H,·)`` each."""
        drawn = [seed.count(batch) for seed, batch in zip(self.seeds, batches, strict=True)]
        self.losses.end = max(place.end for each in drawn for place in each)
        sides = zip(*drawn, strict=True)
        return [padded([place.index for place in side]).to(self.device) for side in sides]

    def of_one(self, row: Tensor, constants: dict[str, Tensor], *batch: Tensor) -> Any:
        """Loss and NLL of the seed whose parameters are ``row (N,)``."""
        parts = row.split([shape.numel() for shape in self.shapes])
        parameters = [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        named = {name: parameters[i] for name, i in self.place.items()}
        return functional_call(self.losses, named | constants, batch, tie_weights=False)

    @torch.no_grad()
    def hand_back(self) -> None:
        """Give each run the weights and moments that are its own."""
        state = self.optimizer.state[self.weights]
        every = (self.weights, state["exp_avg"], state["exp_avg_sq"])
        for seed, *rows in zip(self.seeds, *every, strict=True):
            parameters = list(seed.training.model.parameters())
            sizes = [p.numel() for p in parameters]
            for p, weight, *moments in zip(
                parameters, *(row.split(sizes) for row in rows), strict=True
            ):
                p.copy_(weight.view_as(p))
                # Copies: a file would hold all of what a view looks into.
                mean, square = (moment.view_as(p).clone() for moment in moments)
                seed.training.optimizer.state[p] = {
                    "step": state["step"].clone(), "exp_avg": mean, "exp_avg_sq": square
                }  # fmt: skip


def drawn_by_seed(models: Sequence[Transformer]) -> dict[str, Tensor]:
    """What an encoding holds beside parameters and draws by seed, ``(K,…)`` each; most none."""
    found = {}
    for name, first in models[0].named_buffers():
        values = [model.get_buffer(name) for model in models]
        alike = (v.shape != first.shape or torch.equal(v, first) for v in values)  # or it has grown
        if not all(alike):
            found[f"model.{name}"] = torch.stack(values)
    return found


def stacked(batches: Sequence[Batch]) -> Batch:
    """One batch of each seed, padded to one shape: ``(K,B,S)``, ``(K,B,T)``, ``(K,B,T)``."""
    filled = [batch.filled(max(len(each.source) for each in batches)) for batch in batches]
    return Batch(
        source=padded([batch.source for batch in filled]),
        target_in=padded([batch.target_in for batch in filled]),
        target_out=padded([batch.target_out for batch in filled]),
    )


def padded(tensors: Sequence[Tensor]) -> Tensor:
    """The ``tensors``, each with zeros up to the largest of each dimension, and stacked."""
    shape = [max(sizes) for sizes in zip(*(t.shape for t in tensors), strict=True)]
    whole = tensors[0].new_zeros(len(tensors), *shape)
    for own, tensor in zip(whole, tensors, strict=True):
        own[tuple(map(slice, tensor.shape))] = tensor
    return whole
