"""Pages of HTML and Markdown, from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from wawa_transformer.lab.language import encoding_name, say


def markdown_text(value: Any) -> Any:
    """Text that stays text between the tags of Markdown's HTML."""
    return value.replace("<", "&lt;") if isinstance(value, str) else value


def render(name: str, templates: Path, **context: Any) -> str:
    """Fill the template ``name``, which may :func:`~wawa_transformer.lab.language.say` things."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        # Markdown may hold HTML, and a sentence of a corpus may be "<script>".
        finalize=markdown_text if name.endswith(".md.jinja") else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(say=say, named=encoding_name)
    return environment.get_template(name).render(context)


def write_page(path: Path, templates: Path, **context: Any) -> None:
    """Fill the template that is named as the page is, ``report.html.jinja`` for ``report.html``."""
    path.write_text(render(f"{path.name}.jinja", templates, **context), encoding="utf-8")
