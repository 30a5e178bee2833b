"""The documentation site builds without a warning, covers every page, and loads nothing from a network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.agent.hooks.facts import _DEBUG_VARIABLES
from profiler.record.collectors.host import VARIABLES
from profiler.record.launch import _RANK_VARIABLES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TERMS_AT_MOST = 25
_READ = re.compile(r'environ(?:\.get\(|\[)"(\w+)"')
"""A variable that the code reads by its name."""


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^([a-z-]+)$", index, re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} == listed


def test_the_glossary_stays_small() -> None:
    terms = re.findall(r"^: ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert 10 < len(terms) <= TERMS_AT_MOST


def test_the_page_on_privacy_names_every_variable_that_is_recorded() -> None:
    page = (DOCS / "privacy.md").read_text(encoding="utf-8")
    section = page.partition("## Environment variables")[2].partition("\n## ")[0]
    read = {name for file in (ROOT / "profiler/agent").rglob("*.py") for name in _READ.findall(file.read_text())}
    internal = {name for name in read if name.startswith("PROFILER_")} | {"LOCAL_WORLD_SIZE", "PYTHONPATH"}
    recorded = {*VARIABLES, *_DEBUG_VARIABLES, *_RANK_VARIABLES, *(read - internal)}
    assert set(re.findall(r"`(\w+)`", section)) == recorded


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="Sphinx is not installed: make docs installs it")
def test_the_site_builds_and_is_self_contained(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    pages = {page.stem for page in DOCS.glob("*.md")}
    assert pages <= {page.stem for page in tmp_path.glob("*.html")}
    for page in tmp_path.glob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', html), page.name
    assert "--level" in (tmp_path / "cli.html").read_text(encoding="utf-8")
    assert "ProfilerError" in (tmp_path / "api.html").read_text(encoding="utf-8")
