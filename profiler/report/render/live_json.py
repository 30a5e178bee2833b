"""A live snapshot as JSON: documented keys, base units, null with its reason for what is not known."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from profiler.core.live import Snapshot, StepUse
from profiler.report.text import step_text

SCHEMA: Final = "monitor/1"


def snapshot_json(snapshot: Snapshot, verdict: str) -> dict[str, Any]:
    """The keys of docs/json.md, "monitor"."""
    watched = snapshot.watched
    return {
        "schema": SCHEMA,
        "time": snapshot.time,
        "program": watched.program,
        "argv": list(watched.argv),
        "pid": watched.pid,
        "run": watched.run or None,
        "level": watched.level or None,
        "running_s": snapshot.ran,
        "interval_s": snapshot.interval,
        "verdict": verdict,
        "cpu_cores": snapshot.cpu,
        "cores": snapshot.cores,
        "rss_bytes": snapshot.rss,
        "steps": _steps(snapshot.steps) if snapshot.steps else None,
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "utilization": gpu.utilization,
                "memory_used_bytes": gpu.memory_used,
                "memory_bytes": gpu.memory_total,
                "power_w": gpu.power,
                "power_limit_w": gpu.power_limit,
                "throttled_by": None if gpu.throttle is None else list(gpu.throttle),
            }
            for gpu in snapshot.gpus
        ],
        "processes": [
            {
                "pid": process.pid,
                "parent": process.parent,
                "name": process.name,
                "role": process.role or None,
                "state": process.state,
                "cpu_cores": process.cpu,
                "rss_bytes": process.rss,
                "threads": process.threads,
            }
            for process in snapshot.processes
        ],
        "threads": [{**asdict(thread), "role": thread.role or None} for thread in snapshot.threads],
        "not_measured": dict(snapshot.unknown),
    }


def _steps(steps: StepUse) -> dict[str, Any]:
    return {
        "source": step_text(steps.step),
        "steps_per_s": steps.rate,
        "step_time_s": steps.step_time,
        "count": steps.count,
        "window_s": steps.window,
        "since_last_s": steps.since_last,
        "tokens_per_s": steps.tokens_per_s,
        "per_step": dict(steps.counters),
        "parts": dict(steps.parts),
        "pid": steps.pid,
        "tid": steps.tid,
        "ranks": steps.ranks,
    }
