"""HTML and Markdown pages from templates."""

from pathlib import Path
from typing import Any

import jinja2

from wawa_transformer.lab.language import encoding_name, say


def markdown_text(value: Any) -> Any:
    """Escape ``<``, so that Markdown does not take the text for HTML."""
    return value.replace("<", "&lt;") if isinstance(value, str) else value


def render(name: str, templates: Path, **context: Any) -> str:
    """Fill the template ``name``, in which ``say`` and ``named`` are available."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        # Markdown allows HTML, and a sentence of a corpus may contain "<script>".
        finalize=markdown_text if name.endswith(".md.jinja") else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(say=say, named=encoding_name)
    return environment.get_template(name).render(context)


def write_page(path: Path, templates: Path, **context: Any) -> None:
    """Fill a page's own template, such as ``report.html.jinja`` for ``report.html``."""
    path.write_text(render(f"{path.name}.jinja", templates, **context), encoding="utf-8")
