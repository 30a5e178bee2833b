"""Makes sentences of what limits a running program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.core.units import seconds, share
from profiler.diagnose.model import LiveDiagnosis, LiveLimit
from profiler.report.finding_text import finding_sentence, finding_text, left_out_text, told


def live_sentence(diagnosis: LiveDiagnosis) -> str:
    """The limit of a running program, in one line."""
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
    """What the rules say about a running program so far, in shares of `whole`, and how many of them cannot judge it."""
    chosen = [each for each in told(analysis.findings) if each.has_cure][:2]
    with_core = f"{whole} in which it has a core" if whole else ""
    wholes = (with_core if left_out_text(each) else whole for each in chosen)
    lines = [f"{finding_sentence(each, of)} {finding_text(each).fix}" for each, of in zip(chosen, wholes, strict=True)]
    if not lines:
        lines.append("none so far that is sure and large enough to name")
    if analysis.not_judged:
        lines.append(f"cannot judge this run: {', '.join(each.rule.name for each in analysis.not_judged)}")
    return tuple(lines)
