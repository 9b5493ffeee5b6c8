"""Pages of HTML and Markdown, from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2


def markdown_text(value: Any) -> Any:
    """Text that stays text between the tags of Markdown's HTML."""
    return value.replace("<", "&lt;") if isinstance(value, str) else value


def write_page(path: Path, templates: Path, **context: Any) -> None:
    """Fill the template that is named as the page is, ``report.html.jinja`` for ``report.html``."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        # Markdown may hold HTML, and a sentence of a corpus may be "<script>".
        finalize=markdown_text if path.suffix == ".md" else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(f"{path.name}.jinja").render(context)
    path.write_text(page, encoding="utf-8")
