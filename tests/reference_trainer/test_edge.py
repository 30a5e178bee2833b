"""The edge of a program of the trainer."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest

from reference_trainer.program import guarded, obey


class Buffer:
    """Python ignores what is raised in its `__del__`."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_ctrl_c_that_was_swallowed_anywhere_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the work never asks for it."""
    displayed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", displayed.append)

    def work() -> int:
        Buffer()
        return 0

    assert guarded(work, interrupted="in words") == 130
    assert capsys.readouterr() == ("", "in words\n")
    assert not displayed, "beside the one line"
    obey()  # and is forgotten then
