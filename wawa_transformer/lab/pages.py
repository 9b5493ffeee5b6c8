"""Words in two languages, and pages from templates."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import jinja2
import yaml
from markupsafe import Markup

from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import statistics
from wawa_transformer.run.config_files import yaml_mistake

LANGUAGES = {"en": "English", "zh": "中文"}
TEMPLATES = Path(__file__).parent / "templates"
WORDS = Path(__file__).with_name("words.yaml")


@dataclass(frozen=True)
class Text:
    """A key of ``words.yaml`` and what fills its places; an unknown key is its own text."""

    key: str
    fill: Mapping[str, Any] = field(default_factory=dict)


@functools.cache
def words() -> dict[str, list[str]]:
    """Load ``words.yaml``: each key with its words in the order of ``LANGUAGES``."""
    try:
        given = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise UserError(yaml_mistake(error, WORDS)) from None
    return {key: [key, said] if isinstance(said, str) else said for key, said in given.items()}


def said(key: str, language: str) -> str:
    """The words of a key in one of ``LANGUAGES``, or in English where they are not translated."""
    return dict(zip(LANGUAGES, words()[key], strict=False)).get(language, words()[key][0])


def levels() -> dict[str, str]:
    """What every sentence may name: the level of intervals and tests."""
    level, p = statistics.CONFIDENCE, statistics.SIGNIFICANT
    fill = {"quantile": f"{(1 + level) / 2:g}", "significant": f"{p:g}"}
    return {"confidence": f"{100 * level:g}%", **fill}


def tr(text: Any, language: str = "en") -> str:
    """Write a text, or a list of texts, in one of ``LANGUAGES``; all else stays as it is."""
    if isinstance(text, list):
        return ", ".join(tr(each, language) for each in text)
    if not isinstance(text, Text):
        return str(text)
    if text.key not in words():
        return text.key  # its braces are its own
    given = said(text.key, language)
    if language == "en":  # "1 run", and not "1 runs"
        one = "|".join(each for each in ("n", "of", "runs") if str(text.fill.get(each)) == "1")
        given = re.sub(rf"(\{{({one})\}} \w+)s\b", r"\1", given) if one else given
    written = given.format(**levels() | {k: tr(v, language) for k, v in text.fill.items()})
    # No space between two Chinese characters.
    return re.sub(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])", "", written)


def own_words(text: str) -> Text | str:
    """A text of a study or a metric, in Chinese too where ``words.yaml`` has it whole."""
    return Text(text) if words().get(text, [""])[0] == text else text


def sentence(words: str) -> str:
    """Begin with a capital letter, as a sentence does that starts with the word of a verdict."""
    return words[:1].upper() + words[1:]


def warning(key: str, fill: Mapping[str, Any]) -> Text:
    """The text of a rule's weakness, which is about encodings ``a`` and ``b`` and a score."""
    words: dict[str, Callable[[str], Text | str]] = {"a": name_of, "b": name_of, "score": own_words}
    return Text(key, {k: words[k](value) if k in words else value for k, value in fill.items()})


def name_of(pe: str) -> Text | str:
    """The name of an encoding on a page."""
    return Text("no_encoding") if pe == "none" else pe


def translated(svg: str, language: str) -> Markup:
    """Write the English texts of a picture in another language."""
    for key, (english, *_) in words().items():
        # A single word is no label: it may be a symbol, an encoding or a task.
        if language != "en" and "{" not in english and " " in english:
            svg = svg.replace(f">{escape(english)}<", f">{escape(said(key, language))}<")
    return Markup(svg)


def markdown_text(value: Any) -> Any:
    """Escape ``<``, so that Markdown does not take a text for HTML."""
    return value.replace("<", "&lt;") if isinstance(value, str) else value


def literal(text: Any) -> str:
    """Escape what Markdown would read as markup in a text of the data."""
    return re.sub(r"[\\`*\[\]&~$]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", tr(text))


def unsplit(text: str) -> str:
    """Keep an interval, a p, and other numbers on one line in a phone's narrow column.

    An interval that is all of a cell may break before ±, so that its column can be narrow.
    """
    text = re.sub(r"(?<=[^|][ \n]|.[，：；（])([(+−]*\d[\d.]*) (?=±)", "\\1\u00a0", text)
    text = re.sub(r"(±|→|<|≤|\bp|\d (?:to|至|到)) (?=[\d<+−≤])", "\\1\u00a0", text)
    text = re.sub(r"\b([A-Za-z]) = (?=[\d−])", "\\1\u00a0=\u00a0", text)
    text = re.sub(r"\b(\d) \+ (?=\1\b)", "\\1\u00a0+\u00a0", text)
    # Without a joiner a line may break after the hyphen: 5.6e-8, or claim 003-06.
    text = re.sub(r"(\b\d[\d.]*e-|\b\d{3}-)(?=\d{1,2}\b)", "\\1\N{WORD JOINER}", text)
    return re.sub(r"(?<=\[)([\d.−]+), (?=[\d.−]+])", "\\1,\u00a0", text)


# Cached: to compile the templates of a page takes longer than to fill them.
@functools.cache
def environment(form: str, templates: Path) -> jinja2.Environment:
    """Make the environment of templates for HTML or Markdown (``md``).

    In a template ``text`` makes a :class:`Text`, and ``named`` names an encoding.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=form == "html",
        # Markdown allows HTML, and a sentence of a corpus may contain "<script>".
        finalize=markdown_text if form == "md" else None,
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"named": name_of, "sentence": sentence, "form": form}
    made.filters |= {"literal": literal, "unsplit": unsplit}
    made.globals["text"] = lambda key, **fill: Text(key, fill)
    return made


def render(template: str, form: str, templates: Path = TEMPLATES, **context: Any) -> str:
    """Fill a template in one of ``LANGUAGES``, in which ``tr`` writes a :class:`Text`."""
    language = context.setdefault("language", "en")
    context["tr"] = lambda text: tr(text, language)
    return environment(form, templates).get_template(template).render(context)


def write_page(path: Path, templates: Path, **context: Any) -> None:
    """Fill a page's own template, such as ``explore.html.jinja`` for ``explore.html``."""
    page = render(f"{path.name}.jinja", "html", templates, **context)
    path.write_text(page, encoding="utf-8")
