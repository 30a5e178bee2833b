"""docs/json.md explains each field of the JSON reports, from the docstrings in the code."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison
from profiler.analyse.model.finding import Finding, FindingChange
from profiler.report.render.json import WORDS
from tests.fakes.programs import ROOT

if TYPE_CHECKING:
    from types import ModuleType

_ROOTS: Final = (Analysis, Comparison, FindingChange)
_CONSTANT: Final = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    import fields

    return fields


def test_every_field_has_a_docstring_that_tells_what_null_means(page: ModuleType) -> None:
    silent = []
    for kind in page.objects(*_ROOTS):
        for entry in page.entries(kind):
            name = f"{kind.__module__}.{kind.__name__}.{entry.name}"
            if not entry.meaning and not issubclass(kind, Enum):
                silent.append(f"{name} has no docstring")
            elif " or null" in "".join(map(str, entry.type)) and "null" not in entry.meaning:
                silent.append(f"{name}: its docstring does not tell what None means")
            elif _CONSTANT.search(entry.meaning):
                silent.append(f"{name}: its docstring names a constant of the code")
    assert not silent, "\n".join(silent)


def test_every_object_says_what_it_is(page: ModuleType) -> None:
    assert not [kind for kind in page.objects(*_ROOTS) if len(page.summary(kind).split()) < 3]


def test_the_words_of_a_finding_are_explained(page: ModuleType) -> None:
    assert {*WORDS} <= {entry.name for entry in page.entries(Finding) if entry.meaning}


def test_the_page_begins_with_the_objects_of_both_documents() -> None:
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    for kind in _ROOTS:
        assert re.search(rf"\{{objects\}}.* ?{re.escape(f'{kind.__module__}:{kind.__name__}')}\b", text)
