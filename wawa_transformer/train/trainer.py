"""Train one run from its configuration to its result."""

import contextlib
import functools
import itertools
import math
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import torch
from omegaconf import DictConfig
from tqdm import tqdm

from wawa_transformer.common.files import lock_directory, write_lines
from wawa_transformer.common.messages import UserError, tell, warn
from wawa_transformer.common.seeds import others_kept
from wawa_transformer.data.load import Data, Examples, RaggedSequences, load_data
from wawa_transformer.data.tasks import SPLITS, TASKS, Task
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import (
    SAMPLES,
    Hypothesis,
    hypotheses,
    losses,
    one_line,
    translation_scores,
)
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.base import ENCODINGS
from wawa_transformer.run import distributed
from wawa_transformer.run.compose import compose, name_study, validate
from wawa_transformer.run.device import (
    has_bf16,
    peak_memory,
    require_defaults,
    translate_device_errors,
)
from wawa_transformer.run.failure import sentence_of, whose
from wawa_transformer.run.imports import import_modules, modules_digest, warn_of_edits
from wawa_transformer.run.provenance import (
    code_digest,
    commit,
    modules_of,
    provenance,
    replaced,
    shared_digest,
    with_users,
)
from wawa_transformer.run.run_dir import Run, identity, place
from wawa_transformer.run.signals import GracefulStop
from wawa_transformer.train import evaluation
from wawa_transformer.train.loop import batch_stream, train_loop
from wawa_transformer.train.setup import TrainState, check_data, claim_run, start_run
from wawa_transformer.train.tracking import Tracker, show
from wawa_transformer.train.transfer import transfer_line

TRAINING = threading.RLock()  # torch has one random state for the whole process


def train_run(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Train the run of ``scripts/train.py overrides`` and return its ``result.json``.

    ``overrides`` are what a command line gives: ``["pe=rotary", "seed=3"]``. The run has the folder
    that the command would give it, so a finished run is returned as it is. In threads, runs take
    turns; processes train side by side.

    Raises:
        UserError: an override is mistaken, or the run cannot be what the configuration says.
        KeyboardInterrupt: a signal came; the same call continues the run.
    """
    texts = isinstance(overrides, Iterable) and not isinstance(overrides, str | Mapping)
    given = [*overrides] if texts else []
    if overrides is not None and not (texts and all(isinstance(each, str) for each in given)):
        raise UserError(f"train({overrides!r}) must be given a list of texts, ['seed=3'].")
    require_plain_torch()
    config = compose(given)
    with TRAINING, callers_torch():
        validate(config)
        warn_of_edits(config.imports)
        name_study(config, given)
        return train(config)


def require_plain_torch() -> None:
    """Refuse what the caller, or a module at its import, has set for all of torch."""
    if not torch.is_grad_enabled() or any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        raise UserError(
            "training is called under no_grad, inference_mode or autocast; leave it, or take "
            "torch.set_grad_enabled(False) out of the module in import=."
        )
    require_defaults()


@contextlib.contextmanager
def callers_torch() -> Iterator[None]:
    """Give the caller's random states, threads, precision and determinism back."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    fixed = torch.get_deterministic_debug_mode()  # 1 warns, 2 refuses
    with torch.random.fork_rng(devices=[]), others_kept():
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)
            if fixed != torch.get_deterministic_debug_mode():
                torch.use_deterministic_algorithms(fixed > 0, warn_only=fixed == 1)


def train(config: DictConfig, patience: float = 0.0) -> dict[str, Any]:
    """Train the run of ``config`` and return its ``result.json``.

    A finished run is returned as it is. An interrupted run resumes from its last checkpoint, on the
    same trajectory bit for bit. Waits ``patience`` seconds for another process to leave the run.

    Raises:
        Stopped: a signal came; the state is kept.
        UserError: the run cannot be what the configuration says, or was trained on other data.
    """
    import_modules(config.imports)  # in a worker, nobody has
    require_plain_torch()
    if config.import_digest not in (None, modules_digest(config.imports)):
        raise UserError(
            f"import={','.join(config.imports)} has changed since this command began; give the "
            f"command again."
        )
    run = Run.from_config(config)
    code = code_digest(config)  # now: code may be edited during a wait, and committed during a run
    commit()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(GracefulStop())
        stack.enter_context(distributed.process_group(config.trainer.device))
        main = distributed.is_main()
        if main and not run.result():  # a finished run is read, also where nobody may write
            key = "run_dir" if config.run_dir or run.directory.exists() else "output_dir"
            stack.enter_context(lock_directory(run.directory, patience, key))
        claim_run(config, run)
        if main and not config.quiet:
            mention_imports(config)
        if result := distributed.broadcast_object(run.result):
            check_data(run, result.get("data"), load_data(config))
            if main and not config.quiet:
                tell(f"already finished: {run.directory}")
                if result.get("code") != code:
                    warn(
                        f"warning: the code has changed since (commit {result.get('commit')}); to "
                        f"train with today's code, set output_dir to another folder."
                    )
            return result
        state = start_run(config, run)
        if main and not config.quiet and state.init:
            tell(transfer_line(config.trainer.init_from, state.init))
        if main and not config.quiet and state.data.task.translates:
            mention_bf16(state)
        tracker = Tracker(run, state.history, state.step, main)
        shown = main and config.progress and not config.quiet
        progress = tqdm(
            desc=f"{config.task.name} · {config.pe.name} · seed {config.seed}",
            total=config.trainer.steps,
            initial=state.step,
            disable=None if shown and sys.stderr else True,  # None: only a terminal has a bar
        )
        with tracker, progress, translate_device_errors(config, state.device):
            with stop.deferred():
                train_loop(state, tracker, progress, stop)
            result = final_evaluation(state, tracker)
        return distributed.broadcast_object(lambda: run.finish(result))


def train_and_record_failure(config: DictConfig, patience: float = 0.0) -> dict[str, Any] | None:
    """Train one run of many; return its result, or write a failure to its folder."""
    try:
        return train(config, patience)
    except Exception as error:
        reason = sentence_of(error) or f"{traceback.format_exc()}{whose(error)}"
    Run.from_config(config).fail(reason)
    return None


def final_evaluation(state: TrainState, tracker: Tracker) -> dict[str, Any]:
    """Evaluate the trained model: costs, scores, translations and pictures."""
    result, model, data = describe(state), state.model, state.data
    result["validation"] = evaluation.summarise(evaluation.evaluate(model, data.validation))
    result |= evaluation.evaluate_by_length(data.task, model, data.test, data.train.text)
    asked = data.validation.first(SAMPLES)
    answers = [best for best, *_ in hypotheses(model, data.tokenizer, asked.source, Greedy())]
    if state.trainer.check:
        check_decoding(model, asked, answers)
    if not tracker.main:
        return result  # the main process does the rest
    result["translation"] = None
    if data.task.translates:
        result["left_out"] = {
            name: left_out(data.task, name, getattr(data, name)) for name in SPLITS
        }
        every = hypotheses(model, data.tokenizer, data.test.source, Greedy())
        decoded = [best for best, *_ in every]
        result["translation"] = write_translations(state.run, data, decoded)
    show(tracker, state.config, model, data.tokenizer, asked, answers, result)
    return result


def check_decoding(model: Transformer, asked: Examples, answers: list[Hypothesis]) -> None:
    """Warn if greedy decoding is another model than evaluation scores.

    Its ``answers``, as targets, have every token right but for ties, however little is learned.
    """
    targets = [[int(asked.target[i][0]), *best.ids] for i, best in enumerate(answers)]
    read_back = replace(asked, target=RaggedSequences.of(targets))
    scores = evaluation.evaluate(model, read_back)
    wrong = int((scores["correct"] < scores["tokens"]).sum())
    if wrong > 1 and distributed.is_main():
        warn(
            f"warning: translations are not by the model that exact match and NLL score: of "
            f"{len(answers)} greedy answers, read back as targets, {wrong} have a token that it "
            f"would not choose; make the same edit where batches are made (collate, to_ids, "
            f"forward) and where text is generated (decode/)."
        )


def describe(state: TrainState) -> dict[str, Any]:
    """Collect a run's names and costs.

    Costs are the FLOPs of one step, target tokens per second, seconds, and MB of memory.

    ``mfu`` is the share of training's time that its operations would take in one large matrix
    product (Chowdhery et al. 2022, appendix B), on all devices.
    """
    config, trainer = state.config, state.trainer
    memory = peak_memory(state.device)  # before the large matrices of peak_flops
    flops = flops_per_step(state)
    peak = state.world_size * peak_flops(state.device, trainer.bf16)
    trained = state.data.task.trained_lengths
    return {
        "task": config.task.name,
        "pe": config.pe.name,
        "seed": config.seed,
        "steps": state.step,
        "train_min_length": trained[0] if trained else None,
        "train_max_length": trained[1] if trained else None,
        "parameters": sum(p.numel() for p in state.model.parameters()),
        "flops_per_step": flops,
        "mfu": flops * state.step / state.seconds / peak,
        "tokens_per_second": state.target_tokens / state.seconds,
        "seconds": state.seconds,
        "peak_memory_mb": memory,
        "threads": trainer.threads,
        "processes": state.world_size,
        **provenance(state.device),
        "code": state.code,
        "shared_code": with_users(shared_digest()),
        "init": state.init,
        "place": place(state.recorded),
        "data": state.data.digest,
        "configuration": identity(state.recorded),
        "finished": date.today().isoformat(),
    }


def flops_per_step(state: TrainState) -> int:
    """Count the floating-point operations of one step's matrix products.

    They are those of attention, of the output and of every matrix in a layer, and not those inside
    an encoding and in the loss. A product of ``(m, k)`` and ``(k, n)`` takes ``2 m k n``
    operations, and the backward pass twice as many.
    """
    model, width = state.model, state.model.d_model
    encoder_matrices, decoder_matrices, output_matrices = (
        sum(value.numel() for value in module.parameters() if value.ndim > 1)
        for module in (model.encoder_layers, model.decoder_layers, model.output)
    )
    # Layers may be shared.
    encoder_matrices = encoder_matrices * model.num_layers // len(model.encoder_layers)
    decoder_matrices = decoder_matrices * model.num_layers // len(model.decoder_layers)
    # Keys and values of cross-attention are projections of the source.
    across = 2 * width**2 * model.num_layers
    decoder_matrices -= 0 if model.config.merged_attention else across
    products = 0
    for batch in next(batch_stream(state.data.train, state.trainer, state.config.seed, state.step)):
        rows, source, target = *batch.source.shape, batch.target_in.size(1)
        scores = 2 * width * (source**2 + target**2 + source * target)  # and weighted values
        layers = source * (encoder_matrices + across) + target * decoder_matrices
        output = target * output_matrices
        products += rows * (layers + model.num_layers * scores + output)
    return 3 * 2 * products


@functools.cache  # once for all runs of a worker
def peak_flops(device: torch.device, bf16: bool) -> float:
    """Measure the FLOPs per second of a large matrix product, best of five."""
    size = 8192 if device.type == "cuda" else 1024
    dtype = torch.bfloat16 if bf16 else torch.float32
    random = torch.Generator(device).manual_seed(0)  # torch's own decides the dropout masks
    a, b = torch.randn(2, size, size, device=device, dtype=dtype, generator=random)
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        (a @ b)[0, 0].item()  # waits for a GPU
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def mention_imports(config: DictConfig) -> None:
    """Name a module of ``import=`` that gives nothing which the run uses."""
    chosen = {config.pe.kind, config.pe.get("cross"), config.task.kind}
    every = {**ENCODINGS, **TASKS, **{each.name: each.of for each in evaluation.METRICS}}
    chosen |= {each.name for each in evaluation.METRICS}
    for name in config.imports:
        own = {kind for kind, of in every.items() if f"{of.__module__}.".startswith(f"{name}.")}
        # A module may also put a class into the project's place, as a subclass of Transformer.
        if own & chosen or any(
            f"{each}.".startswith(f"{name}.") for each in modules_of(replaced())
        ):
            continue
        what = ", ".join(sorted(own)) or "no encoding, task or metric (class Mine(…, kind=…))"
        warn(
            f"warning: import={name} registers {what}, and this run has pe={config.pe.kind} and "
            f"task={config.task.kind}"
        )


def mention_bf16(state: TrainState) -> None:
    """Say what ``trainer.bf16`` would gain on a processor that multiplies in bf16.

    The key stays false on every processor, since results, and so the run's folder, depend on it.
    """
    if state.device.type != "cpu" or state.trainer.bf16 or not has_bf16():
        return
    gain = peak_flops(state.device, bf16=True) / peak_flops(state.device, bf16=False)
    if gain > 1:
        warn(
            f"note: this processor multiplies matrices {gain:.1f} times as fast in bf16; to train "
            f"with bf16, set trainer.bf16=true."
        )


def write_translations(run: Run, data: Data, decoded: list[Hypothesis]) -> dict[str, Any]:
    """Write hypotheses and references, one sentence per line; return their scores."""
    test, outputs = data.test.text, [each.text for each in decoded]
    sources, references = ([one_line(text) for text in test[side]] for side in ("source", "target"))
    write_lines(run.translations_file, outputs)
    write_lines(run.references_file, references)
    samples = [
        {"source": source, "reference": reference, "hypothesis": output}
        for source, reference, output in itertools.islice(
            zip(sources, references, outputs, strict=True), SAMPLES
        )
    ]
    scores = translation_scores(outputs, references, data.task.words)
    return {**scores, **losses(decoded, data.test), "samples": samples}


def left_out(task: Task, split: str, examples: Examples) -> dict[str, int]:
    """Count the pairs of a text's split that are not in ``examples``."""
    read = task.left_out.get(split, {"blank": 0, "too_long": 0})
    return {**read, "too_long": read["too_long"] + examples.too_long}


def notes(result: dict[str, Any]) -> list[str]:
    """Say what a result's scores leave out, or cannot show; empty if they show all."""
    said, translation, new = [], result.get("translation") or {}, result["test"].get("new")
    count = result["test"]["examples"]
    left = result.get("left_out", {}).get("test", {})
    if any(left.values()):
        reasons = f"{left['too_long']} longer than task.max_tokens, {left['blank']} blank"
        said.append(f"{count} of {count + sum(left.values())} test pairs; {reasons}")
    if translation.get("answer") == "exact_match":
        said.append(
            "exact match is the score that answers: the targets are words, or too short for BLEU"
        )
    if cut := translation.get("reached_limit"):
        said.append(
            f"{cut} of {count} outputs reached the limit (decode.max_length sets it, up to "
            f"pe.max_len of a learned table)"
        )
    if altered := translation.get("altered"):
        said.append(
            f"{altered} of {count} outputs have every id right and another text: the vocabulary "
            f"lacks words of theirs"
        )
    if new and result.get("init"):
        said.append(
            "test sources that this training did not hold count as new, though trainer.init_from "
            "may have had them"
        )
    seen = count - new["examples"] if new else 0
    if seen and (translation or seen == count):  # generated tasks show both columns
        share = "all" if seen == count else f"{seen} of"
        said.append(f"{share} {count} test sources are also in the training split")
    return said
