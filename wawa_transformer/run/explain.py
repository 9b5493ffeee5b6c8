"""Hydra's mistakes in one sentence."""

import contextlib
import re
from collections.abc import Iterator, Mapping

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.common.schema import UserError, first_line, nearest
from wawa_transformer.run.config_files import yaml_mistake
from wawa_transformer.run.failure import is_marked
from wawa_transformer.run.overrides import unknown_key, unreadable


@contextlib.contextmanager
def explained(config_name: str, places: Mapping[str, str]) -> Iterator[None]:
    """Turn an exception of Hydra's composition into a :class:`UserError`."""
    try:
        yield
    except Exception as error:
        of_hydra = isinstance(error, (HydraException, OmegaConfBaseException))
        of_system = isinstance(error, (UserError, MemoryError, OSError))
        if (of_system and not of_hydra) or is_marked(error):  # of the script itself
            raise
        raise UserError(explain(error, config_name, places)) from None


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


def explain(error: BaseException, config_name: str, places: Mapping[str, str]) -> str:
    """Explain why Hydra cannot compose a configuration in one sentence.

    ``places`` has the file and line of each key in a file.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        known = sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
        known = sorted({*known, *(error.options or ())})  # of a group of Hydra's own, of import=
        also = ALSO_KNOWN_AS.get(name.lower())
        meant = f" (did you mean {also}?)" if also in known else nearest(name, known)
        group = group or "--config-name"
        return f"{group}={name} does not exist{meant}; choose one of {', '.join(known)}."
    if isinstance(error, OverrideParseException):
        return unreadable(error.override)
    if isinstance(error, yaml.MarkedYAMLError):
        return yaml_mistake(error)
    cause = error.__cause__ or error.__context__ or error
    # An OverflowError of OmegaConf's has the key in its message alone.
    [*_, key] = re.findall(r"full_key: (\S+)", str(cause)) or [""]
    if isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        return unknown_key(key, config_name)
    said = first_line(error)
    given = said.removeprefix("Error merging override ")
    if given != said:
        return f"{given.split('=')[0].lstrip('+')}: {first_line(cause)}."
    place = places.get(key.split("[")[0])
    return f"{place + ': ' if place else ''}{key + ': ' if key else ''}{first_line(cause)}."
