"""Words what is known of a running program: what limits it, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.core.live import GpuUse, Snapshot, StepUse, ThreadUse
from profiler.core.units import rate, seconds, share, size, value
from profiler.diagnose.model import LiveDiagnosis, LiveLimit, LiveView
from profiler.report.finding_text import finding_sentence, finding_text, left_out_text, told
from profiler.report.text import step_text


def live_sentence(diagnosis: LiveDiagnosis) -> str:
    """Word the limit of a running program in one line."""
    if diagnosis.limit is LiveLimit.UNKNOWN:
        return "not known yet: CPU use needs two readings"
    stalled = f"no step for {seconds(diagnosis.stalled)}; " if diagnosis.stalled is not None else ""
    host = f"the {diagnosis.role} thread is on a CPU {share(diagnosis.thread_cpu)} of the time"
    if diagnosis.limit is LiveLimit.CORES:
        crowded = diagnosis.delayed >= diagnosis.throttled
        waits = [f"waits for a core {share(diagnosis.delayed)}", f"is throttled {share(diagnosis.throttled)}"]
        if not diagnosis.throttled:
            waits.pop()
        host = f"{'too few cores' if crowded else 'the CPU quota is used up'}: the {diagnosis.role} thread runs "
        host += f"{share(diagnosis.thread_cpu)} of the time and {' and '.join(waits if crowded else waits[::-1])}"
    if diagnosis.part:
        window = seconds(diagnosis.part_window)
        host += f", {share(diagnosis.part_share)} of the last {window} {_LIVE_PARTS[diagnosis.part]}"
    if diagnosis.gpu is not None:
        host += f"; GPU {share(diagnosis.gpu)}"
    cores = f"{diagnosis.cores_used or 0.0:.1f} of {diagnosis.cores:g} cores are busy"
    if diagnosis.limit is LiveLimit.CPU:
        host += f"; {cores}"
    if diagnosis.limit is LiveLimit.THREAD and diagnosis.cores_used is not None:
        host += f", and {cores}"
    if diagnosis.limit is LiveLimit.CORES:
        return f"{stalled}{host}"
    return f"{stalled}{host}: {_limit(diagnosis)}"


def _limit(diagnosis: LiveDiagnosis) -> str:
    workers = f"{diagnosis.busy_workers} of {diagnosis.workers} workers are at work"
    if diagnosis.limit is LiveLimit.RECORDED_PART:
        return f"that is the bottleneck; {workers}" if diagnosis.busy_workers else "that is the bottleneck"
    if diagnosis.limit is LiveLimit.WORKERS:
        return f"it waits, and {workers}: they may be the bottleneck"
    return _LIMITS[diagnosis.limit]


_LIMITS: Final[Mapping[LiveLimit, str]] = {
    LiveLimit.GPU: "the GPU is the bottleneck, as far as NVML sees (it sees no short gaps)",
    LiveLimit.HOST: "the host is the bottleneck",
    LiveLimit.HOST_OR_WAITS: "the host is part of the bottleneck, or it spins while waiting",
    LiveLimit.CPU: "the CPU is the bottleneck",
    LiveLimit.THREAD: "this thread is the bottleneck",
    LiveLimit.DISK: "it waits for a disk",
    LiveLimit.WAIT_FOR_GPU: "it mostly waits, perhaps for the GPU, and the cause cannot be seen from outside",
    LiveLimit.WAIT: "it mostly waits, and the cause cannot be seen from outside",
}
_LIVE_PARTS: Final[Mapping[str, str]] = {
    "data": "in next(loader)",
    "loader start": "in the start of a loader",
    "tokenize": "in the tokenizer",
    "checkpoint": "in writing a checkpoint",
}


def live_findings(analysis: Analysis, whole: str = "") -> tuple[str, ...]:
    """Word what the rules say so far about a running program, in shares of `whole`, and which rules cannot judge it."""
    chosen = [each for each in told(analysis.findings) if each.has_cure][:2]
    with_core = f"{whole} in which it has a core" if whole else ""
    wholes = (with_core if left_out_text(each) else whole for each in chosen)
    lines = [f"{finding_sentence(each, of)} {finding_text(each).fix}" for each, of in zip(chosen, wholes, strict=True)]
    if not lines:
        lines.append("none so far that is sure and large enough to name")
    if analysis.not_judged:
        lines.append(f"cannot judge this run: {', '.join(each.rule.name for each in analysis.not_judged)}")
    return tuple(lines)


# ---------------------------------------------------------------- the figures

_MOST_THREADS: Final = 4
"""Threads that are named."""
_BUSY: Final = 0.02
"""Share of a core from which a thread without a role is named: pools and feeders of queues take less."""
_STATES: Final = {"R": "running", "S": "waiting", "D": "on disk", "T": "stopped", "t": "traced", "I": "idle"}


def live_title(snapshot: Snapshot) -> tuple[str, str]:
    """Name the program, and say what is looked at."""
    watched = snapshot.watched
    recorded = f"recorded at level {watched.level}" if watched.run else "not started with `profiler run`"
    return watched.program, f"pid {watched.pid}, {_duration(snapshot.ran)}, {recorded}"


def live_lines(view: LiveView) -> Iterator[tuple[str, str]]:
    """Word the figures of a running program as lines with labels; one that is like the label before is repeated."""
    snapshot = view.snapshot
    findings = live_findings(view.analysis) if view.analysis else (f"not judged: {view.not_judged}",)
    for finding in findings:
        yield "findings", finding
    yield from (("steps", line) for line in _steps(snapshot.steps, snapshot.unknown.get("steps", "")))
    unknown = f"not measured: {snapshot.unknown.get('cpu')}"
    yield "CPU", unknown if snapshot.cpu is None else f"{snapshot.cpu:.2f} of {snapshot.cores:g} cores"
    yield "threads", "; ".join(_threads(snapshot.threads))
    yield "memory", f"{size(snapshot.rss)} in {snapshot.processes} process{'es' * (snapshot.processes != 1)}"
    if workers := snapshot.workers:
        used = [worker.cpu for worker in workers if worker.cpu is not None]
        cpu = f", {sum(used):.2f} cores, the busiest {share(max(used))}" if used else ""
        yield "workers", f"{len(workers)}{cpu}, {size(sum(worker.rss for worker in workers))}"
    for gpu in snapshot.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu)
    if note := snapshot.unknown.get("gpus"):
        yield "GPU", note if snapshot.gpus else f"not measured: {note}"


def _steps(steps: StepUse | None, unknown: str) -> Iterator[str]:
    if steps is None:
        yield f"not measured: {unknown}"
    elif steps.step_time is None:
        yield f"one so far ({step_text(steps.step)})"
    else:
        tokens = f", {rate(steps.tokens_per_s, 'tokens/s')}" if steps.tokens_per_s else ""
        yield f"{rate(1 / steps.step_time, 'steps/s')}, {seconds(steps.step_time)} a step{tokens}"
        ranks = f", rank 0 of {steps.ranks}" if steps.ranks > 1 else ""
        yield f"{step_text(steps.step)}{ranks}; the last {seconds(steps.since_last)} ago"


def _threads(threads: tuple[ThreadUse, ...]) -> Iterator[str]:
    """Word the busiest threads, and how many more there are."""
    named = [use for use in threads if use.tid == use.pid or use.role or use.cpu is None or use.cpu >= _BUSY]
    for use in named[:_MOST_THREADS]:
        cpu = "" if use.cpu is None else f" {share(use.cpu)}"
        role = f" ({use.role})" if use.role else ""
        yield f"{use.name or f'thread {use.tid}'}{role}{cpu}, {_STATES.get(use.state, use.state)}"
    if more := len(threads) - len(named[:_MOST_THREADS]):
        yield f"and {more:,} more"


def _gpu(gpu: GpuUse) -> str:
    total = f" of {size(gpu.memory_total)}" if gpu.memory_total else ""
    limit = f" of {gpu.power_limit:.0f} W" if gpu.power_limit else ""
    throttling = "throttling not measured"
    if gpu.throttle is not None:
        throttling = f"throttled: {', '.join(gpu.throttle)}" if gpu.throttle else "not throttled"
    use = _measured(gpu.utilization, share)
    memory, power = _measured(gpu.memory_used, size), _measured(gpu.power, lambda watts: f"{watts:.0f} W")
    return f"{gpu.name}, {use}; memory {memory}{total}, power {power}{limit}, {throttling}"


def _measured(number: float | None, word: Callable[[float], str]) -> str:
    return value(None, "") if number is None else word(number)


def _duration(number: float) -> str:
    """Word 12 s, 2 min 05 s, 3 h 02 min: it changes once a second."""
    if number < 3600:
        return seconds(number) if number >= 60 else f"{number:.0f} s"
    minutes = round(number / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"
