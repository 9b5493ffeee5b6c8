"""The command line: Hydra parses it, and mistakes get a one-sentence answer.

Modules that need torch are imported inside functions, so that ``--help`` and mistakes are fast.
"""

import atexit
import contextlib
import dataclasses
import functools
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from hydra.types import RunMode
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.common.schema import (
    UserError,
    check,
    disk_error,
    first_line,
    names_of,
    nearest,
    printable,
    schema_of,
)
from wawa_transformer.run import signals
from wawa_transformer.run.schema import (
    Config,
    EvaluateConfig,
    ExportConfig,
    RuleConfig,
    ServeConfig,
    TranslateConfig,
)

# The schema of each script's file in configs/, and the function that checks its values.
SCHEMAS: dict[str, type] = {}
CHECKS: dict[str, Callable[[DictConfig], None]] = {}
# The schemas of scripts that use a trained run, which brings its own configuration.
TRAINED: dict[str, type] = {
    "evaluate": EvaluateConfig, "translate": TranslateConfig, "serve": ServeConfig,
    "export": ExportConfig,
}  # fmt: skip


def register(
    config_name: str, schema: type, checks: Callable[[DictConfig], None] | None = None
) -> None:
    """Register the schema of ``configs/CONFIG_NAME.yaml``.

    ``checks`` raises :class:`UserError` for a wrong value; by default it reads the schema's limits.
    """
    SCHEMAS[config_name] = schema
    CHECKS[config_name] = checks or functools.partial(check, schema)
    node = OmegaConf.structured(schema)
    for each in dataclasses.fields(schema):
        if each.default is MISSING:  # its keys depend on the class that its kind names
            node[each.name] = {}
            OmegaConf.set_struct(node[each.name], False)
    ConfigStore.instance().store(name=f"{config_name}_schema", node=node)


def check_use(schema: type, config: DictConfig) -> None:
    """Check the configuration of a script that uses a trained run."""
    from wawa_transformer.decode.strategies import build_strategy
    from wawa_transformer.run.config import check_device, check_values

    check_values(config)
    check(schema, config)
    if not config.run:
        raise UserError("run is not given; name a run's directory: run=results/….")
    if "trainer" in config:
        check_device(config.trainer.device)
    if "decode" in config:
        build_strategy(config)


def validate(config: DictConfig) -> None:
    """Check a run's configuration before anything is built or written."""
    from wawa_transformer.data.text import build_task
    from wawa_transformer.run.config import check_model

    check_model(config)
    if (found := build_task(config).fingerprint()) is not None:
        with open_dict(config.task):
            config.task.text_digest = found


register("config", Config, validate)
for name, schema in TRAINED.items():
    register(name, schema, functools.partial(check_use, schema))


def words(config_name: str) -> str:
    """List the settings with fixed choices, for ``--help``."""
    return "\n".join(
        f"{key}: {', '.join(each.metadata['choices'])}"
        for key, each in fields(SCHEMAS[config_name])
        if "choices" in each.metadata
    )


def fields(schema: type, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yield every field of a schema, nested ones included, with its key."""
    for each in dataclasses.fields(schema):
        inner = each.default_factory
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from fields(inner, f"{prefix}{each.name}.")
        else:
            yield prefix + each.name, each


OmegaConf.register_new_resolver("words", words, replace=True)


def script(
    config_name: str = "config",
    several: bool = False,
    checks: Callable[[DictConfig], None] | None = None,
) -> Callable[[Callable[[DictConfig], None]], Callable[[], None]]:
    """Decorate a script's ``main(config)``: Hydra parses, mistakes become one sentence.

    A :class:`UserError`, a faulty command line and a full disk end with exit status 1 and no
    traceback, and a signal ends with ``signals.STATUS``. Any other exception is a bug and keeps its
    traceback. Only scripts with ``several`` accept ``-m`` and ``torchrun``. ``checks`` replace the
    registered ones.
    """

    def decorate(task: Callable[[DictConfig], None]) -> Callable[[], None]:
        @functools.wraps(task)
        def checked(config: DictConfig) -> None:
            with exit_on_error(
                config_name, parsed=True
            ):  # inside, before Hydra prints an exception
                from wawa_transformer.run import distributed

                (checks or CHECKS[config_name])(config)
                if distributed.is_distributed() and not (several and is_single_run()):
                    raise UserError(
                        "torchrun starts several processes for one run of scripts/train.py; give "
                        "this command without it."
                    )
                task(config)

        def main() -> None:
            os.environ["HYDRA_FULL_ERROR"] = "1"  # raise exceptions instead of printing them
            # Skips Python's last garbage collection, which takes 0.8 s of every command.
            atexit.register(gc.freeze)
            for name in ("stdout", "stderr"):
                if getattr(sys, name) is None:  # closed by the caller, as by >&-
                    setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            run = hydra.main(
                config_path=str(CONFIG_DIR), config_name=config_name, version_base="1.3"
            )
            with exit_on_error(config_name, parsed=False):
                check_groups(sys.argv[1:])
                if "--hydra-help" in sys.argv and len(sys.argv) > 2:
                    raise UserError("--hydra-help takes no other argument; give it alone.")
                if not several and {"-m", "--multirun"} & set(sys.argv[1:]):
                    raise UserError(
                        "-m makes many runs of scripts/train.py; give this command once for each."
                    )
                run(checked)()

        return main

    return decorate


def is_single_run() -> bool:
    """True if the command line asks for one run, not a sweep."""
    return HydraConfig.get().mode == RunMode.RUN


def name_study(config: DictConfig) -> None:
    """Choose the study's folder: ``default``, ``single`` or ``sweep_KEY``.

    Runs outside the default study go to ``single``. A study on the command line, or one of its
    keys, takes precedence.
    """
    from wawa_transformer.run.run_dir import identity

    choices: Any = HydraConfig.get().runtime.choices
    given = HydraConfig.get().overrides.task
    if any(override.lstrip("+~").startswith("study") for override in given):
        return
    study = config.study
    if swept := swept_keys():
        study.name = "sweep_" + "+".join(swept)
    elif choices.task not in study.task or choices.pe not in study.pe:
        study.name = "single"
    else:
        default = hydra.compose("config", [f"task={choices.task}", f"pe={choices.pe}"])
        default.seed = config.seed
        if config.seed not in study.seeds or identity(default) != identity(config):
            study.name = "single"


def swept_keys() -> list[str]:
    """List the keys with several values in a sweep."""
    if is_single_run():
        return []
    arguments = [each for each in sys.argv[1:] if "=" in each and not each.startswith("-")]
    overrides = OverridesParser.create().parse_overrides(arguments)
    return [each.key_or_group for each in overrides if each.is_sweep_override()]


BUG = (
    "This is a mistake in wawa_transformer, not in the command; please report it with all of this."
)


@contextlib.contextmanager
def exit_on_error(config_name: str, parsed: bool) -> Iterator[None]:
    """Exit with one sentence, unless the error is a bug."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as error:
        cause: BaseException | None = error
        while cause:
            if isinstance(cause, KeyboardInterrupt):  # OmegaConf may wrap it
                print(f"{str(cause) or 'interrupted'}; the same command continues", file=sys.stderr)
                sys.exit(signals.STATUS)
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, UserError):
            sys.exit(f"error: {error}")
        of_hydra = isinstance(error, (HydraException, OmegaConfBaseException))
        if isinstance(error, OSError) and not of_hydra:  # some of Hydra's errors are OSErrors
            sys.exit(f"error: {printable(disk_error(error))}")
        if parsed:
            error.add_note(BUG)  # which still marks the error after it has passed through Hydra
        if BUG in getattr(error, "__notes__", ()):
            raise
        sys.exit(f"error: {explain(error, config_name)}")


def check_groups(arguments: list[str]) -> None:
    """Refuse overrides that choose nothing, such as ``model=null`` and ``~model``."""
    overrides = [each for each in arguments if "=" in each or each.startswith("~")]
    overrides = [each for each in overrides if not each.startswith("-")]
    for override in OverridesParser.create().parse_overrides(overrides):
        if override.is_delete():
            raise UserError(f"{override.input_line}: no key can be taken away; leave it out.")
        group = CONFIG_DIR / override.key_or_group
        choice = override.value()
        named = isinstance(choice, str) and choice.isprintable() and choice
        if group.is_dir() and group != CONFIG_DIR and not (named or override.is_sweep_override()):
            choices = ", ".join(sorted(path.stem for path in group.glob("*.yaml")))
            raise UserError(f"{override.input_line} chooses nothing; choose one of {choices}.")


# Other names of encodings, whose spelling is too different for a suggestion.
ALSO_KNOWN_AS = {
    "rope": "rotary",
    "nope": "none",
    "sin": "sinusoidal",
    "sincos": "sinusoidal",
    "absolute": "learned",
    "relative": "shaw",
    "t5_bias": "t5",
    "xl": "transformer_xl",
    "shape": "sinusoidal_shifted",
}


def explain(error: BaseException, config_name: str = "config") -> str:
    """Explain an exception of Hydra or OmegaConf in one sentence."""
    return printable(reason(error, config_name))


def reason(error: BaseException, config_name: str) -> str:
    """Explain an exception; the sentence may quote unprintable characters."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        choices = sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
        choices = choices or sorted(error.options or ())  # of a group of Hydra's own
        known = ALSO_KNOWN_AS.get(name.lower())
        meant = f" (did you mean {known}?)" if known in choices else nearest(name, choices)
        group = group or "--config-name"
        return f"{group}={name} does not exist{meant}; choose one of {', '.join(choices)}."
    cause = error.__cause__ or error.__context__ or error
    key = getattr(cause, "full_key", None)
    unknown_group = "No match in the defaults list" in str(error)
    if unknown_group or isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        typed_key = str(error).split("'")[1]
        # A key inside a mapping, or in a file, which the message names by its path.
        inner = str(key).startswith(f"{typed_key}.") or "/" in typed_key
        key = str(key) if inner else typed_key
        parent, _, tail = key.rpartition(".")
        keys = known_keys(config_name)
        typed = parent in keys or any(each.endswith(f".{key}") for each in keys)
        if config_name in TRAINED or not typed:
            keys = sorted({*keys, *class_keys(config_name)})  # which imports torch
        beside = [each.rpartition(".")[2] for each in keys if each.rpartition(".")[0] == parent]
        inside = [each for each in keys if each.endswith(f".{key}")]
        if inside:
            meant = f" (did you mean {' or '.join(inside)}?)"
        elif beside:
            meant = nearest(tail, beside, parent and f"{parent}.")
        elif parent in keys:
            meant = f"; to add it to {parent}, write +{key}=…"
        else:
            meant = nearest(key, [each for each in keys if "." in each])
        where = " here, where a run is used as it was trained" if config_name in TRAINED else ""
        return f"the key {key} does not exist{where}{meant or '; --help lists every key'}."
    if isinstance(error, OverrideParseException):
        # The parser's message names its classes, not the mistake.
        shown = getattr(error, "override", None) or first_line(error)
        return (
            f"{shown} cannot be read; write key=value, and a value with special characters or "
            "letters beyond ASCII in two kinds of quotes, 'key=\"värde\"'."
        )
    if "--multirun" in str(error):
        several = str(error).split("'")[1]
        return (
            f"{several} is several values; scripts/train.py -m {several} trains one run for each, "
            "and scripts/compare.py takes a list, 'study.pe=[none,learned]'."
        )
    if isinstance(error, ConfigCompositionException) and isinstance(cause, OmegaConfBaseException):
        given = re.search(r"merging override [+~]*([\w.]+)", str(error))
        if given and not str(key).startswith(given[1]):  # a list item's key is only its index
            key = given[1]
        return f"{key}: {first_line(cause)}."
    if found := re.search(r"full_key: (\S+)", str(error)):  # a number too large for a float
        return f"{found[1]}: {first_line(error)}."
    return f"{first_line(error)}."


def known_keys(config_name: str) -> list[str]:
    """List every group, and every key of the schema."""
    groups = {path.parent.name for path in CONFIG_DIR.glob("*/*.yaml")}
    found = {group for group in groups if (group == "decode") == (config_name in TRAINED)}
    if config_name == "config":
        found |= {f"study.rule.{name}" for name in names_of(RuleConfig)}
    return sorted(found | {key for key, _ in fields(SCHEMAS[config_name])})


def class_keys(config_name: str) -> list[str]:
    """List every key of all encodings and tasks, or of all decoding strategies."""
    from wawa_transformer.data.text import TASKS
    from wawa_transformer.decode.strategies import STRATEGIES
    from wawa_transformer.positional.base import ENCODINGS
    from wawa_transformer.run.config import CONTEXT_ARGUMENTS, PE_KEYS

    if config_name in TRAINED:
        kinds: dict[str, dict[str, Any]] = {"decode": STRATEGIES}
    else:
        kinds = {"pe": ENCODINGS, "task": TASKS}
    found = [] if config_name in TRAINED else [f"pe.{name}" for name in ("kind", "name", *PE_KEYS)]
    for group, classes in kinds.items():
        for cls in classes.values():
            found += [f"{group}.{name}" for name in names_of(schema_of(cls, CONTEXT_ARGUMENTS))]
    return found
