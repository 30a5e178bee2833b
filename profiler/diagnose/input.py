"""Diagnoses the input of a run: whether it limits the training, and what would make it faster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from profiler.analyse.model import (
    CORELESS_CATEGORIES,
    RECEIVE,
    WAITING_FOR_INDEX,
    WAITING_FOR_WORKERS,
    Analysis,
    InputPart,
    LoaderUse,
)
from profiler.diagnose.model import InputAdvice, InputDiagnosis

SUBSTANTIAL: Final = 0.05
"""Share of a step below which the input does not matter: without it the program would be less than 6% faster. Waits for
a core are no part of that step: a busy machine hides no cause."""
BUSY: Final = 0.8
"""Share of their time from which workers count as busy: the rest is lost where one waits for its turn."""
HANDOVER: Final = 1e-3
"""Seconds that the training process spends on receiving a batch of two small tensors from a worker: 0.6 to 1.0 ms of
CPU time (torch 2.13, one core of an EPYC). Workers that save less than that per batch make a program slower."""
MOSTLY: Final = 0.5
"""Share of the time in which workers make batches from which they mostly run on a CPU, or mostly wait for a core."""
_UNEVEN: Final = 0.2
"""By how much the share of its time in which the busiest worker works exceeds the mean where batches are uneven. A
choice."""
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
    working, waiting = _shares_with_core(analysis, (*loader, *inline))
    diagnosis = InputDiagnosis(
        InputAdvice.NONE,
        use,
        least=SUBSTANTIAL * _share_with_core(analysis),
        cores=int(cores) if isinstance(cores, int | float) else None,
        waits=waiting * _share(loader, WAITING_FOR_WORKERS),
        receives=working * _share(loader, RECEIVE),
        starts=working * _share(loader, "loader start"),
        first_batches=waiting * _first_batches(analysis, use),
        making=sum((waiting if part.name == WAITING_FOR_WORKERS else working) * part.share for part in loader),
        batch_seconds=sum(part.seconds_per_step for part in loader) / (use.batches or 1.0),
        receive_seconds=working
        * sum(part.seconds_per_step for part in loader if part.name == RECEIVE)
        / (use.batches or 1.0),
        made_seconds=sum(part.seconds_per_step for part in making if part.name in _MAKING)
        / (use.batches or 1.0)
        * (_share_on_core(use, 1.0 - idle) if workers else 1.0),
        busy=1.0 - idle,
        inline=working * sum(part.share for part in inline),
        inline_part=max(inline, key=lambda part: part.share, default=None),
    )
    return replace(diagnosis, advice=_with_workers(diagnosis) if workers else _without_workers(diagnosis, loader))


def _share_with_core(analysis: Analysis) -> float:
    """The share of a step in which the training process does not wait for a core."""
    step = analysis.value("step_time")
    waits = sum(measure.value or 0.0 for name, measure in analysis.breakdown.items() if name in CORELESS_CATEGORIES)
    return max(0.0, 1.0 - waits / step) if step else 1.0


def _first_batches(analysis: Analysis, use: LoaderUse) -> float:
    """The share of a step in which the training process waits for the first batch after a start of a loader."""
    step = analysis.value("step_time")
    return use.first_batches / step if step else 0.0


def _share_on_core(use: LoaderUse, busy: float) -> float:
    """The share of the time in which workers make batches that they do not wait for a core, at least: the training
    process would not wait for one in their place. They wait for one also when they are woken for the next batch."""
    waits, cpu = use.worker_core_wait or 0.0, use.worker_cpu or 0.0
    return max(1.0 - min(1.0, waits / busy), granted_share(cpu, waits)) if busy > 0 else 1.0


def granted_share(on_cpu: float | None, core_wait: float | None) -> float:
    """The share of the time in which threads are ready to run that they do run; 0 if that is not known.

    :param on_cpu: their time on a CPU, in the unit of `core_wait`.
    :param core_wait: their time of waiting for a core.
    """
    return on_cpu / (on_cpu + core_wait) if on_cpu and core_wait is not None else 0.0


def _shares_with_core(analysis: Analysis, parts: Collection[InputPart]) -> tuple[float, float]:
    """The shares of the recorded time of these parts that remain in the breakdown, which takes waits for a core out: of
    work, and of waiting for workers, which needs no core and loses only what is more than all work."""
    measure, recorded = analysis.breakdown.get("input"), sum(part.seconds_per_step for part in parts)
    if measure is None or measure.value is None or not recorded:
        return 1.0, 1.0
    taken = max(0.0, recorded - measure.value)
    waiting = sum(part.seconds_per_step for part in parts if part.name == WAITING_FOR_WORKERS)
    working = recorded - waiting
    return (
        1.0 - min(1.0, taken / working) if working else 1.0,
        1.0 - max(0.0, taken - working) / waiting if waiting else 1.0,
    )


def _with_workers(found: InputDiagnosis) -> InputAdvice:
    if found.waits + found.receives + found.starts < found.least:
        return InputAdvice.KEEPS_UP
    starting = found.starts + found.first_batches
    if found.use.starts and not _are_persistent(found.use) and starting >= max(found.least, MOSTLY * found.making):
        return InputAdvice.PERSISTENT_WORKERS
    # what is waited for beside receiving, earlier batches would save too
    if 0 < found.made_seconds < found.receive_seconds and found.receives >= found.least:
        return InputAdvice.NO_WORKERS
    if found.receives > found.waits:
        return InputAdvice.LARGER_BATCHES
    if found.busy < BUSY:
        busiest = found.use.busiest_worker
        late = InputAdvice.UNEVEN if busiest >= max(BUSY, found.busy + _UNEVEN) else InputAdvice.LATE
        return late if found.waits >= found.least / 2 else InputAdvice.NONE
    return _busy_workers(found)


def _are_persistent(use: LoaderUse) -> bool:
    """Whether all loaders keep their workers from one start to the next; False where that is not known."""
    return bool(use.loaders) and all(loader.persistent_workers for loader in use.loaders)


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
    if found.making < found.least:
        return InputAdvice.LITTLE_TO_GAIN
    if found.starts > MOSTLY * found.making:  # workers would not start a loader sooner
        return InputAdvice.NONE
    return InputAdvice.USE_WORKERS if found.batch_seconds > HANDOVER else InputAdvice.CHEAP_BATCHES


def _share(parts: Iterable[InputPart], name: str) -> float:
    return sum(part.share for part in parts if part.name == name)
