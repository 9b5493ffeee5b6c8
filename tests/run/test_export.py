"""What is handed to other programs gives the same there."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import export
import pytest
import torch
from safetensors import SafetensorError
from support import TINY, WITHOUT, call_script, run_script, trained
from tokenizers import Tokenizer
from torch import Tensor

from wawa_transformer import Transformer
from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.decode.translation import read
from wawa_transformer.model.weights import read_model
from wawa_transformer.positional.base import ENCODINGS, AbsoluteEncoding, Positions
from wawa_transformer.run.export import (
    POSITIONS,
    from_safetensors,
    table_of,
    to_ctranslate2,
    to_safetensors,
)
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model

DATA = CONFIG_DIR.parent / "data"


SETTINGS = [
    ("pe=shaw_cross", "pe.origin=both", "model.norm=post", "model.activation=gelu"),
    ("pe=coupled", "task=addition_reversed", "model.tie_embeddings=true"),
    ("pe=sinusoid_design", "pe.cross=t5", "model.share_layers=true", "model.num_layers=2"),
]
SOURCE = torch.arange(4, 12).view(2, 4)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Run, Path]]:
    """Three runs, and the folders that they are exported to."""
    found = []
    for settings in SETTINGS:
        folder = tmp_path_factory.mktemp("exported")
        few = "trainer.steps=2", "trainer.eval_every=2", "trainer.keep_checkpoints=1"
        run = trained(folder, *TINY, *settings, *few)
        call_script(export.main, f"run={run.directory}", f"directory={folder}/out")
        found.append((run, folder / "out"))
    return found


def test_plain_weights_come_back_as_the_same_model(exported: list[tuple[Run, Path]]) -> None:
    """Nothing but three plain files: the same logits, bit for bit, and the same vocabulary."""
    for run, folder in exported:
        assert {path.name for path in folder.iterdir()} == {
            "model.safetensors", "config.json", "tokenizer.json",
        }  # fmt: skip
        ours, tokenizer, _ = load_model(run)
        theirs, again = from_safetensors(folder)
        assert torch.equal(ours(SOURCE, SOURCE), theirs(SOURCE, SOURCE))
        assert again.get_vocab() == tokenizer.get_vocab() and again.encode_special_tokens


@pytest.mark.parametrize("words", ["true", "false"])
def test_the_exported_tokenizer_reads_special_tokens_as_text(words: str, tmp_path: Path) -> None:
    """In a program that knows nothing of ours; and the limit of decoding goes with the model."""
    lines = [f"a [UNK] {i}\t[EOS] c {i} [PAD] d" for i in range(60)]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    run = trained(
        tmp_path, "task=text", f"task.data_dir={tmp_path}", "task.source=a.tsv", *TINY[:3],
        f"task.words={words}", "trainer.steps=1", "trainer.warmup=1", "trainer.device=cpu",
        "pictures=false", "progress=false",
    )  # fmt: skip
    call_script(export.main, f"run={run.directory}", f"directory={tmp_path}/out")
    plain = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    ours, tokenizer, _ = load_model(run)
    theirs, again = from_safetensors(tmp_path / "out")
    for line in lines:
        for text in line.split("\t"):
            ids = tokenizer.encode(text).ids
            assert plain.encode(text).ids == again.encode(text).ids == ids and min(ids) > 2
            assert plain.decode(ids).strip() == again.decode(ids).strip() == text or 3 in ids
    assert theirs.trained_sizes == ours.trained_sizes != (1, 1, 1.0)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_ctranslate2_says_the_same_of_240_sentences(norm: str, tmp_path: Path) -> None:
    """Greedily, in words of its own vocabulary; the run has begun to learn them."""
    run = trained(
        tmp_path, "task=text", f"task.data_dir={DATA}", "task.vocab_size=300", "trainer.steps=40",
        "model.d_model=32", f"model.norm={norm}", "trainer.batch_tokens=512", "trainer.lr=0.01",
        "trainer.warmup=5", "trainer.device=cpu", "pictures=false", "progress=false",
    )  # fmt: skip
    call_script(export.main, f"run={run.directory}", "format=ctranslate2")
    model, tokenizer, _ = load_model(run)
    lines = (DATA / "sample.en").read_text("utf-8").splitlines()
    sources = [tokenizer.encode(line).tokens for line in lines]
    translator = ctranslate2.Translator(str(run.directory / "ctranslate2"), compute_type="float32")

    config = json.loads((run.directory / "ctranslate2" / "config.json").read_text("utf-8"))
    assert (config["unk_token"], config["eos_token"]) == ("[UNK]", "[EOS]")
    found = translator.translate_batch(sources, beam_size=1, max_decoding_length=60)
    ids = [[tokenizer.token_to_id(word) for word in each.hypotheses[0]] for each in found]
    rows = greedy(model, read(tokenizer, lines).padded(range(240)), 60).tolist()
    assert tokenizer.decode_batch(ids) == tokenizer.decode_batch(rows)
    assert len(set(tokenizer.decode_batch(ids))) > 15


class TableAndBias(AbsoluteEncoding):
    """Adds a table, and the query's position to the scores."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + positions.ids[:, 0, :, None]

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        return -(query.ids[..., :, None] - key.ids[..., None, :]).abs().to(q.dtype)


class Gated(AbsoluteEncoding):
    """Adds what depends on the token."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return torch.where(x.abs() > 5, 2 * x, x) + 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pe": "shaw"}, "pe is shaw with distances"),
        ({"pe": "none", "cross": "t5"}, "position ids of its own"),
        ({"pe": "learned", "layers": [0, 1]}, "learned with distances, layers or"),
        ({"pe": "sinusoidal_concatenated"}, "pe.kind=sinusoidal_concatenated does not add"),
        ({"embedding_scale": "position_down"}, "another model.embedding_scale or"),
        ({"embedding_scale": "none"}, "another model.embedding_scale or"),
        ({"encoder_mask": "causal"}, "model.encoder_mask, model.encoder_window"),
        ({"encoder_window": 2}, "model.encoder_mask, model.encoder_window"),
        ({"merged_attention": True}, "merged_attention=true choose"),
        ({"pe": TableAndBias}, "choose format=safetensors"),
        ({"pe": Gated}, "pe.kind=more does not add"),
    ],
)
def test_what_ctranslate2_has_no_place_for_is_refused(
    settings: dict, said: str, tmp_path: Path, registry: None
) -> None:
    """Before anything is written."""
    if isinstance(cls := settings.get("pe"), type):
        cls.kind, ENCODINGS["more"], settings = "more", cls, {"pe": "more"}
    with pytest.raises(UserError, match=said):
        to_ctranslate2(
            Transformer(9, 9, 8, 2, 2, 16, **settings), list("abcdefghi"), tmp_path / "o"
        )
    assert not (tmp_path / "o").exists()


def test_the_exported_table_is_what_the_encoding_adds_and_no_longer(tmp_path: Path) -> None:
    """The export computes what the model does, of two layers; it checks that itself."""
    for pe, settings, rows in (("none", {}, POSITIONS), ("learned", {"max_len": 7}, 7)):
        model = Transformer(9, 9, 8, 2, 2, 16, pe=pe, pe_settings=settings)
        table = table_of(model)
        assert table.shape == (rows, 8) and table.any() == (pe == "learned")
        to_ctranslate2(model, list("abcdefghi"), tmp_path / pe)


EDITS: dict[str, Callable[[Transformer], None]] = {
    "activation": lambda model: setattr(
        model.encoder_layers[0].feed_forward, "activation", torch.nn.SiLU()
    ),
    "eps": lambda model: setattr(model.decoder_layers[0].residuals[1].norm, "eps", 0.5),
    "residual": lambda model: model.decoder_layers[0].cross_attention.register_forward_hook(
        lambda module, given, out: out / 2
    ),
    "norm": lambda model: setattr(model, "decoder_norm", torch.nn.RMSNorm(8)),
    "nan": lambda model: torch.nn.init.constant_(model.output.weight, math.nan),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_layer_is_not_exported_as_the_published_one(edit: str, tmp_path: Path) -> None:
    """CTranslate2's own numbers show it, and nothing is left in the folder."""
    model = Transformer(9, 9, 8, 1, 2, 16, seed=0)
    EDITS[edit](model)
    with pytest.raises(UserError, match="choose format=safetensors"):
        to_ctranslate2(model, list("abcdefghi"), tmp_path / "edited")
    assert not [*tmp_path.glob("edited/*")]


def test_an_export_overwrites_no_other_programs_files(
    exported: list[tuple[Run, Path]], tmp_path: Path
) -> None:
    """An export of our own is written again."""
    model, tokenizer, _ = load_model(exported[0][0])
    for _ in range(2):
        to_safetensors(model, tokenizer, tmp_path / "out")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    plain = Transformer(9, 9, 8, 1, 2, 16)
    for export_to in (
        lambda: to_safetensors(model, tokenizer, tmp_path),
        lambda: to_ctranslate2(plain, list("abcdefghi"), tmp_path),
    ):
        with pytest.raises(UserError, match="holds (merges.txt|out), which is no part of this"):
            export_to()
    assert (tmp_path / "config.json").read_text() == "{}"


def test_an_export_that_ends_early_leaves_the_folder_as_it_was(
    exported: list[tuple[Run, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever may read the folder's other files may read every one of an export."""
    model, tokenizer, _ = load_model(exported[0][0])
    plain = Transformer(9, 9, 8, 1, 2, 16)

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("No space left on device")

    exports = (
        lambda: to_ctranslate2(plain, list("abcdefghi"), tmp_path / "ctranslate2"),
        lambda: to_safetensors(model, tokenizer, tmp_path / "safetensors"),
    )
    for export_to in exports:
        export_to()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").touch()
    modes = [[path.stat().st_mode for path in tmp_path.glob(each)] for each in ("*", "*/*")]
    assert [len({*each}) for each in modes] == [1, 1]
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    torch.nn.init.ones_(plain.output.weight)
    monkeypatch.setattr("wawa_transformer.run.export.save_model", full)
    monkeypatch.setattr("wawa_transformer.run.export.check_export", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))  # may be on another disk
    for export_to in exports:
        with pytest.raises(UserError, match="cannot be written .No space left.*make room"):
            export_to()
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*")} == before


LIBRARIES = "hydra omegaconf datasets tokenizers yaml pandas filelock tensorboard sacrebleu"
READ = """
import torch
from wawa_transformer.model.weights import read_model
source, found = torch.arange(4, 12).view(2, 4), []
for path in {paths!r}:
    model = read_model(path)
    found.append((model(source, source), model.trained_sizes, model.training))
torch.save(found, {out!r})
"""


def test_weights_are_read_where_hydra_and_datasets_are_missing(
    exported: list[tuple[Run, Path]], tmp_path: Path
) -> None:
    """Of a run's folder, a checkpoint, kept weights and an export: the logits of ``load``."""
    paths = {
        f"{LIBRARIES} numpy safetensors": [
            (run, path)
            for run, _ in exported
            for path in (run.directory, run.checkpoint("last"), *run.kept())
        ],
        LIBRARIES: exported,  # which need safetensors, and it needs numpy
    }
    for absent, these in paths.items():
        names = [str(path) for _, path in these]
        code = (WITHOUT + READ).format(absent=absent, paths=names, out=str(tmp_path / "found"))
        (tmp_path / "read.py").write_text(code)
        done = run_script(str(tmp_path / "read.py"))
        assert done.returncode == 0, done.stderr
        for (run, path), found in zip(these, torch.load(tmp_path / "found"), strict=True):
            (logits, sizes, training), model = found, load_model(run).model
            assert torch.equal(logits, model(SOURCE, SOURCE)) and not training
            assert path in run.kept() or sizes == model.trained_sizes


class Louder(Transformer):
    """A fork's model, with the names of the plain one."""

    def decode(self, *given: Any, **named: Any) -> Tensor:
        return 2 * super().decode(*given, **named)


def test_a_model_of_ones_own_class_is_read_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a checkpoint and from an export; where its module is missing, it is asked for."""
    monkeypatch.setattr("wawa_transformer.run.config.Transformer", Louder)
    run = trained(tmp_path, *TINY)
    model, tokenizer, _ = load_model(run)
    to_safetensors(model, tokenizer, tmp_path / "exported")
    for path in (run.directory, tmp_path / "exported"):
        assert torch.equal(read_model(path)(SOURCE, SOURCE), model(SOURCE, SOURCE))
    monkeypatch.delitem(sys.modules, __name__)
    for path in (run.directory, tmp_path / "exported"):
        with pytest.raises(UserError, match=f"class {__name__}.Louder, which is not here; import"):
            read_model(path)


def test_a_place_without_a_model_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """An empty folder, a missing file, and a checkpoint that is older than the key."""
    for path in (tmp_path, tmp_path / "none.pt"):
        with pytest.raises(UserError, match="holds no model; name a run's folder"):
            read_model(path)
    torch.save({"model": {}}, tmp_path / "old.pt")
    with pytest.raises(UserError, match="does not hold the shape of its model"):
        read_model(tmp_path / "old.pt")
