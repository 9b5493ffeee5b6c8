"""``trainer.init_from``: a run starts from another run's weights, where names and shapes match."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support import (
    TINY,
    answer,
    assert_same_bits,
    begun,
    checked,
    configure,
    train_until_saved,
    trained,
)
from torch import Tensor

from wawa_transformer.common.messages import UserError
from wawa_transformer.positional.learned import LearnedEncoding
from wawa_transformer.run.overrides import CHECKS
from wawa_transformer.run.run_dir import Run, identity
from wawa_transformer.run.saved import weights_digest
from wawa_transformer.train import checkpoint
from wawa_transformer.train.setup import TrainState, save_state
from wawa_transformer.train.trainer import train
from wawa_transformer.train.transfer import transfer_line


def at_start(*overrides: str) -> TrainState:
    """The state of a run before its first step."""
    return begun(checked(*TINY, *overrides))


def weights(run: Run) -> dict[str, Tensor]:
    return checkpoint.load(run.checkpoint("last"))["model"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A trained run, with a table of positions."""
    return trained(tmp_path_factory.mktemp("source"), *TINY, "pe=learned")


def test_a_curriculum_starts_from_every_weight_and_its_result_says_so(
    source: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Longer sources, the same model; without steps that move it, it is the source's."""
    longer = ["pe=learned", "task.max_length=6", f"trainer.init_from={source.directory}"]
    start = at_start(*longer).model.state_dict()
    assert all(torch.equal(start[name], value) for name, value in weights(source).items())
    result = train(checked(*TINY, *longer, f"output_dir={tmp_path}"))
    said = capsys.readouterr().out
    assert f"{len(start)} of {len(start)} tensors start from {source.directory}" in said
    nothing = {"new": [], "left": [], "shapes": {}, "settings": [], "words": None}
    assert result["init"] == {"matched": len(start), **nothing}
    assert result["place"]["trainer"]["init_from"] == str(source.directory)
    alone = train(checked(*TINY, *longer[:2], f"output_dir={tmp_path}"))
    assert alone["init"] is None and alone["by_length"] != result["by_length"]


def test_settings_in_which_models_of_the_same_shapes_differ_are_named(source: Run) -> None:
    """The same weights compute something else with them."""
    given = ["pe=learned", "model.num_heads=4", "model.activation=gelu", "model.dropout=0.5"]
    found = at_start(*given, f"trainer.init_from={source.directory}").init
    heads = configure(*TINY).model.num_heads
    said = f"the model differs in num_heads {heads} there, 4 here, activation relu there, gelu here"
    assert transfer_line("RUN", found).endswith(said)


def test_a_table_of_another_encoding_starts_anew(source: Run, registry: None) -> None:
    """Its shape is the same, and its numbers mean something else."""

    class Other(LearnedEncoding, kind="other"): ...

    config = configure(*TINY, "pe=learned", f"trainer.init_from={source.directory}")
    config.pe.kind = "other"
    CHECKS["config"](config)
    found = begun(config).init
    assert found and found["new"] == found["left"] == ["src_position.table", "tgt_position.table"]


@pytest.mark.parametrize(
    ("given", "new", "left"),
    [
        (["pe=none"], [], ["src_position.table", "tgt_position.table"]),
        (["pe=shaw"], [], []),
        (["pe=none", "pe.cross=t5"], ["cross_position.table"], ["src_position.table"]),
        (["pe=learned", "pe.max_len=40"], ["src_position.table"], ["tgt_position.table"]),
        (["pe=learned", "model.num_layers=2"], ["encoder_layers.1.feed_forward.inner.bias"], []),
    ],
)
def test_what_another_encoding_has_starts_anew_and_is_named(
    given: list[str], new: list[str], left: list[str], source: Run
) -> None:
    """Dropped positions, other ones, a shorter table, another layer; all else is the source's."""
    state = at_start(*given, f"trainer.init_from={source.directory}")
    found, before, own = state.init, weights(source), state.model.state_dict()
    fresh = at_start(*given).model.state_dict()
    assert {*new} <= {*found["new"]} and {*left} <= {*found["left"]}
    assert found["matched"] + len(found["new"]) == len(own)
    for name, value in own.items():
        assert torch.equal(value, fresh[name] if name in found["new"] else before[name]), name
        assert (name in found["new"]) == (name not in before or before[name].shape != value.shape)
    assert {*found["left"]} == {n for n in before if n not in own or n in found["new"]}
    line = transfer_line("RUN", found)
    assert "\n" not in line and f" of {len(own)} tensors start from RUN" in line
    for label, names in (("start anew: ", found["new"]), ("left out: ", found["left"])):
        assert (label in line) == bool(names)
        assert all(name in line.split(label)[1] for name in names[:3])
    if "pe.max_len=40" in given:
        assert "src_position.table (256x16 there, 40x16 here)" in line


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ("letters 5", "letters 9", [14, 22]),
        ("letters 9", "letters 5", [14, 14]),
        ("letters 5", "copy 10", [9, 14]),  # as many words, and other ones
    ],
)
def test_words_that_both_vocabularies_have_keep_their_rows(
    before: str, now: str, words: list[int], tmp_path: Path
) -> None:
    """By the word and not by the id, in the embeddings and in the output: A is no fixed id."""
    pairs = (each.split() for each in (before, now))
    past, given = ([f"task={task}", f"task.symbols={symbols}"] for task, symbols in pairs)
    first = at_start(*past, f"run_dir={tmp_path}")
    save_state(first)
    state, fresh = at_start(*given, f"trainer.init_from={tmp_path}"), at_start(*given).model
    model, tokenizer = first.model, first.data.tokenizer
    old, own = tokenizer.get_vocab(), state.data.tokenizer.get_vocab()
    assert old["A"] != own.get("A") and (now != "copy 10" or len(old) == len(own))
    for part in ("src_embedding", "tgt_embedding", "output"):
        found, kept, anew = (getattr(each, part).weight for each in (state.model, model, fresh))
        for word, id in own.items():
            expected = kept[old[word]] if word in old else anew[id]
            assert torch.equal(found[id], expected), (part, word)
    assert state.init["words"] == words and state.init["new"] == []


def test_a_run_is_known_by_the_weights_it_starts_from_and_not_by_their_folder(
    source: Run, tmp_path: Path
) -> None:
    """The same weights elsewhere are the same run; other weights there, another run."""
    copy = shutil.copytree(source.directory, tmp_path / "elsewhere")

    def folder(*overrides: str) -> str:
        return Run.from_config(checked(*TINY, "pe=none", *overrides)).directory.name

    own = folder(f"trainer.init_from={source.directory}")
    assert own == folder(f"trainer.init_from={copy}")
    assert own == folder(f"trainer.init_from={source.checkpoint('last')}")
    assert own != folder() == Run.from_config(configure(*TINY, "pe=none")).directory.name
    # So that the runs of before this key are found again.
    assert "init_digest" not in identity(configure(*TINY))
    state = checkpoint.load(source.checkpoint("last"))
    state["model"]["output.weight"] = state["model"]["output.weight"] + 1e-6
    checkpoint.save(copy / "checkpoints" / "last.pt", state)
    assert own != folder(f"trainer.init_from={copy}")
    # Equal weights with other moments and counters are equal weights.
    state = checkpoint.load(source.checkpoint("last")) | {"step": 3, "metrics": []}
    checkpoint.save(copy / "checkpoints" / "last.pt", state)
    assert own == folder(f"trainer.init_from={copy}")


def test_weights_are_known_by_their_names_shapes_types_and_values() -> None:
    """In whatever order, and wherever in memory."""
    one = torch.arange(4.0)
    table = one.view(2, 2)
    others = [{"b": one}, {"a": table}, {"a": table.T}, {"a": one.view(torch.int32)}]
    assert len({*map(weights_digest, [{"a": one}, *others])}) == 5
    assert weights_digest({"a": one, "b": table}) == weights_digest({"b": table, "a": one})


def test_a_stopped_run_goes_on_without_the_run_it_started_from(
    source: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its own checkpoint, bit for bit; the digest in its config.yaml names it."""
    copy = shutil.copytree(source.directory, tmp_path / "source")
    given = ["pe=none", f"trainer.init_from={copy}"]
    whole = checked(*TINY, *given, f"output_dir={tmp_path}/whole")
    expected = train(whole)
    stopped = checked(*TINY, *given, f"output_dir={tmp_path}/stopped")
    train_until_saved(stopped)
    shutil.rmtree(copy)
    said = answer(*TINY, *given)
    assert (
        said.startswith(f"trainer.init_from={copy} is no run with weights") and "init_dig" in said
    )
    digest = Run.from_config(stopped).configuration()["init_digest"]
    capsys.readouterr()
    again = checked(*TINY, *given, f"init_digest={digest}", f"output_dir={tmp_path}/stopped")
    result = train(again)
    assert result["by_length"] == expected["by_length"] and result["init"] == expected["init"]
    assert_same_bits(Run.from_config(again), Run.from_config(whole))
    with pytest.raises(UserError, match="is no run with weights"):  # nothing to go on from
        train(checked(*TINY, *given, f"init_digest={digest}", f"output_dir={tmp_path}/new"))
    assert not (tmp_path / "new" / "single").exists()


def test_weights_of_another_precision_start_rounded(source: Run, tmp_path: Path) -> None:
    """As another program may keep them."""
    state = checkpoint.load(source.checkpoint("last"))
    state["model"] = {name: value.bfloat16() for name, value in state["model"].items()}
    checkpoint.save(tmp_path / "half.pt", state)
    start = at_start("pe=learned", f"trainer.init_from={tmp_path}/half.pt").model.state_dict()
    assert all(torch.equal(start[name], value.float()) for name, value in state["model"].items())
    state["model"]["output.weight"] *= torch.nan
    checkpoint.save(tmp_path / "nan.pt", state)
    with pytest.raises(UserError, match="weights that cannot be used .a weight is not finite"):
        at_start("pe=learned", f"trainer.init_from={tmp_path}/nan.pt")


def test_weights_that_change_after_the_command_are_refused(source: Run, tmp_path: Path) -> None:
    """A source that is still training would give a run that is not what its folder says."""
    copy = shutil.copytree(source.directory, tmp_path / "source")
    config = checked(*TINY, "pe=none", f"trainer.init_from={copy}", f"output_dir={tmp_path}/o")
    state = checkpoint.load(copy / "checkpoints" / "last.pt")
    state["model"]["encoder_norm.bias"] += 1
    checkpoint.save(copy / "checkpoints" / "last.pt", state)
    with pytest.raises(UserError, match=r"had weights with digest \w{8} when .* and has \w{8} now"):
        train(config)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["model.d_model=32"], ": tgt_embedding.weight (24x16 there, 24x32 here), "),
        (
            ["model.d_ff=48"],
            ": encoder_layers.0.feed_forward.inner.weight (32x16 there, 48x16 here)",
        ),
        (
            ["model.tie_embeddings=true"],
            "has different weights tgt_embedding.weight and src_embedding.weight",
        ),
        (["init_digest=01234567"], "and init_digest=01234567; leave init_digest out"),
    ],
)
def test_weights_that_do_not_fit_are_refused_with_names_and_sizes(
    given: list[str], said: str, source: Run, tmp_path: Path
) -> None:
    """In one sentence; nothing is left behind."""
    start = [*given, f"trainer.init_from={source.directory}", f"output_dir={tmp_path}/o"]
    with pytest.raises(UserError) as refused:
        train(checked(*TINY, *start))
    sentence = str(refused.value)
    assert said in sentence and sentence.startswith(f"trainer.init_from={source.directory} ")
    if " there, " in said:
        assert sentence.count(" there, ") == 3 and " more; give " in sentence
    assert not (tmp_path / "o" / "single").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nowhere", None, "is no run with weights: there is no "),
        ("", None, "is no run with weights"),
        ("last.pt", b"", "last.pt is damaged"),
        ("last.pt", b"PK no archive", "last.pt is damaged"),
        ("last.pt", {"step": 1}, "holds no weights of a model"),
        ("last.pt", {"step": 1, "model": [1]}, "holds no weights of a model"),
        ("weights.pt", {"output.weight": torch.ones(1)}, "holds no weights of a model"),
        ("last.pt", {"step": 1, "model": {"w": torch.ones(2)}}, "has nothing that this model has"),
    ],
)
def test_what_is_no_run_of_this_program_is_refused(
    name: str, content: Any, said: str, tmp_path: Path
) -> None:
    """A missing folder, an unreadable file, another program's weights."""
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content:
        torch.save(content, tmp_path / name)
    given = ["pe=none", f"trainer.init_from={tmp_path / name}", f"output_dir={tmp_path}/o"]
    with pytest.raises(UserError) as refused:
        train(checked(*TINY, *given))
    assert said in str(refused.value) and str(refused.value).endswith(".")
