"""Build a run's state from its configuration, or restore it from a checkpoint."""

import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.data.load import SAME_DATA, Data, Examples, load_data, parts_of
from wawa_transformer.model.check import require_promises
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.model.weights import name_of
from wawa_transformer.run import distributed
from wawa_transformer.run.config import build_model
from wawa_transformer.run.device import reset_peak_memory, set_precision, take_device
from wawa_transformer.run.provenance import code_digest
from wawa_transformer.run.run_dir import Run, identity, recorded
from wawa_transformer.run.schema import TrainerConfig
from wawa_transformer.train import checkpoint
from wawa_transformer.train.optim import adamw
from wawa_transformer.train.transfer import listed, start_from

# The parts of a state that a configuration gives, or that stand elsewhere in a checkpoint.
GIVEN = {
    "config", "run", "data", "device", "model", "optimizer", "history", "code", "init", "trainer",
    "recorded", "parameters", "settings", "rank", "world_size", "parallel_model",
    *checkpoint.COUNTERS,
}  # fmt: skip


@dataclass
class TrainState:
    """The state of a run; ``seconds`` and ``target_tokens`` count only training.

    A checkpoint holds whatever else an edit adds, as the mean of weights: tensors, numbers and
    text, and objects with ``state_dict()``.
    """

    config: DictConfig
    run: Run
    data: Data
    device: torch.device
    model: Transformer
    optimizer: torch.optim.Optimizer
    history: list[dict[str, Any]] = field(default_factory=list)  # the lines of metrics.jsonl
    step: int = 0
    seconds: float = 0.0
    target_tokens: int = 0
    code: str = ""  # the digest of the code; of each version, if a resumed run has several
    best_nll: float = math.inf
    best_step: int = 0
    init: dict[str, Any] | None = None  # what came from trainer.init_from

    def __post_init__(self) -> None:
        # Plain values and lists are faster: a step reads a dozen settings, and walking the module
        # tree for the parameters costs a third of clipping.
        self.trainer = TrainerConfig(**self.config.trainer)
        self.recorded = recorded(self.config)
        self.parameters = list(self.model.parameters())
        # Of each group, as the code sets them: a checkpoint restores what steps have set since.
        self.settings = [
            {name: each for name, each in group.items() if name != "params"}
            for group in self.optimizer.param_groups
        ]
        self.rank, self.world_size = distributed.rank(), distributed.world_size()
        self.parallel_model: Any = self.model  # with several processes, wrapped by DDP


def claim_run(config: DictConfig, run: Run) -> None:
    """Write the configuration into the run's locked folder.

    Raises:
        UserError: the folder, or another process of this run, has another configuration.
    """
    own = identity(config)
    if distributed.any_rank(distributed.broadcast_object(lambda: own) != own):
        if distributed.is_main():
            run.remove_if_empty()
        raise UserError(
            "the processes of torchrun were given different configurations, and one run has one; "
            "give every process the same keys."
        )
    distributed.broadcast_object(lambda: run.write_config(config))


def start_run(config: DictConfig, run: Run) -> TrainState:
    """Build or restore the state of a claimed run.

    Raises:
        UserError: the configuration cannot be met, or no checkpoint is intact.
    """
    try:
        with distributed.main_first():  # it fills caches, and puts damaged checkpoints aside
            state = restore(config, run)
        check_ranks(state.data)
    except BaseException:
        if distributed.is_main():
            run.remove_if_empty()  # leave no empty folder behind
        raise
    state.parallel_model = distributed.wrap_ddp(state.model, state.device)
    return state


def restore(config: DictConfig, run: Run) -> TrainState:
    """Restore the last intact checkpoint, or start anew without any."""
    last, previous = run.checkpoint("last"), run.checkpoint("previous")
    damage: checkpoint.Damaged | None = None
    for path in (last, previous):
        try:
            state = build_state(config, run, path)
        except checkpoint.Missing:
            continue
        except checkpoint.Damaged as error:
            damage = damage or error
            continue
        if damage:
            aside = last.with_suffix(".damaged")
            warn(
                f"warning: {last} is damaged, and now called {aside.name}; the run goes on from "
                f"{path}, step {state.step}."
            )
            # The intact one takes its place: a run at its last step writes no other.
            checkpoint.duplicate(last, aside)
            checkpoint.duplicate(previous, last)
        return state
    if damage:
        raise damage
    return build_state(config, run, None)


def build_state(config: DictConfig, run: Run, path: Path | None) -> TrainState:
    """Build the state of step 0, or of the checkpoint at ``path``."""
    trainer = config.trainer
    saved = checkpoint.load_own(path, config) if path else None
    if saved and (before := len(saved["rng"])) != distributed.world_size():  # a state for each
        raise UserError(
            f"{run.directory} was begun by {before} processes, and this is one of "
            f"{distributed.world_size()}: its dropout masks would be others; go on with {before}, "
            f"or give another seed or output_dir."
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS cannot be deterministic
    # Asked first, since setting it imports torch's compiler.
    if torch.get_deterministic_debug_mode() != 2 * trainer.deterministic:  # 1 only warns
        torch.use_deterministic_algorithms(trainer.deterministic)
    device = take_device(trainer)
    set_precision(trainer, device)
    reset_peak_memory(device)
    data = load_data(config)
    if saved:
        check_data(run, saved.get("data"), data)

    model = build_model(config, data.tokenizer).to(device)
    require_dense(model)
    model.trained_sizes = data.train.extremes()
    sizes = padded_sizes(data.train, trainer), data.validation.sizes, data.test.sizes
    longest = int(max(each.max() for each in sizes))
    model.check_length(longest)
    if trainer.check:
        require_promises(model.config, longest, trainer.bf16, type(model))
    farthest = int(data.train.sizes.max()) - 1
    reach = max(each.max_distance for each in model.encodings())
    if reach > farthest and distributed.is_main():
        warn(
            f"warning: pe.max_distance={reach} reaches past the farthest distance in the training "
            f"data, {farthest}: what lies beyond keeps its random start and is used at longer test "
            f"lengths; set pe.max_distance={farthest} or less."
        )
    # After the model is built, so that an encoding's parameters do not shift the dropout masks.
    # Each process draws its own masks for its own rows.
    who = (distributed.rank(),) if distributed.rank() else ()
    torch.manual_seed(seed_for(config.seed, "dropout", *who))
    optimizer = adamw(model.parameters(), trainer)
    mention_untrained(model, optimizer)
    mention_unheld(optimizer)
    if trainer.compile:  # in place: the names in a checkpoint stay as they are
        torch._dynamo.config.recompile_limit = max(8, count_shapes(data.train, trainer))
        dynamic = None if trainer.pad_to_multiple_of == 1 else False
        model.compile(dynamic=dynamic, mode=trainer.compile_mode)
    state = TrainState(config, run, data, device, model, optimizer, code=code_digest(config))
    if saved and path:
        with checkpoint.fitting(path, saved):
            restore_state(state, saved)
    elif trainer.init_from:
        state.init = start_from(trainer.init_from, config.init_digest, model, data.tokenizer)
    return state


def require_dense(model: Transformer) -> None:
    """Refuse sparse gradients, which clipping does not take."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise UserError(
                f"{name} is an {type(module).__name__} with sparse=True, and gradients that are "
                f"clipped must be dense; leave sparse out."
            )


def mention_untrained(model: Transformer, optimizer: torch.optim.Optimizer) -> None:
    """Name the parameters that no step of the optimiser changes."""
    groups = [each for group in optimizer.param_groups for each in group["params"]]
    trained = {id(each) for each in groups if each.requires_grad}
    every = [name for name, value in model.named_parameters() if id(value) not in trained]
    if every and distributed.is_main():
        warn(
            f"warning: {len(every)} of the model's tensors stay as they start, since they need no "
            f"gradient or are in no group of the optimiser: {listed(every)}."
        )


def mention_unheld(optimizer: torch.optim.Optimizer) -> None:
    """Name an optimiser inside the optimiser that no checkpoint would hold."""
    if type(optimizer).state_dict is not torch.optim.Optimizer.state_dict:
        return
    for name, value in vars(optimizer).items():
        parts = value if isinstance(value, list | tuple) else [value]
        if any(hasattr(each, "state_dict") for each in parts) and distributed.is_main():
            warn(
                f"warning: {name} of the optimiser would begin anew when the run is resumed, since "
                f"{type(optimizer).__name__} has no state_dict() and load_state_dict() of its own "
                f"that hold it."
            )


def check_ranks(data: Data) -> None:
    """Refuse to train on other data than the main process.

    Raises:
        UserError: this process has read or tokenised other data.
    """
    main = distributed.broadcast_object(lambda: data.digest)
    if main != data.digest:
        raise UserError(
            f"process {distributed.rank()} has data {data.digest}, the main process {main}; put "
            f"the same text, code and packages on every machine (task.data_dir names the folder)."
        )


def check_data(run: Run, before: str | None, data: Data) -> None:
    """Refuse to go on with a run that was trained on other data.

    Raises:
        UserError: ``before``, the digest in its checkpoint or result, is not that of ``data``.
    """
    if before != data.digest:
        old, now = parts_of(before or ""), parts_of(data.digest)
        others = ", ".join(name for name in now if old.get(name) != now[name])
        raise UserError(
            f"{run.directory} was trained on data {before}, and task={data.task.name} now gives "
            f"{data.digest}, another {others}; bring back the old text and code, or set output_dir "
            f"to another folder to train on the new data. {SAME_DATA}"
        )


def padded_sizes(examples: Examples, trainer: TrainerConfig) -> np.ndarray:
    """The padded length of each example, with ``trainer.pad_to_multiple_of``."""
    return -(-examples.sizes // trainer.pad_to_multiple_of) * trainer.pad_to_multiple_of


def count_shapes(examples: Examples, trainer: TrainerConfig) -> int:
    """Count the shapes that padded batches can have: torch's recompilation limit."""
    sides, multiple = (examples.source.sizes, examples.target.sizes - 1), trainer.pad_to_multiple_of
    return math.prod(len(np.unique(-(-sizes // multiple))) for sizes in sides)


def restore_state(state: TrainState, saved: dict[str, Any]) -> None:
    """Restore what :func:`save_state` saved; many exceptions mean another model."""
    checkpoint.load_weights(state.model, saved["model"])
    restore_optimizer(state, saved)

    def own(random: Tensor) -> Tensor:
        # A copy: torch reads a random state from the start of its storage, whatever the view.
        return random.view(state.world_size, -1)[state.rank].clone()

    torch.set_rng_state(own(saved["rng"]))
    kind = state.device.type
    if kind in saved["device_rng"]:
        random_module(state.device).set_rng_state(own(saved["device_rng"][kind]))
    elif state.rank == 0:
        devices = " and ".join(saved["device_rng"])
        warn(
            f"warning: this run was trained on {devices} and goes on on {kind}: its dropout masks "
            f"are drawn anew, and numbers differ in rounding."
        )
    if saved.get("code") != state.code:
        # Both have made this run: a result of one version of the code is another.
        state.code = "+".join(dict.fromkeys([*str(saved.get("code")).split("+"), state.code]))
    if state.rank == 0 and "+" in state.code:
        warn(
            f"warning: the code has changed since step {saved['step']} of this run; to train it "
            f"from the start, set output_dir to another folder."
        )
    for name in checkpoint.COUNTERS:
        setattr(state, name, saved[name])
    for name, value in saved.get("added", {}).items():
        part: Any = getattr(state, name, None)
        if hasattr(part, "load_state_dict"):
            part.load_state_dict(value)
        elif name in saved.get("objects", ()):
            raise UserError(
                f"{name} of the training state is an object whose state_dict() the checkpoint "
                f"holds, and resuming finds no such object; make it in TrainState.__post_init__, "
                f"and not in a step, or set output_dir to another folder if it was taken out."
            )
        else:
            setattr(state, name, value)
    if names := saved.get("not_held"):
        warn(
            f"warning: {names[0]} of the training state begins anew, since a checkpoint cannot "
            f"hold it; keep tensors, numbers or text there, or give it a state_dict()."
        )
    state.init = saved.get("init")
    state.history = [row for row in saved["metrics"] if row["step"] <= state.step]


def restore_optimizer(state: TrainState, saved: dict[str, Any]) -> None:
    """Restore the optimiser with its settings, of which those that were edited since count."""
    optimizer, before = state.optimizer, saved["optimizer"].get("param_groups", ())
    for here, there in zip(optimizer.param_groups, before, strict=False):
        # A version of torch has more settings, or fewer; another optimiser has others.
        if here.keys() - there.keys() and (others := there.keys() - here.keys()):
            raise ValueError(f"its optimiser is another one, with {', '.join(sorted(others))}")
    begun = saved.get("settings", state.settings)
    # Edited since, as betas: the code that one reads counts.
    edited = [
        {name: each for name, each in now.items() if each != then.get(name, each)}
        for now, then in zip(state.settings, begun, strict=True)
    ]
    optimizer.load_state_dict(saved["optimizer"])
    for group, settings in zip(optimizer.param_groups, edited, strict=True):
        group.update(settings)


def random_module(device: torch.device) -> Any:
    """The torch module with the random state of ``device``."""
    return torch if device.type == "cpu" else torch.get_device_module(device)


def save_state(state: TrainState, validated: bool = False, improved: bool = False) -> None:
    """Write a checkpoint with all that a resumed run needs.

    The step alone gives the position in the data. After a validation the weights are also kept for
    averaging, and as the best if it ``improved``.
    """
    if not checkpoint.is_finite(state.model):
        check_finite(state, largest_weight=math.nan)
    random = distributed.gather(torch.get_rng_state())  # (world_size, …)
    on_device = distributed.gather(random_module(state.device).get_rng_state())
    if state.rank == 0:
        weights = state.model.state_dict()
        added = {
            name: each.state_dict() if hasattr(each, "state_dict") else each
            for name, each in vars(state).items()
            if name not in GIVEN
        }
        held = {key: each for key, each in added.items() if not checkpoint.pack({key: each})[1]}
        saved = {
            **{name: getattr(state, name) for name in checkpoint.COUNTERS},
            "metrics": state.history,
            "model": weights,
            "transformer": asdict(state.model.config),
            "model_class": name_of(state.model),
            "optimizer": state.optimizer.state_dict(),
            "settings": state.settings,
            "rng": random,
            "device_rng": {state.device.type: on_device},
            "tokenizer": state.data.tokenizer.to_str(),
            "data": state.data.digest,
            "config": state.recorded,
            "trained_sizes": state.model.trained_sizes,
            "code": state.code,
            "init": state.init,
            "added": held,
            "objects": [name for name in held if hasattr(vars(state)[name], "state_dict")],
            "not_held": [name for name in added if name not in held],
        }
        if validated and state.trainer.keep_checkpoints:
            checkpoint.keep(state.run, saved, state.trainer.keep_checkpoints)
        content = checkpoint.packed(saved)
        if improved:
            checkpoint.write(state.run.checkpoint("best"), content)
        checkpoint.write(state.run.checkpoint("last"), content)
    distributed.barrier()


def check_finite(state: TrainState, **values: float) -> None:
    """Stop the run if a value is infinite or NaN."""
    trainer, last = state.trainer, state.run.checkpoint("last")
    for name, value in values.items():
        if math.isfinite(value):
            continue
        kept = f"the last good checkpoint is {last}" if last.exists() else "none was kept yet"
        remedy = (
            f"lower what is too large of trainer.lr={trainer.lr}, "
            f"trainer.weight_decay={trainer.weight_decay} and trainer.grad_clip={trainer.grad_clip}"
        )
        if state.step == 1:
            remedy = "before the first update a starting value is too large: see the settings of pe"
        what = f"the {name.replace('_', ' ')} is {value} at step {state.step}"
        raise UserError(f"{what}; {kept}; {remedy}.")
