"""The end of every `check`: verdict, reports, a job's summary, the history, the exit code."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler.base.errors import Exit
from profiler.commands._gate_settings import GateSettings
from profiler.gate.model import BASE, CANDIDATE, FAIL, INCONCLUSIVE, PASS, GateResult, Round, SideInfo
from profiler.gate.verdict import concluded
from profiler.report.gate.annotations import workflow_commands
from profiler.report.gate.places import places
from profiler.report.gate.terminal import print_result
from profiler.report.gate.write import append_summary, write_all

if TYPE_CHECKING:
    from profiler.run.model import Comparison, Run

_COMPARED: Final = 5
"""Rounds that the page's comparison is made of."""
SUMMARY: Final = "GITHUB_STEP_SUMMARY"
ACTIONS: Final = "GITHUB_ACTIONS"


def finish(result: GateResult, settings: GateSettings, *, sides: Mapping[str, Any] | None = None) -> int:
    """Conclude, write, print; the exit code.

    :param sides: what was found of BASE and CANDIDATE, for the comparison in the page.
    """
    result = concluded(
        replace(
            result,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.monotonic() - settings.began,
            out=str(settings.out),
        )
    )
    comparison = _comparison(sides)
    if comparison is not None and any(one.detail for one in (sides or {}).values()):
        result = replace(result, notes=(comparison.verdict, *result.notes))  # it says where the time went
    print_result(result, stream=sys.stdout)
    write_all(result, settings.out, comparison)
    where = places(Path.cwd())
    if settings.github or os.environ.get(ACTIONS) == "true":
        for line in workflow_commands(result, where):
            print(line)
    if summary := os.environ.get(SUMMARY):
        append_summary(result, Path(summary))
    if settings.history is not None:
        from profiler.gate.history import append

        append(settings.history, result)
    return exit_code(result)


def exit_code(result: GateResult) -> int:
    """0 PASS, 1 FAIL, 3 INCONCLUSIVE; 0 for that too where the limits say so."""
    if result.state == INCONCLUSIVE and result.limits.inconclusive == "pass":
        return int(Exit.OK)
    return int({PASS: Exit.OK, FAIL: Exit.FAIL, INCONCLUSIVE: Exit.NOT_COMPARABLE}[result.state])


def _comparison(sides: Mapping[str, Any] | None) -> Comparison | None:
    """Of the runs of both sides, for the page: what they did, beside what the gate says."""
    if not sides or not sides[BASE].paths or not sides[CANDIDATE].paths:
        return None
    from profiler import read
    from profiler.analyse.comparison import SideRuns, compare
    from profiler.diagnose.verdict import compare_verdict

    made = [
        SideRuns(
            name,
            shlex.join(sides[name].runs[0].info.argv),
            tuple(read(path) for path in sides[name].paths[:_COMPARED]),
            read(sides[name].detail, timeline=True) if sides[name].detail else None,
        )
        for name in (BASE, CANDIDATE)
    ]
    comparison = compare(made, anyway=True)
    return replace(comparison, verdict=compare_verdict(comparison))


def side_info(
    label: str,
    what: str,
    argv: Sequence[str],
    commit: str | None,
    *,
    runs: Sequence[Run] = (),
    rounds: Sequence[Round] = (),
) -> SideInfo:
    """One side as people know it; its speed is informational."""
    turns = [turn for one in rounds for turn in one.turns if turn.side == label and turn.time]
    steps = sorted(length for turn in turns for length in turn.steps)
    time_s, tokens = sum(turn.time for turn in turns) / 1e9, sum(turn.tokens for turn in turns)
    return SideInfo(
        label,
        what or shlex.join(argv),
        shlex.join(argv),
        commit or None,
        runs[0].step_source if runs else "",
        steps[len(steps) // 2] / 1e9 if steps else None,
        tokens / time_s if tokens else None,
        {name: value for name, value in (runs[0].info.facts if runs else {}).items() if isinstance(value, str | int)},
    )


def fingerprint(runs: Sequence[Run]) -> dict[str, str]:
    """The machine that all of it was measured on, as far as it changes how fast programs are."""
    if not runs:
        return {}
    info = runs[0].info
    gpus = ", ".join(str(device.get("name", "unnamed")) for device in info.devices)
    found = {
        "cpu": str(info.host.get("cpu", "")),
        "cores": str(info.host.get("cores", "")),
        "GPU": gpus,
        "kernel": str(info.host.get("kernel", "")),
        "python": str(info.versions.get("python", "")),
        "torch": str(info.facts.get("torch") or info.versions.get("torch", "")),
    }
    return {name: value for name, value in found.items() if value}
