"""Pages of HTML and Markdown, from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2


def write_page(path: Path, templates: Path, **context: Any) -> None:
    """Fill the template that is named as the page is, ``report.html.jinja`` for ``report.html``."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(f"{path.name}.jinja").render(context)
    path.write_text(page, encoding="utf-8")
