"""The documentation does what it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import SCRIPTS, TINY

ROOT = SCRIPTS.parent


def blocks(page: str, language: str) -> list[str]:
    """The fenced code of one language on a page of ``docs/``."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of the documentation, in a copy of the project, on small data."""
    words = shlex.split(command)
    assert words[0] == "python"
    return subprocess.run(
        [sys.executable, *words[1:], *TINY], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}, timeout=240,
    )  # fmt: skip


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """An encoding, a task and a study are added; the report shows them, mistakes are named."""
    for name in ("wawa_transformer", "configs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    page = "docs/tutorial.md"
    encoding, task = blocks(page, "python")
    module = tmp_path / "wawa_transformer" / "positional.py"
    before, build, after = module.read_text(encoding="utf-8").partition("\ndef build(")
    module.write_text(f"{before}\n{encoding}\n{build}{after}", encoding="utf-8")
    with (tmp_path / "wawa_transformer" / "tasks.py").open("a", encoding="utf-8") as tasks:
        tasks.write(f"\n\n{task}")
    text = (ROOT / page).read_text(encoding="utf-8")
    files = re.findall(r"`(configs/\S+\.yaml)`[^`]*```yaml\n(.*?)^```$", text, flags=re.M | re.S)
    assert len(files) == len(blocks(page, "yaml")) == 3
    for name, content in files:
        (tmp_path / name).write_text(content, encoding="utf-8")
    for block in blocks(page, "bash"):
        result = run(block.strip(), tmp_path)
        assert result.returncode == 0, result.stderr
    report = (tmp_path / "results" / "cycle" / "report.md").read_text(encoding="utf-8")
    assert re.search(r"^\| learned_slopes \| 3 \|", report, flags=re.M)
    assert "can reach at most" in report  # the ceiling without positions
    refused = run("python scripts/train.py pe=learned_slopes pe.first_slop=1", tmp_path)
    assert refused.returncode == 1 and "did you mean pe.first_slope?" in refused.stderr


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link of the README and of docs/ names a file that is there."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "data" / "README.md"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name}: {link}"
