"""Where rounds, counts and a terminal that is gone meet: no count of a loader's gates, no round and no code is lost."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from profiler.check.command.kept import rounds_kept
from profiler.check.command.turns import _with_lines
from profiler.check.model import FAIL, MEASURE, PASS, CounterLine, Limits, Round
from profiler.commands import _gate_early, _gate_rounds
from profiler.core.errors import ProfilerError


def line(state: str, counter: str = "would_sync") -> CounterLine:
    return CounterLine(counter, state, (1.0, 1.0), (2.0, 2.0), 1.0, "")


def test_what_rose_in_a_loader_only_is_no_fail() -> None:
    """Rounds have no calls that would tell them apart; the runs with lines have."""
    found = _with_lines(line(FAIL), line(PASS))
    assert (found.state, found.reason) == (PASS, "what rose lies in loaders, and gates nothing")
    assert _with_lines(line(FAIL), line(FAIL)).state == FAIL
    assert _with_lines(line(FAIL, "syncs"), line(PASS, "syncs")).state == FAIL, "only loaders' are told apart there"
    assert _with_lines(line(FAIL), None).state == FAIL


@pytest.mark.parametrize("fault", [ProfilerError("it crashed"), ValueError("a fault of the tool"), KeyboardInterrupt()])
def test_rounds_are_kept_whatever_ends_them(tmp_path: Path, fault: BaseException) -> None:
    rounds = [Round(1, MEASURE, ("base", "candidate"), (), 1.0)]
    with pytest.raises(type(fault)), rounds_kept(rounds, tmp_path):
        raise fault
    assert len(json.loads((tmp_path / "rounds.json").read_text())["rounds"]) == 1


class Gone(io.StringIO):
    """Standard error of a terminal that was closed."""

    def write(self, _: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_a_terminal_that_is_gone_ends_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Gone())
    _gate_rounds._lines(Limits())([], MEASURE)
    with _gate_rounds._live(Console(file=Gone(), force_terminal=True), Limits()) as show:
        show([], MEASURE)


def test_a_counter_of_ones_own_is_not_taken_for_a_misspelt_one() -> None:
    known = {"syncs", "would_sync", "launches"}
    _gate_early._known("fsyncs", known, "--limit")
    with pytest.raises(ProfilerError, match="did you mean would_sync"):
        _gate_early._known("would_snc", known, "--limit")
