"""Makes sentences of the diagnosis of the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from profiler.analyse.model import BETWEEN_BATCHES, MARKED_DATA, THE_LOADER, InputPart
from profiler.core.units import count, seconds, share
from profiler.diagnose.model import InputAdvice, InputDiagnosis
from profiler.report.text import at, input_part, plural

_WORTH_NAMING: Final = 0.05
"""Share of a step below which input that is made outside of any loader is not mentioned."""


def input_text(found: InputDiagnosis) -> str:
    """What limits the input and what would help, then the input that is made outside of any loader."""
    return " ".join(filter(None, (_ADVICE[found.advice](found), _inline(found))))


def input_advice(found: InputDiagnosis) -> str:
    """What would help; empty where nothing is known to."""
    return "" if found.advice in _NO_ADVICE else _ADVICE[found.advice](found)


_NO_ADVICE: Final = (InputAdvice.NONE, InputAdvice.KEEPS_UP, InputAdvice.LITTLE_TO_GAIN)


UNNAMED_PARTS: Final = (THE_LOADER, MARKED_DATA, BETWEEN_BATCHES)
"""Parts of the input that say nothing about its work."""


def part_name(part: InputPart) -> str:
    """The name of a part of the input in a sentence."""
    name = _NAMES.get(part.name, "") if part.context == "loader" else ""
    return name or input_part(part)


_NAMES: Final[Mapping[str, str]] = {"dataset": "the dataset", "collate": "collating", "send": "sending batches"}


def _inline(found: InputDiagnosis) -> str:
    if found.inline < _WORTH_NAMING or found.inline_part is None:
        return ""
    name = found.inline_part.name if found.inline_parts == 1 else f"mostly {found.inline_part.name}"
    return f"Outside of any loader the training thread spends {share(found.inline)} of each step on input: {name}."


def _workers(found: InputDiagnosis, one: str, several: str) -> str:
    """`The worker is`, `2 workers are`, `Workers are`"""
    number = found.use.workers
    if number == 1:
        return f"The worker {one}"
    return f"{number} workers {several}" if number else f"Workers {several}"


def _verb(found: InputDiagnosis, one: str, several: str) -> str:
    return one if found.use.workers == 1 else several


def _part(part: InputPart | None) -> str:
    return f"{part_name(part)}{at(part.site)}" if part else "nothing that was recorded"


def _most(part: InputPart | None) -> str:
    return f", mostly in {_part(part)}" if part and part.name not in UNNAMED_PARTS else ""


def _busy(found: InputDiagnosis) -> str:
    return f"{_workers(found, 'is', 'are')} busy {share(found.busy)} of the time"


def _limit(found: InputDiagnosis) -> str:
    """Busy workers that run, or whose CPU time is not known."""
    text = (
        f"{_busy(found)} and the training thread waits for them {share(found.waits)} of each step. Most of their time "
        f"goes to {_part(found.part)}."
    )
    if not found.use.workers or found.cores is None:
        return text
    cores = f" The program has {plural(found.cores, 'core')}"
    if found.use.worker_cpu is None:
        return f"{text}{cores}."
    on_cpu = f" and a worker runs on one {share(found.use.worker_cpu)} of the time"
    if found.use.worker_cpu < found.busy / 2:  # whether it waits for a core is not known
        return f"{text}{cores}{on_cpu}."
    outlook = "more workers can help" if found.use.workers < found.cores - 1 else "more workers would compete for them"
    return f"{text}{cores}{on_cpu}: {outlook}."


def _cheap(found: InputDiagnosis) -> str:
    return (
        f"A batch takes {seconds(found.batch_seconds)} to make: workers (num_workers) would not help, since receiving "
        "a batch from one takes about 1 ms; larger batches, or fewer calls per item, would."
    )


def _starts(found: InputDiagnosis) -> str:
    every = 1 / found.use.starts if found.use.starts else 0.0
    often = f", once in {count(round(every))} steps" if every >= 2 else ""
    return (
        f"Starting the loader's workers takes {share(found.starts)} of each step{often}, and waiting for their batches "
        f"{share(found.waits)}: persistent_workers=True keeps them from one epoch to the next."
    )


def _late(found: InputDiagnosis) -> str:
    workers = _workers(found, "waits", "wait").lower()
    return (
        f"The training thread waits {share(found.waits)} of each step although {workers} {share(1 - found.busy)} of "
        "the time for work: batches come late, not slowly, as after a start, with few prefetched, or when one takes "
        "much longer than the others."
    )


_ADVICE: Final[Mapping[InputAdvice, Callable[[InputDiagnosis], str]]] = {
    InputAdvice.NONE: lambda _: "",
    InputAdvice.KEEPS_UP: lambda found: (
        f"{_workers(found, 'waits', 'wait')} {share(1 - found.busy)} of the time for work: the input keeps up."
    ),
    InputAdvice.LITTLE_TO_GAIN: lambda found: (
        f"The training thread spends {share(found.making)} of each step in its loader: there is little to gain."
    ),
    InputAdvice.USE_WORKERS: lambda found: (
        f"The training thread makes its batches itself, {seconds(found.batch_seconds)} each{_most(found.part)}: "
        "workers (num_workers) could make them meanwhile."
    ),
    InputAdvice.CHEAP_BATCHES: _cheap,
    InputAdvice.NO_WORKERS: lambda found: (
        f"Making a batch takes {seconds(found.made_seconds)}, and getting it from a worker takes the training thread "
        f"{seconds(found.batch_seconds)}: without workers (num_workers=0), or with larger batches, it would take less."
    ),
    InputAdvice.PERSISTENT_WORKERS: _starts,
    InputAdvice.LARGER_BATCHES: lambda found: (
        f"Receiving batches from workers takes {share(found.receives)} of each step, waiting for them "
        f"{share(found.waits)}: fewer and larger tensors in a batch are received faster."
    ),
    InputAdvice.LATE: _late,
    InputAdvice.WORKERS_LIMIT: _limit,
    InputAdvice.MORE_WORKERS: lambda found: (
        f"{_busy(found)}, but {_verb(found, 'it runs', 'they run')} on a CPU only {share(found.use.worker_cpu or 0.0)} "
        f"of it: {_verb(found, 'it waits', 'they wait')} in "
        f"{_part(found.part)}, so more workers can help, also more than there are cores."
    ),
    InputAdvice.MORE_CORES: lambda found: (
        f"{_busy(found)}, but {_verb(found, 'it waits', 'they wait')} for a core "
        f"{share(found.use.worker_core_wait or 0.0)} of it: more cores would help, "
        "more workers would not."
    ),
}
