"""What was found in a program as it is, as JSON: what a step is, its parts, lines, the loader's time, time outside."""

from __future__ import annotations

from typing import Any

from profiler.analyse.model import Analysis, CallSite, InputPart, LineCost, Phase, Spikes, ThreadActivity
from profiler.report.render.json_values import Gaps
from profiler.report.text import PERIODS, THREAD_STATES, input_part, step_text
from profiler.run.model import Site


def found_json(analysis: Analysis, gaps: Gaps) -> dict[str, Any]:
    """The keys of `run/1` that are of a program which was recorded without a change."""
    return {
        "step_source": step_text(analysis.step),
        "phases": [_phase(part, f"phases.{number}", gaps) for number, part in enumerate(analysis.phases)],
        "hot": [_hot(row) for row in analysis.call_sites],
        "doing": [_doing(one, f"doing.{number}", gaps) for number, one in enumerate(analysis.threads)],
        "lines": [_line(line) for line in analysis.lines],
        "input": [_input(part, f"input.{number}", gaps) for number, part in enumerate(analysis.input)],
        "outside": [
            {"name": PERIODS[one.period], "seconds": one.seconds, "lines": [_line(line) for line in one.lines]}
            for one in analysis.startup_teardown
        ],
        "spikes": _spikes(analysis.spikes, gaps),
    }


def _hot(row: CallSite) -> dict[str, Any]:
    return {
        "file": row.site.file,
        "line": row.site.line,
        "function": row.site.function,
        "kind": row.kind,
        "operation": row.operation,
        "calls_per_step": row.calls_per_step,
        "seconds_per_step": row.seconds_per_step,
        "blocked_per_step": row.blocked_per_step,
        "bytes_per_step": row.bytes_per_step,
    }


def _doing(one: ThreadActivity, path: str, gaps: Gaps) -> dict[str, Any]:
    return {
        "process": one.process,
        "pid": one.pid,
        "thread": one.thread,
        "tid": one.tid,
        "answer": THREAD_STATES[one.state],
        "share": one.share,
        "low": one.low,
        "high": one.high,
        "samples": one.samples,
        **_place(one.site, path, gaps),
        "on_cpu": gaps.number(f"{path}.on_cpu", one.on_cpu, "the thread's clock was not read"),
        "gil": gaps.number(f"{path}.gil", one.gil, "no window of the GIL's holder was recorded"),
        "parts": {THREAD_STATES[state]: share for state, share in one.states},
    }


def _place(site: Site | None, path: str, gaps: Gaps) -> dict[str, Any]:
    if site is None:
        gaps.reasons[f"{path}.file"] = gaps.reasons[f"{path}.line"] = "no line of the program's own was seen"
    return {"file": site.file if site else None, "line": site.line if site else None}


def _phase(part: Phase, path: str, gaps: Gaps) -> dict[str, Any]:
    shares = {"seconds_per_step": part.seconds_per_step, "share": part.share, "low": part.low, "high": part.high}
    return {"name": part.name, **shares, **_place(part.site, path, gaps), "calls": part.calls}


def _line(line: LineCost) -> dict[str, Any]:
    return {
        "file": line.site.file,
        "line": line.site.line,
        "function": line.site.function,
        "calls": line.calls,
        "seconds_per_step": line.seconds_per_step,
        "share": line.share,
        "low": line.low,
        "high": line.high,
        "samples": line.samples,
        "categories": dict(line.categories),
    }


def _input(part: InputPart, path: str, gaps: Gaps) -> dict[str, Any]:
    shares = {"seconds_per_step": part.seconds_per_step, "share": part.share}
    return {"name": input_part(part), "where": part.where, **shares, **_place(part.site, path, gaps)}


def _spikes(spikes: Spikes | None, gaps: Gaps) -> dict[str, Any] | None:
    if spikes is None:
        gaps.reasons["spikes"] = "no step takes much longer than the others"
        return None
    return {
        "count": spikes.count,
        "steps": spikes.steps,
        "every": spikes.every,
        "times": spikes.times,
        "share": spikes.share,
        "samples": spikes.samples,
        "enough": spikes.enough,
        "lines": [
            {"file": row.site.file, "line": row.site.line, "function": row.site.function, "share": row.share}
            for row in spikes.lines
        ],
    }
