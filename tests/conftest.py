"""Fixtures of more than one folder."""

from __future__ import annotations

import pytest

from tests.fakes.programs import ROOT


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets recorded programs import `profiler.marks` from this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
