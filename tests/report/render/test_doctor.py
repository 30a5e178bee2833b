"""The doctor's table at all widths, its conclusion, and its JSON."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from profiler.core.machine import NO, NOT_KNOWN, PARTLY, YES, Answer, Capability
from profiler.report.render.doctor import conclusion, doctor_json, doctor_view

ROWS = (
    Capability("python", "Python", Answer(YES, "CPython 3.12.1"), needed=True),
    Capability("stacks", "Python stacks", Answer(NO, "ptrace is forbidden", "sudo sysctl x=0"), needed=True),
    Capability("gpu", "GPU use", Answer(NO, "no driver", "start with --gpus all"), needed=False),
    Capability("clocks", "steady times", Answer(PARTLY, "governor powersave \x1b[31m"), needed=False),
    Capability("torch", "torch", Answer(NOT_KNOWN, "no answer within 2 × 45 s"), needed=False),
)


def drawn(width: int, *, unicode: bool = True) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(doctor_view(ROWS, width=width, unicode=unicode))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 140, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_fits_the_terminal(width: int, unicode: bool) -> None:
    text = drawn(width, unicode=unicode)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert text.isascii() is not unicode
    assert "\x1b" not in text
    for part in ("Python stacks", "partly", "not known", "sudo sysctl x=0", "no driver"):
        assert part in text, text


def test_what_to_do_has_its_own_column_where_there_is_room() -> None:
    assert "what to do" in drawn(140)
    assert "-> sudo sysctl x=0" in drawn(80)


def test_conclusion() -> None:
    assert conclusion(ROWS) == "Recording at level standard lacks: Python stacks. First: sudo sysctl x=0"
    assert conclusion(ROWS[:1] + ROWS[2:]) == "Recording works at level standard."


def test_json() -> None:
    content = doctor_json(ROWS)
    assert (content["schema"], content["standard"]) == ("doctor/1", False)
    assert content["checks"][1] == {
        "name": "stacks",
        "title": "Python stacks",
        "needed": True,
        "state": "no",
        "why": "ptrace is forbidden",
        "do": "sudo sysctl x=0",
    }
    assert content["checks"][0]["do"] is None
