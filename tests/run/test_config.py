"""A user's mistake is answered by one sentence that names the value, the limit and the key."""

import re
from dataclasses import field, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from support import answer, checked, configure, run_script

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import check, typed
from wawa_transformer.data.tasks import build_task, task_settings
from wawa_transformer.data.words import word_tokenizer
from wawa_transformer.decode.strategies import build_strategy
from wawa_transformer.positional.base import ENCODINGS, Encoding, EncodingContext
from wawa_transformer.run import config as run_config
from wawa_transformer.run.compose import check_use, compose, name_study, validate
from wawa_transformer.run.config import build_model, check_memory, transformer_config
from wawa_transformer.run.device import total_memory
from wawa_transformer.run.overrides import CHECKS, SCHEMAS, class_keys, known_keys
from wawa_transformer.run.schema import StudyConfig, TranslateConfig

WORDS = word_tokenizer([*"0123456789", "+"])


@pytest.mark.parametrize(
    ("script", "mistake"),
    [
        ("config", "modle.d_model=32"),
        ("config", "modle=small"),
        ("config", "model.d_modle=32"),
        ("config", "num_layers=2"),
        ("config", "hub=null"),  # a key that no file has
        ("config", "task.max_lenght=5"),
        ("config", "task.cutoff=5"),
        ("config", "pe.origni=end"),  # of no encoding, but of all
        ("config", "pe.spacing=linear"),  # of a class that no file is called like
        ("config", "study.rule.clam=nothing"),
        ("config", "study.rule.measures.nll=0.1"),
        ("translate", "decode.temprature=2"),
        ("translate", "decode.size=2"),
        ("translate", "runn=results"),
    ],
)
def test_the_advice_of_an_error_about_a_key_leads_to_success(script: str, mistake: str) -> None:
    """What was typed is replaced by what is meant, or a choice is added, until it is accepted."""
    value = mistake.partition("=")[2]
    given, advised = [mistake], 0
    run = ["run=there"][: script != "config"]
    while said := answer(*given, *run, script=script):
        advised += 1
        assert advised < 3, said
        if near := re.search(r"did you mean (\S+?)[ ?]", said):
            given[-1] = f"{near[1]}={value}"
        elif choice := re.search(r"it is a setting of (\S+?)[ .]", said):
            given.insert(0, choice[1])
        elif "write +" in said:
            given[-1] = f"+{mistake}"
    assert advised


def test_every_key_that_a_page_names_is_known_and_needs_no_plus() -> None:
    """That each setting of each class is accepted, test_fuzz draws."""
    known = {key for script in SCHEMAS for key in (*known_keys(script), *class_keys(script))}
    groups = {path.parent.name for path in CONFIG_DIR.glob("*/*.yaml")}
    root = CONFIG_DIR.parent
    for page in [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("data/*.md")]:
        text = page.read_text(encoding="utf-8")
        for plus, group, key in re.findall(r"(?<![\w./])(\+*)(\w+)\.(\w+)=", text):
            if group in groups:
                own = f" {key}: " in text  # of a class that the page itself adds
                assert not plus and (own or f"{group}.{key}" in known), (page.name, key)


CHOICES = [
    str(path.relative_to(CONFIG_DIR).with_suffix("")) for path in CONFIG_DIR.glob("[dm]*/*.yaml")
] + [f"trainer/{path.stem}" for path in CONFIG_DIR.glob("trainer/*.yaml")]


@pytest.mark.parametrize("choice", sorted([*CHOICES, "task/multi30k"]))
def test_every_configuration_file_composes_and_builds(choice: str) -> None:
    """Every choice of every group gives a valid configuration, a task and a model.

    Those of ``pe`` are in core/test_edits, studies in lab/test_entries, and the other tasks in
    data/test_by_heart.
    """
    group, _, name = choice.partition("/")
    if group == "decode":  # is asked of a trained run
        config = configure(f"{group}={name}", "run=RUN", script="translate")
        check_use(TranslateConfig, config)
        assert build_strategy(config).name == name
        return
    config = configure(f"{group}={name}")
    validate(config)
    if group == "task":
        build_task(config)
    config.model.update(num_layers=1, d_model=config.model.num_heads, d_ff=1)  # as quickly
    build_model(config, WORDS)


def test_every_encoding_has_a_configuration_file() -> None:
    """A class without a file of its kind could not be chosen on the command line."""
    between = {"rotary_query", "rotary_key", "rotary_mix"}  # what pe.cross alone names
    for kind in {*ENCODINGS} - between:
        values = yaml.safe_load((CONFIG_DIR / "pe" / f"{kind}.yaml").read_text("utf-8"))
        assert values["kind"] == values["name"] == kind


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # What used to be a traceback or was ignored.
        ("output_dir=Übung", "output_dir=Übung cannot be read; write key=value, and a value with"),
        ("study.pe=[none,shaw pe.cross=same]", "quotes of its own, 'study.pe=[none,\"shaw pe.cr"),
        ("hydra/launcher=nope", "hydra/launcher=nope does not exist; choose one of basic"),
        ("--hydra-help", "--hydra-help takes no other argument; give it alone."),
        ("pe=none,alibi", "scripts/train.py -m pe=none,alibi trains one run for each"),
        ("--pe=learned", "--pe=learned is no option here; write pe=learned."),
        ("pe＝learned", "pe＝learned is no key=value; put a plain = between key and value"),
        # The schema's default would take the place of a key, and train another run.
        ("~seed", "error: ~seed: no key can be taken away; leave it out."),
        ("study.name=../up", "error: study.name"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    given: str, expected: str, tmp_path: Path
) -> None:
    """It quotes the value and the key; the status is 1."""
    done = run_script("train.py", f"output_dir={tmp_path}/o", given)
    assert done.returncode == 1 and expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("study.expected_minutes=nan", "study.expected_minutes=nan must be greater than 0"),
        (
            "model=null",
            "model=null chooses nothing; choose one of base, iwslt, multi30k, scan, small, tiny",
        ),
        ("seed=" + "9" * 5000, "Exceeds the limit (4300 digits)"),
        ("study.pe=" + "[" * 999 + "]" * 999, "[[ cannot be read; write key=value"),
        ("study.seeds=${trainer.steps}", "study.seeds=500 must be a list of single values"),
        ("study.tune=${trainer.steps}", "study.tune=500 takes keys with values, {a: b}"),
        ("study.pe=${study.name}", "study.pe=default must be a list of single values"),
        ("pe=rope", "pe=rope does not exist (did you mean rotary?)"),
        ("pe=ALIBI", "pe=ALIBI does not exist (did you mean alibi?)"),
        ("pe=yours", f", or write {CONFIG_DIR / 'pe' / 'yours.yaml'}."),
        ("pe=[none,alibi]", "scripts/train.py -m pe=none,alibi trains one run for each"),
        ("seed=[0,1]", "seed=[0,1] is several values; scripts/train.py -m seed=0,1 trains"),
        ("report=a,b", "has two kinds of quotes, 'report=\"a,b\"'; scripts/train.py -m"),
        ("task=text task.source=a,b.tsv", "has two kinds of quotes, 'task.source=\"a,b.tsv\"'"),
        ("PE=alibi", "the key PE does not exist (did you mean pe?)"),
        ("init_digest=01234567", "init_digest=01234567 has no effect without trainer.init_from."),
        ("decode=beam", "the key decode is for a trained run: give it to evaluate.py or trans"),
        ("decode.max_length=9", "the key decode.max_length is for a trained run: give it to ev"),
        # As a variable of the shell that is not set: these meant the default, silently.
        ("run_dir=", "run_dir= is empty; give a value, or leave run_dir out"),
        ("task=text task.data_dir=''", "task.data_dir='' is empty"),
        ("pe.reset_token=", "pe.reset_token= is empty"),
        ("+task.of_ones_own=", "task.of_ones_own= is empty; give a value, or leave task.of"),
        ("pe=" + "long" * 300, "long does not exist; choose one of abacus, alibi"),
        ("trainer.init_from=" + "long" * 300, "cannot be read now (File name too long)"),
        ("seed=abc", "seed: Value 'abc'"),
        ("+foo=1", "foo does not exist"),
        (
            "+study.rule.measures={nll:1,beyond:0.1,nll:2}",
            "beyond:0.1,nll:2}: nll is there twice; leave one out.",
        ),
        ("study.rule={supported:[{is:better,is:worse}]}", ": is is there twice; leave one"),
        ("study.rule={claim:'a{a:1,a:2}',tasks:{seed:1,seed:2}}", ": seed is there twice; leave"),
        ("trainer.learning_rate=1", "learning_rate does not exist; --help lists every key"),
        # Rules between fields.
        ("model.num_heads=5", "model.d_model=64 is not divisible by model.num_heads=5"),
        # The encoder, which looks both ways, would take it: half of its buckets serve either side.
        ("pe=t5 pe.max_distance=6", "pe.max_distance=6 greater than 8"),
        ("model.norm=middle", "model.norm=middle does not exist; choose one of pre, post"),
        ("task=text pe=abacus", "pe.origin=abacus counts the digits of numbers, and task=text is"),
        # Names are no paths: these would lead out of output_dir.
        ("study.name=null", "study.name"),
        ("task=addition task.test_max_length=4300", "at least 1 and at most 4,299"),
        ("task.max_length=30", "task.test_max_length=20 must be at least 30."),
        ("task.train_size=10000000 task.max_length=20", "make up to 200,050,000 symbols, and at"),
        ("task.name=..", "task.name"),
        ("pe.name=a/b", "pe.name"),
        # A report makes these anew, and would take a task's runs away.
        ("task.name=means", "task.name=means is the name of a file or folder that a study writes"),
        ("task.name=results.csv", "is the name of a file or folder"),
        ("pe=shaw pe.name=none", "pe.name=none is how a report knows the model without an enc"),
    ],
)
def test_a_mistake_in_a_configuration_is_one_sentence(given: str, expected: str) -> None:
    """Every script answers with it, as the test above shows."""
    said = answer(*given.split(" "))
    assert expected in said and "\n" not in said


def test_a_script_that_uses_a_run_asks_for_one() -> None:
    assert answer(script="translate").startswith("run is not given; name a run's directory")


def test_a_text_is_kept_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra reads numbers and truths; ~ is what a shell replaces where there are no quotes."""
    monkeypatch.setenv("HOME", "/home/me")
    given = ["output_dir=2026_11_26", "++run_dir=1.50", "study.name=1e3", "study.question=true"]
    config = compose([*given, "report='~/a b'", "trainer.init_from=null", 'task.x="~/it\'s"'])
    text = compose(["task=text", "task.source=2026_11", "task.vocab_size=1_000", "pe.name=1.50"])
    assert (text.task.source, text.pe.name) == ("2026_11", "1.50")
    assert task_settings(text)["vocab_size"] == 1000
    assert (config.output_dir, config.run_dir) == ("2026_11_26", "1.50")
    assert (config.study.name, config.study.question) == ("1e3", "true")
    assert (config.report, config.trainer.init_from) == ("/home/me/a b", None)
    assert config.task.x == "/home/me/it's"
    monkeypatch.setenv("HOME", "/home/o'me\\")
    assert compose(["task.x='~/b'"]).task.x == "/home/o'me\\/b"
    with pytest.raises(UserError, match="decode.bleu_tokenize= is empty"):
        compose(["decode.bleu_tokenize="], "evaluate")


def test_a_run_that_can_be_loaded_is_loaded_where_it_could_not_train(monkeypatch: Any) -> None:
    """A quarter of the memory suffices."""
    config = checked("model.d_model=1024", "model.d_ff=4096", "model.num_heads=8")
    shape = transformer_config(config)
    monkeypatch.setattr(run_config, "total_memory", lambda device: 2 * 10**8)
    check_memory(config, shape, "cpu", bytes_each=4)
    with pytest.raises(UserError, match="GB to train; there are 0"):
        check_memory(config, shape, "cpu")


def test_a_model_larger_than_the_machine_is_refused_before_it_is_built() -> None:
    """With the arithmetic: parameters, and gigabytes needed and there."""
    shape = ["model.d_model=65536", "model.d_ff=65536", "model.num_layers=200"]
    with pytest.raises(UserError, match=r"make 13,743,895,347,200 parameters, .* GB to"):
        validate(configure(*shape))
    text = [*shape[:1], "task=text", "task.vocab_size=1000000", "model.d_ff=1"]
    with pytest.raises(UserError, match=r"^task.vocab_size=1000000, .* make 248,147,869,696 "):
        validate(configure(*text))


def test_a_card_is_judged_by_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the largest there is; a run on the processor by the machine's."""
    card = SimpleNamespace(total_memory=1000)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: card)
    assert total_memory("auto") == total_memory("cuda:1") == 1000 < total_memory("cpu")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (["task=reverse", "pe=learned", "seed=3"], "default"),
        (["pe=none", "trainer.steps=9"], "single"),
        (["task=text"], "single"),
        (["pe=larope"], "single"),
        (["seed=9"], "single"),
        (["task=text", "study.name=default"], "default"),
        (["study=length", "pe=rotary", "task=copy"], "length"),
    ],
)
def test_a_run_of_no_study_lies_beside_the_default_one(given: list[str], place: str) -> None:
    """Unless the command line says where: then there."""
    config = configure(*given)
    name_study(config, given)
    assert config.study.name == place


@pytest.mark.parametrize(
    "given", ["study.seeds=[1,2]", "+study.rule=null", "workers=2", "report=x"]
)
def test_a_key_of_studies_is_no_key_of_a_run(given: str) -> None:
    """It would train one run, in the folder of the default study."""
    with pytest.raises(UserError, match="has no effect on a single run; leave it out, or give it"):
        name_study(configure("pe=none"), ["pe=none", given])


def test_a_wrong_class_refuses_no_run_of_another_one() -> None:
    """Nor hides the keys of others, which are named by their kind where they have no file."""

    class Wrong:
        def __init__(self, context, slope=1.0) -> None: ...

    class Mine:
        def __init__(self, context: Any, fade: float = 1.0) -> None: ...

    known = {"wrong": Wrong, "mine": Mine, "alibi": ENCODINGS["alibi"]}
    assert typed(Mine, {"fade": 2}, "pe", known, ("context",)) == {"fade": 2.0}
    for kind, key, said in (
        ("mine", "fad", r"pe.fad does not exist \(did you mean pe.fade\?\)"),
        ("alibi", "fade", "pe.fade does not exist here; it is a setting of pe=mine."),
        ("alibi", "zz", "pe.zz does not exist; --help lists"),
        ("wrong", "slope", "give slope=1.0 a name and a type"),
    ):
        with pytest.raises(UserError, match=said):
            typed(known[kind], {key: 2}, "pe", known, ("context",))


def test_a_number_of_a_setting_with_several_types_is_a_number() -> None:
    """Also one that Hydra would write in another way, as 1e-3 and 1_000; text stays text."""

    class Mine:
        def __init__(self, b: Any = 0, f: float | int = 0, t: float | str = 0.0) -> None: ...

    given = ["b=1e-3", "f=1_000", "t=1.50"]
    config = compose([f"++pe.{each}" for each in given])
    found = typed(Mine, {key: config.pe[key] for key in "bft"}, "pe")
    assert repr(found) == "{'b': 0.001, 'f': 1000, 't': 1.5}"
    assert typed(Mine, {"t": "one", "b": "a"}, "pe") == {"b": "a", "f": 0, "t": "one"}


@pytest.mark.parametrize("kind", [Literal["a", "b"], set[int], torch.dtype])
def test_a_setting_of_a_type_that_no_key_has_is_told_which_there_are(kind: Any) -> None:
    Mine = make_dataclass("Mine", [("how", kind, None)])
    with pytest.raises(UserError, match="pe.how: .*; Mine may have .* int, float, .* of these"):
        typed(Mine, {}, "pe")


def test_an_encoding_whose_context_has_another_name_is_told_which(registry: None) -> None:
    """Else the context would be a setting that nobody has given."""

    class Named(Encoding, kind="named"):
        def __init__(self, ctx: EncodingContext, gain: float = 1.0) -> None:
            super().__init__(ctx)

    config = configure("pe=none")
    config.pe = {"kind": "named", "name": "named"}
    with pytest.raises(UserError, match="Named.__init__ calls its first argument ctx"):
        CHECKS["config"](config)


def test_a_default_that_two_objects_would_share_is_refused() -> None:
    shared = make_dataclass("Sub", [("size", int, 1)])()

    class Mine:
        def __init__(self, sub: Any = shared) -> None: ...

    with pytest.raises(UserError, match="Mine.__init__: mutable default .*; give a setting a num"):
        typed(Mine, {}, "pe")


def test_a_list_in_a_list_of_single_values_is_refused() -> None:
    """One bracket too many; of a study, and of an encoding."""
    config = configure()
    for key, value in (("pe", [["learned"], "none"]), ("task", [["copy"]]), ("seeds", [[1, 2]])):
        study = OmegaConf.merge(config.study, {key: value})
        with pytest.raises(UserError, match=f"study.{key}=.* must be a list of single values"):
            check(StudyConfig, study, "study.")
    pairs = ("pairs", list[list[str]], field(default_factory=list))
    Mine = make_dataclass("Mine", [("layers", list[int] | None, None), pairs])
    with pytest.raises(UserError, match="pe.layers=.* must be a list of single values"):
        typed(Mine, {"layers": [[0, 1]]}, "pe")
    good = {"layers": [0, 1], "pairs": [["a", "b"]]}
    assert typed(Mine, good, "pe") == good
