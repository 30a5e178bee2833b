"""Sides and the machine as a result names them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from profiler.analyse.window import measured_window
from profiler.check.command.found import Found
from profiler.check.model import Round, SideInfo
from profiler.check.speed.controlled_process import measured_spans
from profiler.report.text import step_text

if TYPE_CHECKING:
    from profiler.run.model import Run


def side_info(
    label: str,
    what: str,
    argv: Sequence[str],
    commit: str | None,
    *,
    found: Found | None = None,
    rounds: Sequence[Round] = (),
) -> SideInfo:
    """One side as people know it; its speed is informational: that of its turns, else of its runs.

    :param what: empty: the command.
    """
    runs = found.runs if found else ()
    steps, tokens = _of_rounds(label, rounds) if rounds else _of_runs(found)
    return SideInfo(
        label,
        what or shlex.join(argv),
        shlex.join(argv),
        commit or None,
        step_text(runs[0].step) if runs else "",
        median(steps) / 1e9 if steps else None,
        tokens / (sum(steps) / 1e9) if tokens else None,
        {name: value for name, value in (runs[0].info.facts if runs else {}).items() if isinstance(value, str | int)},
    )


def _of_rounds(label: str, rounds: Sequence[Round]) -> tuple[list[int], int]:
    """ns of each step, and the tokens of all."""
    turns = [turn for one in rounds for turn in one.turns if turn.side == label and turn.time]
    return [length for turn in turns for length in turn.steps], sum(turn.tokens for turn in turns)


def _of_runs(found: Found | None) -> tuple[list[int], int]:
    """The same of runs that were driven or recorded; in driven ones of the turns that count."""
    steps: list[int] = []
    tokens = 0
    for run, path in zip(found.runs, found.paths, strict=True) if found else ():
        window, spans = measured_window(run), measured_spans(path)
        rows = zip(window.begin.tolist(), window.end.tolist(), window.steps["tokens"].tolist(), strict=True)
        for begin, end, said in rows:
            if not spans or any(first <= begin and end <= last for first, last in spans):
                steps.append(end - begin)
                tokens += max(0, said)
    return steps, tokens


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
