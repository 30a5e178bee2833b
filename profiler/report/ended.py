"""How a recorded program ended, where that is not well: what its numbers say stands below it."""

from __future__ import annotations

import signal

from profiler.analyse.model import Analysis
from profiler.core.units import seconds
from profiler.run.model import RunInfo


def ended(info: RunInfo) -> str:
    """`failed after 0.1 s with exit code 2, before it imported torch`; empty for a run that went well."""
    if info.state not in ("failed", "interrupted"):
        return ""
    after = f" after {seconds((info.end - info.begin) / 1e9)}" if info.end and info.begin else ""
    how = "failed" if info.state == "failed" else "was interrupted"
    return f"{how}{after}{_with(info.exit_code)}{', before it imported torch' * without_torch(info)}"


def without_torch(info: RunInfo) -> bool:
    """Whether our hooks came into the program, and torch did not."""
    processes = info.python_processes
    return processes is not None and processes[0] > 0 and processes[1] == 0


def without_steps(analysis: Analysis) -> bool:
    """Whether it has no step of its own to judge."""
    step = analysis.measures.get("step_time")
    return step is None or step.value is None or (analysis.step is not None and analysis.step.is_whole_run)


def _with(code: int | None) -> str:
    if not code:
        return ""
    try:
        return f" with exit code {code}" if code > 0 else f" by {signal.Signals(-code).name}"
    except ValueError:
        return f" by signal {-code}"
