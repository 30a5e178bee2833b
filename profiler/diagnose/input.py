"""Diagnoses the input of a run: whether it limits the training, and what would make it faster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import LibraryFunction
from profiler.analyse.model.input import RECEIVE, SEND, WAITING_FOR_INDEX, WAITING_FOR_WORKERS, InputPart, LoaderUse
from profiler.diagnose.model import MOST, InputAdvice, InputDiagnosis

SUBSTANTIAL: Final = 0.05
"""Share of a step below which the input does not matter: without it the program would be less than 6% faster."""
BUSY: Final = 0.8
"""Share of their time from which workers count as busy: the rest is lost where one waits for its turn."""
HANDOVER: Final = 1e-3
"""Seconds that the training process spends on receiving a batch of two small tensors from a worker: 0.6 to 1.0 ms of
CPU time (torch 2.13, one core of an EPYC). Workers that save less than that per batch make a program slower."""
_UNEVEN: Final = 0.2
"""By how much the share of time in which the busiest worker works exceeds the mean of uneven batches. A choice."""
_FREE: Final = 0.5
"""Cores that are free on average from which workers that do not run do not wait for one. A choice."""
_STARTS: Final = 0.5
"""Starts of a loader for each batch above which it is started for single ones: epochs of two batches have fewer."""
_LOADER: Final = "torch/utils/data/dataloader.py"
_NEXT_INDEX: Final = "_next_index"
"""The file and the name of the function of torch's loader that asks its sampler for the indices of a batch."""
_MAKING: Final = ("dataset", "dataset map", "collate", "tokenize")
"""Parts of the input that the training process has too if it makes its batches itself."""


def diagnose_input(analysis: Analysis) -> InputDiagnosis | None:
    """Return what limits the input, with the figures that say so; None where no input was seen.

    Receiving a batch takes longer where the workers are busy with making others: a thread of the worker hands each
    tensor over, and has to wait for its GIL. What receiving takes beyond `HANDOVER`, or beyond the time in which the
    workers send, is then a wait for the workers.
    """
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
    step, batches = analysis.value("step_time") or 0.0, use.batches or 1.0
    around_starts = waiting * use.around_starts / step if step else 0.0
    making_share = sum((waiting if part.name == WAITING_FOR_WORKERS else working) * part.share for part in loader)
    drawing = sum(each.below.active for each in sampling_functions(analysis))
    sampling = min(drawing / step, making_share) if step else 0.0
    made_share = 1.0 - sampling / making_share if making_share else 1.0
    receives = working * _share(loader, RECEIVE)
    late, sends = 0.0, [part for part in workers if part.name == SEND]
    if sends and step and 1.0 - idle - _share(workers, SEND) >= BUSY:
        sending = max(HANDOVER * batches, _seconds(sends))
        late = max(0.0, receives - sending / step)
    diagnosis = InputDiagnosis(
        InputAdvice.NONE,
        use,
        cores=int(cores) if isinstance(cores, int | float) else None,
        waits=max(0.0, waiting * _share(loader, WAITING_FOR_WORKERS) - around_starts - sampling) + late,
        receives=receives - late,
        starts=working * _share(loader, "loader start"),
        around_starts=around_starts,
        sampling=sampling,
        making=making_share,
        batch_seconds=made_share * _seconds(loader) / batches,
        receive_seconds=working
        * _seconds(part for part in loader if part.name == RECEIVE)
        / batches
        * (1.0 - late / receives if receives else 1.0),
        made_seconds=_seconds(part for part in making if part.name in _MAKING)
        / batches
        * (_share_on_core(use, 1.0 - idle) if workers else 1.0),
        # waits for a core are left out, so that a busy machine does not hide the input
        substantial=SUBSTANTIAL * (max(0.0, 1.0 - analysis.core_wait / step) if step else 1.0),
        busy=1.0 - idle,
        inline=working * sum(part.share for part in inline),
        inline_part=max(inline, key=lambda part: part.share, default=None),
    )
    return replace(diagnosis, advice=_with_workers(diagnosis) if workers else _without_workers(diagnosis, loader))


def is_started_for_batches(use: LoaderUse) -> bool:
    """Return whether a loader is started for single batches, as by `next(iter(loader))`."""
    return use.starts > _STARTS * (use.batches or 1.0)


def sampling_functions(analysis: Analysis) -> tuple[LibraryFunction, ...]:
    """Return the function in which torch's loader asks its sampler for indices, from a hundredth of a step on."""
    return tuple(each for each in analysis.library if each.file == _LOADER and each.name.endswith(_NEXT_INDEX))


def _share_on_core(use: LoaderUse, busy: float) -> float:
    """Return the least share of the time of making batches in which workers do not wait for a core: the training
    process would not wait in their place. They wait for one also when they are woken for the next batch."""
    waits, cpu = use.worker_core_wait or 0.0, use.worker_cpu or 0.0
    return max(1.0 - min(1.0, waits / busy), granted_share(cpu, waits)) if busy > 0 else 1.0


def granted_share(on_cpu: float | None, core_wait: float | None) -> float:
    """Return the share of the time in which threads that are ready to run do run; 0 if that is not known."""
    return on_cpu / (on_cpu + core_wait) if on_cpu and core_wait is not None else 0.0


def _shares_with_core(analysis: Analysis, parts: Collection[InputPart]) -> tuple[float, float]:
    """Return the shares of the recorded time of these parts that the breakdown, which takes waits for a core out,
    keeps: of work, and of waiting for workers, which loses only what is more than all work."""
    measure, recorded = analysis.breakdown.get("input"), _seconds(parts)
    if measure is None or measure.value is None or not recorded:
        return 1.0, 1.0
    taken = max(0.0, recorded - measure.value)
    waiting = _seconds(part for part in parts if part.name == WAITING_FOR_WORKERS)
    working = recorded - waiting
    return (
        1.0 - min(1.0, taken / working) if working else 1.0,
        1.0 - max(0.0, taken - working) / waiting if waiting else 1.0,
    )


def _with_workers(found: InputDiagnosis) -> InputAdvice:
    starting = found.starts + found.around_starts
    if found.waits + found.receives + starting < found.substantial:
        return InputAdvice.NONE
    is_most = starting >= max(found.substantial, found.waits, found.receives)
    if found.use.starts and is_most and not are_kept(found.use):
        return InputAdvice.PERSISTENT_WORKERS
    # what is waited for beside receiving, earlier batches would save too
    if 0 < found.made_seconds < found.receive_seconds and found.receives >= found.substantial:
        return InputAdvice.NO_WORKERS
    if found.receives > found.waits:
        return InputAdvice.LARGER_BATCHES
    if found.busy < BUSY:
        busiest = found.use.busiest_worker
        late = InputAdvice.UNEVEN if busiest >= max(BUSY, found.busy + _UNEVEN) else InputAdvice.LATE
        return late if found.waits >= found.substantial / 2 else InputAdvice.NONE
    return _busy_workers(found)


def are_kept(use: LoaderUse) -> bool:
    """Return whether the loaders keep their workers from one start to the next; False where that is not known. A loader
    that is made anew for each epoch has other workers each time."""
    if not are_persistent(use):
        return False
    if any(loader.made_anew is None for loader in use.loaders):  # a run of an earlier version
        return use.worker_processes <= use.workers
    return not any(loader.made_anew for loader in use.loaders)


def are_persistent(use: LoaderUse) -> bool:
    """Return whether all loaders are set to keep their workers; False where that is not known."""
    return bool(use.loaders) and all(loader.persistent_workers for loader in use.loaders)


def _busy_workers(found: InputDiagnosis) -> InputAdvice:
    use = found.use
    if use.worker_cpu is None:
        return InputAdvice.WORKERS_LIMIT
    if use.worker_core_wait is not None and use.worker_core_wait >= MOST * found.busy:
        return InputAdvice.MORE_CORES
    is_core_free = use.free_cores is not None and use.free_cores >= _FREE
    if use.worker_cpu < MOST * found.busy and (use.worker_core_wait is not None or is_core_free):
        return InputAdvice.MORE_WORKERS
    return InputAdvice.WORKERS_LIMIT


def _without_workers(found: InputDiagnosis, loader: list[InputPart]) -> InputAdvice:
    # workers would not start a loader sooner
    if not loader or found.made < found.substantial or found.starts > MOST * found.made:
        return InputAdvice.NONE
    return InputAdvice.USE_WORKERS if found.batch_seconds > HANDOVER else InputAdvice.CHEAP_BATCHES


def _seconds(parts: Iterable[InputPart]) -> float:
    return sum(part.seconds_per_step for part in parts)


def _share(parts: Iterable[InputPart], name: str) -> float:
    return sum(part.share for part in parts if part.name == name)
