"""Write the pages of docs/ that are computed:  python scripts/dev/docs.py

Templates are in scripts/dev/templates; words.jinja has the wording that several pages share.
docs/claims.md also needs docs/claims.yaml. docs/findings.md also needs the question, answer and
certainty that the templates of all findings set. The Chinese pages come from the files that have
zh-CN in their names. A test fails when a page is stale. The script also writes the report.md of
every committed study; report.html, the report of the default study; explore.html; and
playground.html, with the models that the page holds already. docs/images/ has pictures of
scripts/figures.py and of moving_picture.py, and screenshots of pages.
"""

import functools
import os
import re
from pathlib import Path
from typing import Any

import evidence
import formatted
import jinja2
import yaml
from evidence import BENCHMARKS
from formatted import CLAIMS

from wawa_transformer.lab import figures, report
from wawa_transformer.lab.pages import Text, tr, unsplit
from wawa_transformer.lesson.explorer import write_explorer
from wawa_transformer.lesson.playground import models, write_playground

DOCS = BENCHMARKS.parent / "docs"
TEMPLATES = Path(__file__).with_name("templates")
CHINESE = yaml.safe_load((DOCS / "claims.zh-CN.yaml").read_text(encoding="utf-8"))
VERDICTS = ("holds", "restricted", "fails", "open")  # on a claim of docs/claims.yaml
ENDS = {"en": ".md", "zh": ".zh-CN.md"}  # of a page's name, in each language
FENCE = r"^ *```.*?^ *```$"
CODE = re.compile(rf"{FENCE}|`[^`\n]*`", flags=re.M | re.S)


@functools.cache
def environment(language: str) -> jinja2.Environment:
    """Make the templates' environment, with formatted's functions and a language's words."""

    def in_words(key: str) -> str:
        return tr(Text(key), language)

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.globals |= vars(formatted) | {"in_words": in_words}
    words = made.get_template(f"words{ENDS[language].removesuffix('.md')}.jinja").module
    made.globals |= {k: v for k, v in vars(words).items() if not k.startswith("_")}
    return made


def template(name: str, language: str) -> jinja2.Template:
    """Load the template of a page in docs/."""
    return environment(language).get_template(f"{name}{ENDS[language]}.jinja")


def topics(language: str) -> list[dict[str, Any]]:
    """List the topics of claims with their text in one language."""
    texts = []
    for topic in CLAIMS["topics"]:
        said = topic if language == "en" else CHINESE["topics"][topic["topic"]]
        first = 1 if language == "en" else 0  # the Chinese file has no numbers and no verdicts
        rows = [
            (number, *words[first : first + 2], verdict)
            for (number, *_, verdict), words in zip(topic["claims"], said["claims"], strict=True)
        ]
        parts = {
            key: environment(language).from_string(said[key]).render(topic.get("numbers", {}))
            for key in ("corrected", "measured", "changed")
            if key in said
        }
        texts.append(topic | {"title": said["title"], "claims": rows, "parts": parts})
    return texts


def claims_page(language: str) -> str:
    """Write the page of claims and verdicts."""
    verdicts = [verdict for topic in CLAIMS["topics"] for *_, verdict in topic["claims"]]
    return template("claims", language).render(
        topics=topics(language),
        notes=(CLAIMS if language == "en" else CHINESE)["notes"],
        counts={key: verdicts.count(key) for key in VERDICTS},
        count=len(verdicts),
    )


def findings(language: str) -> dict[str, str]:
    """Write the page of each finding, and their summary."""
    written, rows = {}, []
    [other] = ENDS.keys() - {language}
    for name in sorted({path.name.split(".")[0] for path in (TEMPLATES / "findings").iterdir()}):
        body = template(f"findings/{name}", language).make_module()
        parts: dict[str, Any] = vars(body)
        page = f"findings/{name}{ENDS[language]}"
        number = int(name[:2])
        rows.append((number, page, parts["question"], parts["answer"], parts["sure"]))
        written[page] = template("finding", language).render(
            number=number, other=f"{name}{ENDS[other]}", body=str(body).strip(),
            **{key: str(parts[key]) for key in ("question", "answer", "sure")},
        )  # fmt: skip
    summary = template("findings", language).render(rows=rows)
    return written | {f"findings{ENDS[language]}": summary}


def unbroken(page: str) -> str:
    """Join lines that end within Chinese text, where a browser would show a space."""
    mark, word = r"[，。；：、？！（）《》「」“”…—]", r"[\u4e00-\u9fff]"
    goes_on = r"\n *(?!\s|[-*+] |\d+\. |[#|<]|```)"  # a line that begins nothing new
    parts = re.split(rf"({FENCE})", page, flags=re.M | re.S)  # every second one is code
    for n in range(0, len(parts), 2):
        for end in (rf"({mark}[*)]*)", rf"({word}[*)]*)(?=\n *[*[]*(?:{mark}|{word}))"):
            parts[n] = re.sub(rf"{end}{goes_on}", r"\1", parts[n])
    return "".join(parts)


def whole(page: str) -> str:
    """Join a Chinese word that is all of a cell.

    A browser that may break the word gives the column of verdicts the width of one character.
    """
    cell = r"(?<=\| )[\u4e00-\u9fff]{2,5}(?= \|)"
    return re.sub(cell, lambda word: "\N{WORD JOINER}".join(word[0]), page)


def joined(page: str) -> str:
    """Keep each number on one line, except in code."""
    before = iter(CODE.findall(page))
    return CODE.sub(lambda _: next(before), unsplit(page))


def pages() -> dict[str, str]:
    """Write every page in both languages, by name.

    Those that have no template are written as they are, but with numbers and cells unbroken.
    """
    by_hand = [*DOCS.parent.glob("README*.md"), *DOCS.rglob("*.md")]
    own = {os.path.relpath(page, DOCS): page.read_text(encoding="utf-8") for page in by_hand}
    made: dict[str, str] = {}
    for language, end in ENDS.items():
        made |= {f"claims{end}": claims_page(language)} | findings(language)
        made[f"which_encoding{end}"] = template("which_encoding", language).render()
    made = own | made
    chinese = {name: whole(unbroken(page)) for name, page in made.items() if "zh-CN" in name}
    written = {name: joined(page) for name, page in (made | chinese).items()}
    page = evidence.page("default")
    pictures = {name: figures.save(draw(), name) for name, draw in page["drawn"].items()}
    return written | {"report.html": report.html(page, pictures)}


if __name__ == "__main__":
    for name, page in pages().items():
        (DOCS / name).write_text(page, encoding="utf-8")
        print(DOCS / name)
    for study in evidence.studies():
        page = report.markdown(evidence.page(study))
        (BENCHMARKS / study / "report.md").write_text(page, encoding="utf-8")
    write_explorer(DOCS / "explore.html")
    write_playground(DOCS / "playground.html", models(DOCS / "playground.html"))
