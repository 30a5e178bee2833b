"""No output calls a category of a step by another name than that of profiler/report/category_text.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from profiler.report.category_text import CATEGORIES, PHASES
from tests.approval.approve import APPROVED
from tests.fakes.programs import ROOT

_OTHER_NAMES: Final = re.compile(
    r"(?<![-.\w`])(unattributed|elsewhere|undisturbed|[█▓▒░▞▤▥▦▚·] (host waits|device computes|device communicates)"
    r"|waiting for data, tokenization|nothing was recorded|input's time|parts of the input|prepared? input"
    r"|CHANGED COMMAND)(?![-\w])"
)
"""Names that outputs once had beside those of today, and words that a reader had to guess."""
_KEY: Final = re.compile(r"^[\w.\[\]-]+: (?=['\"])")
"""The key of a sentence in an approved file: a code, which stays."""


@pytest.mark.parametrize("path", sorted(APPROVED.glob("*.txt")), ids=lambda path: path.stem)
def test_approved_outputs_have_one_name_for_each_category(path: Path) -> None:
    lines = [_KEY.sub("", line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert not [line for line in lines if _OTHER_NAMES.search(line)]
    rows = [line for line in lines if re.match(r"\|? ?input\b", line)]
    assert not rows, f"the category is called {CATEGORIES['input'].label}"


@pytest.mark.parametrize("page", ["glossary.md", "recording.md", "json.md"])
def test_docs_name_every_category(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    missing = [each.label for each in CATEGORIES.values() if not re.search(rf"\b{re.escape(each.label)}\b", text)]
    assert not missing, f"docs/{page} does not name {missing}"
    if page == "glossary.md":
        missing = [label for label, _ in PHASES.values() if label not in text]
        assert not missing, f"the glossary does not name the phases {missing}"
