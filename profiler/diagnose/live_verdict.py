"""One line about a program that runs: what limits it by what can be read from outside, and no more than that."""

from __future__ import annotations

from typing import Final

from profiler.core.live import GpuUse, Snapshot, ThreadUse
from profiler.core.units import seconds, share
from profiler.diagnose.verdict import BUSY

_IDLE: Final = 0.5
"""Share of time below which a GPU beside a busy host waits for it: kernels ran for less than half of the time."""
_CROWDED: Final = 0.3
"""Share of time without a free core from which too few cores are the matter."""
_WORKING: Final = 0.5
"""Cores that a worker uses from which it is at work: one that is ahead of the program waits for a place."""
STALLED: Final = 5.0
"""Step times without a step, and as many seconds, from which a program counts as standing."""
_MUCH: Final = 0.3
"""Share of the last seconds from which a recorded part of the steps is named."""
_PARTS: Final = {
    "data": "in next(loader)",
    "loader start": "in the start of a loader",
    "tokenize": "in the tokenizer",
    "checkpoint": "in writing a checkpoint",
}
_ON_DISK: Final = "D"


def live_verdict(snapshot: Snapshot) -> str:
    """What limits the program now, with the figures that say so."""
    thread = snapshot.training
    if snapshot.interval is None or thread is None or thread.cpu is None:
        return "not known yet: CPU needs two readings"
    judge = _without if _gpu_busy(snapshot.gpus) is None else _with_gpu
    return _stalled(snapshot) + judge(snapshot, thread)


def _with_gpu(snapshot: Snapshot, thread: ThreadUse) -> str:
    gpu = _gpu_busy(snapshot.gpus) or 0.0
    figures = f"{_host(snapshot, thread)}; GPU {share(gpu)}"
    if gpu >= BUSY:
        return f"{figures}: the GPU limits, as far as NVML sees (it sees no short gaps)"
    if thread.cpu is not None and thread.cpu >= BUSY:
        return (
            f"{figures}: the host limits" if gpu < _IDLE else f"{figures}: the host limits in part, or spins in waits"
        )
    return f"{figures}: {_waits(snapshot, thread)}"


def _without(snapshot: Snapshot, thread: ThreadUse) -> str:
    if snapshot.cpu is not None and snapshot.cpu >= BUSY * snapshot.cores and snapshot.cores > 1:
        return f"{_host(snapshot, thread)}; {_cores(snapshot.cpu, snapshot.cores)} are busy: the CPU limits"
    if thread.cpu is not None and thread.cpu >= BUSY:
        more = f", and {_cores(snapshot.cpu, snapshot.cores)} are busy" if snapshot.cpu is not None else ""
        return f"{_host(snapshot, thread)}{more}: this thread limits"
    return f"{_host(snapshot, thread)}: {_waits(snapshot, thread)}"


def _recorded(snapshot: Snapshot) -> str:
    """What the thread that closes the steps mostly does by its recorded parts; empty: none of them is much."""
    steps = snapshot.steps
    name, part = max(steps.parts.items(), key=lambda item: item[1], default=("", 0.0)) if steps else ("", 0.0)
    return f"{share(part)} of the last {seconds(steps.window)} {_PARTS[name]}" if steps and part >= _MUCH else ""


def _waits(snapshot: Snapshot, thread: ThreadUse) -> str:
    if (thread.delayed or 0.0) >= _CROWDED:
        return f"for another {share(min(1.0, thread.delayed or 0.0))} it waits for a free core: too few cores limit"
    busy = [worker for worker in snapshot.workers if worker.cpu is not None and worker.cpu >= _WORKING]
    gpu = _gpu_busy(snapshot.gpus)
    if _recorded(snapshot):
        return f"that limits; {len(busy)} of {len(snapshot.workers)} workers are at work" if busy else "that limits"
    if busy and (gpu is None or gpu < _IDLE):
        return f"it waits, and {len(busy)} of {len(snapshot.workers)} workers are at work: they may limit"
    if thread.state == _ON_DISK:
        return "it waits for a disk"
    if gpu is not None and gpu >= _IDLE:
        return "it waits mostly, perhaps for the GPU: what for cannot be seen from outside"
    return "it waits mostly, for what cannot be seen from outside"


def _stalled(snapshot: Snapshot) -> str:
    steps = snapshot.steps
    if steps and steps.since_last > max(STALLED, STALLED * (steps.step_time or 0.0)):
        return f"no step for {seconds(steps.since_last)}; "
    return ""


def _host(snapshot: Snapshot, thread: ThreadUse) -> str:
    recorded = _recorded(snapshot)
    return f"the {thread.role} thread is on a CPU {share(min(1.0, thread.cpu or 0.0))} of the time" + (
        f", {recorded}" if recorded else ""
    )


def _cores(used: float, cores: float) -> str:
    return f"{used:.1f} of {cores:g} cores"


def _gpu_busy(gpus: tuple[GpuUse, ...]) -> float | None:
    """Mean over those that tell."""
    known = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    return sum(known) / len(known) if known else None
