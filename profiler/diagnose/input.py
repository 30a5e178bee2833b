"""Diagnoses the input of a run: whether it limits the training, and what would make it faster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from profiler.analyse.model import (
    RECEIVE,
    WAITING_FOR_INDEX,
    WAITING_FOR_WORKERS,
    Analysis,
    InputPart,
    LoaderUse,
)
from profiler.diagnose.model import InputAdvice, InputDiagnosis

SUBSTANTIAL: Final = 0.05
"""Share of a step below which the input does not matter: without it the program would be less than 6% faster."""
BUSY: Final = 0.8
"""Share of their time from which workers count as busy: the rest is lost where one waits for its turn."""
HANDOVER: Final = 1e-3
"""Seconds that the training process spends on receiving a batch of two small tensors from a worker: 0.6 to 1.0 ms of
CPU time (torch 2.13, one core of an EPYC). Workers that save less than that per batch make a program slower."""
MOSTLY: Final = 0.5
"""Share of the time in which workers make batches from which they mostly run on a CPU, or mostly wait for a core."""
_FREE: Final = 0.5
"""Cores that are free on average from which workers that do not run do not wait for one. A choice: half of the time one
core has nothing to do."""
_MAKING: Final = ("dataset", "dataset map", "collate", "tokenize")
"""Parts of the input that the training process has too if it makes its batches itself."""


def diagnose_input(analysis: Analysis) -> InputDiagnosis | None:
    """What limits the input, with the figures that say so; None where no input was seen."""
    parts, use = analysis.input, analysis.loader or LoaderUse(1.0, 0.0)
    if not parts:
        return None
    workers = [part for part in parts if part.where == "worker"]
    loader = [part for part in parts if part.where == "main process" and part.context == "loader"]
    inline = [part for part in parts if part.context == "inline"]
    cores = analysis.info.facts.get("cores") or analysis.info.host.get("cores")
    making = [part for part in (workers or loader) if part.name not in (WAITING_FOR_INDEX, WAITING_FOR_WORKERS)]
    idle = _share(workers, WAITING_FOR_INDEX)
    diagnosis = InputDiagnosis(
        InputAdvice.NONE,
        use,
        cores=int(cores) if isinstance(cores, int | float) else None,
        waits=_share(loader, WAITING_FOR_WORKERS),
        receives=_share(loader, RECEIVE),
        starts=_share(loader, "loader start"),
        making=sum(part.share for part in loader),
        batch_seconds=sum(part.seconds_per_step for part in loader) / (use.batches or 1.0),
        made_seconds=sum(part.seconds_per_step for part in making if part.name in _MAKING)
        / (use.batches or 1.0)
        * (_share_on_core(use, 1.0 - idle) if workers else 1.0),
        busy=1.0 - idle,
        inline=sum(part.share for part in inline),
        inline_part=max(inline, key=lambda part: part.share, default=None),
    )
    advice = _with_workers(diagnosis) if workers else _without_workers(diagnosis, loader)
    kept = _share_with_core(analysis, (*loader, *inline))
    return replace(
        diagnosis,
        advice=advice,
        **{name: kept * getattr(diagnosis, name) for name in ("waits", "receives", "starts", "making", "inline")},
    )


def _share_on_core(use: LoaderUse, busy: float) -> float:
    """The share of the time in which workers make batches that they do not wait for a core: the training process would
    not wait for one in their place."""
    return 1.0 - min(1.0, (use.worker_core_wait or 0.0) / busy) if busy > 0 else 1.0


def _share_with_core(analysis: Analysis, parts: Iterable[InputPart]) -> float:
    """The share of the recorded time of these parts that remains in the breakdown, which takes waits for a core out."""
    measure, recorded = analysis.breakdown.get("input"), sum(part.seconds_per_step for part in parts)
    if measure is None or measure.value is None or not recorded:
        return 1.0
    return min(1.0, measure.value / recorded)


def _with_workers(found: InputDiagnosis) -> InputAdvice:
    if found.waits + found.receives + found.starts < SUBSTANTIAL:
        return InputAdvice.KEEPS_UP
    if found.starts >= max(found.receives, SUBSTANTIAL) and found.use.starts:
        return InputAdvice.PERSISTENT_WORKERS
    if 0 < found.made_seconds < found.batch_seconds and found.receives >= SUBSTANTIAL:
        return InputAdvice.NO_WORKERS
    if found.receives > found.waits or (found.receives >= SUBSTANTIAL and found.busy < BUSY):
        return InputAdvice.LARGER_BATCHES
    if found.busy < BUSY:
        return InputAdvice.LATE if found.waits >= SUBSTANTIAL / 2 else InputAdvice.NONE
    return _busy_workers(found)


def _busy_workers(found: InputDiagnosis) -> InputAdvice:
    """Whether busy workers run, wait for a core, or wait for something else."""
    use = found.use
    if use.worker_cpu is None:
        return InputAdvice.WORKERS_LIMIT
    if use.worker_core_wait is not None and use.worker_core_wait >= MOSTLY * found.busy:
        return InputAdvice.MORE_CORES
    is_core_free = use.free_cores is not None and use.free_cores >= _FREE
    if use.worker_cpu < MOSTLY * found.busy and (use.worker_core_wait is not None or is_core_free):
        return InputAdvice.MORE_WORKERS
    return InputAdvice.WORKERS_LIMIT


def _without_workers(found: InputDiagnosis, loader: list[InputPart]) -> InputAdvice:
    if not loader:
        return InputAdvice.NONE
    if found.making < SUBSTANTIAL:
        return InputAdvice.LITTLE_TO_GAIN
    if found.starts > MOSTLY * found.making:  # workers would not start a loader sooner
        return InputAdvice.NONE
    return InputAdvice.USE_WORKERS if found.batch_seconds > HANDOVER else InputAdvice.CHEAP_BATCHES


def _share(parts: Iterable[InputPart], name: str) -> float:
    return sum(part.share for part in parts if part.name == name)
