"""Small decisions of `check`: what marks itself, what a FAIL is worth, which of two counts counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler.check.command.baseline import joined
from profiler.check.command.found import _started_in
from profiler.check.command.programs import marks_itself, programs_of
from profiler.check.command.turns import _trusted
from profiler.check.model import FAIL, INCONCLUSIVE, PASS, CounterLine, GateResult, Throughput, TimeLine
from profiler.check.worktree.prepare import Side


@pytest.mark.parametrize(
    ("command", "itself"),
    [
        ("python -m reference_trainer.lm --steps 5", True),
        ("/usr/bin/python3.11 -u -W error -m reference_trainer.lm", True),
        ("python -m reference_trainer.lm.pretokenize", True),
        ("python -m reference_trainer.lmx", False),
        ("python -m reference_trainer.ssm", False),
        ("python -um reference_trainer.lm", True),
        ("python -mreference_trainer.lm", True),
        ("taskset -c 0 python -X dev -m reference_trainer.lm", True),
        ("python train.py --like reference_trainer", False),
        ("python reference_trainer/train.py", False),
        ("python -m reference_trainers", False),
        ("python -m mine -m reference_trainer", False),
        ("python -c pass -m reference_trainer", False),
        ("/opt/reference_trainer/bin/python -m mine", False),
        ("python", False),
        ("reference_trainer", False),
    ],
)
def test_only_the_bundled_language_model_started_as_a_module_marks_all_it_does(command: str, itself: bool) -> None:
    assert marks_itself(command.split()) is itself


@pytest.mark.parametrize(
    ("before", "after", "inside"),
    [
        ("python -m reference_trainer.lm", "python -m reference_trainer.lm --fixes all", False),
        ("python -m reference_trainer.lm", "python mine.py", True),
        ("python mine.py", "python -m reference_trainer.lm", True),
    ],
)
def test_hooks_go_into_both_sides_or_neither(before: str, after: str, inside: bool) -> None:
    import sys

    sides = [Side((sys.executable, *text.split()[1:]), Path.cwd()) for text in (before, after)]
    assert [one.hooked for one in programs_of(*sides).values()] == [inside, inside]


def speed(state: str, *, confirmed: bool | None = None) -> Throughput:
    return Throughput(
        state, (TimeLine("typical step", state, 0.06, 0.01, 0.1, 5, 0.07),), (), "as it is", None, confirmed
    )


def test_a_fail_is_none_where_the_base_lies_on_another_file_system() -> None:
    here, elsewhere = SimpleNamespace(other_filesystem=False), SimpleNamespace(other_filesystem=True)
    failed: Any = speed(FAIL, confirmed=True)
    assert _trusted(failed, here) is failed  # type: ignore[arg-type]
    doubted = _trusted(failed, elsewhere)  # type: ignore[arg-type]
    assert (doubted.state, doubted.lines[0].state) == (INCONCLUSIVE, INCONCLUSIVE)
    assert "another file system" in doubted.reason
    assert "another file system" in doubted.doubts[0]
    passed = _trusted(speed(PASS), elsewhere)  # type: ignore[arg-type]
    assert (passed.state, len(passed.doubts)) == (PASS, 1)


def counter(name: str, state: str, reason: str = "") -> CounterLine:
    return CounterLine(name, state, (3.0, 3.0), (4.0, 4.0), 3.0, reason)


def test_of_each_counter_the_worse_of_file_and_revision_counts() -> None:
    of_file = (counter("syncs", FAIL), counter("h2d", PASS), counter("d2h", PASS))
    of_revision = (counter("syncs", PASS), counter("h2d", FAIL, "varies"))
    held: Any = SimpleNamespace(
        path=Path("b.json"),
        section=SimpleNamespace(updated_at="2026-01-02T03:04"),
        lines=of_file,
        state=FAIL,
        reason="",
        doubts=("another command",),
    )
    found = joined(GateResult(mode="against", counters=of_revision, counters_state=FAIL, doubts=("slow",)), held)
    assert {line.counter: (line.state, line.reason) for line in found.counters} == {
        "syncs": (FAIL, "against b.json"),
        "h2d": (FAIL, "varies; against the base"),
        "d2h": (PASS, ""),
    }
    assert found.doubts == ("slow", "another command")
    held.lines, held.state, held.reason = (), INCONCLUSIVE, "torch: another one"
    found = joined(GateResult(mode="against", counters=of_revision[:1], counters_state=PASS), held)
    assert (found.counters_state, found.counters_reason) == (INCONCLUSIVE, "torch: another one")
    assert joined(GateResult(mode="against", counters_state=None), held).counters_state == INCONCLUSIVE


@pytest.mark.parametrize(
    ("command", "file", "folder"),
    [
        ("python train.py", "/srv/me/proj/train.py", "/srv/me/proj"),
        ("python ./scripts/train.py", "/srv/me/proj/scripts/train.py", "/srv/me/proj"),
        ("python -m pkg.train --x y.py", "/srv/me/proj/pkg/train.py", "/srv/me/proj"),
        ("python -m pkg", "/srv/me/proj/pkg/__main__.py", "/srv/me/proj"),
        ("python train.py", "/srv/me/proj/other.py", ""),
        ("python /srv/me/proj/train.py", "/srv/me/proj/other.py", "/srv/me/proj"),
    ],
)
def test_a_recorded_run_tells_where_it_was_started(command: str, file: str, folder: str) -> None:
    info = SimpleNamespace(argv=tuple(command.split()), facts={}, host={})
    run: Any = SimpleNamespace(info=info, sites=(SimpleNamespace(file=file),))
    assert _started_in(run) == folder
