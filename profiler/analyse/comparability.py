"""Tells whether runs can be compared, and forms paired ratios where their rounds alternate."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from statistics import fmean
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import (
    MAX_WITHOUT_CORE,
    WAITS_FOR_CORE,
    WITHOUT_CORE,
    Mismatch,
    Ratio,
    ResultComparison,
    ResultDifference,
)
from profiler.analyse.model.measures import Measure
from profiler.analyse.statistics import mean_interval, median
from profiler.core.errors import Notice
from profiler.core.facts import program
from profiler.core.metrics import RATES
from profiler.run.model import RunInfo, StatedResult
from profiler.run.tables import result_positions

ONE_PAIR = Notice("one-pair")
BOUNDED: Final = (*RATES, "step_time")
OF_WALL_TIME: Final = (
    *BOUNDED, "step_time_p50", "step_time_p95", "steps", "host_cpu", "children_cpu", "device_cpu", "device_utilization",
)  # fmt: skip
"""Measures that change where the program waits for a core, and those of them of which a bound is known even then."""
_LEAST_WITH_CORE: Final = 1e-9
"""Keeps the logarithm of a share of time finite."""


@dataclass(frozen=True, slots=True)
class SideRuns:
    """One side of a comparison as it was recorded."""

    label: str
    command: str
    light: tuple[Analysis, ...]
    """Pair i of a ratio is run i of this side over run i of the baseline."""
    detail: Analysis | None
    """The breakdown pass."""
    again: tuple[Analysis, ...] = ()
    """A second run in each round; ratios are of the geometric mean of both."""
    pairs: int = 0
    """Pairs of blocks of steps that the speeds come from; 0: whole runs are compared."""
    half: float = 0.0
    """Half width of the interval of the log of its speed over the baseline's, which these blocks gave."""
    doubt: Notice | None = None
    """Why these blocks do not tell its speed; None: they do."""
    method: tuple[Notice, ...] = ()
    """How these blocks were measured."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Package in the environment of its command -> version; empty: not known, or the same for all sides."""

    @property
    def has_separate_detail(self) -> bool:
        """Return whether the breakdown pass is a separate run, not one that ratios come from too."""
        return self.detail is not None and all(self.detail is not run for run in self.light)

    @property
    def compared_runs(self) -> tuple[Analysis, ...]:
        """Return the runs whose results are compared: all of them, each once."""
        detail = (self.detail,) if self.detail is not None and self.has_separate_detail else ()
        return (*self.light, *self.again, *detail)


def over_runs(side: SideRuns) -> Mapping[str, Measure]:
    """Return every measure over the light runs that have it, second ones too: the geometric mean, so that values of two
    sides have the quotient that their ratio is, with the lowest and the highest. Of values without a logarithm the
    median."""
    return {name: _over_runs(name, side) for name in _names(side)}


def _over_runs(name: str, side: SideRuns) -> Measure:
    measures = [run.measures[name] for run in (*side.light, *side.again) if name in run.measures]
    measured = [measure for measure in measures if measure.value is not None]
    if not measured:
        return replace(measures[0], n=0)
    values = [measure.value for measure in measured if measure.value is not None]
    low, high = min(values), max(values)
    value = median(values) if low <= 0 or low == high else math.exp(fmean(map(math.log, values)))
    return replace(measured[0], value=value, low=low, high=high, n=len(values))


def ratios(base: SideRuns, side: SideRuns) -> Mapping[str, Ratio]:
    """Return the ratio of every measure that both sides have."""
    other = _names(side)
    return {name: paired_ratio(name, base, side) for name in _names(base) if name in other and name != WITHOUT_CORE}


def paired_ratio(name: str, base: SideRuns, side: SideRuns) -> Ratio:
    """Return the geometric mean of side over base, over pairs of runs, with the 95% t interval of its logarithm.

    A ratio over zero, or of zero, has no logarithm: it is None with the reason, never infinite.
    """
    pairs = list(zip(_values(base, name), _values(side, name), strict=False))
    measured = [(before, after) for before, after in pairs if before is not None and after is not None]
    reason = _no_ratio(name, base, side, measured)
    if reason:
        return Ratio(name, None, None, None, len(measured), different=False, reason=reason)
    if name in BOUNDED and side.pairs:
        return _of_blocks(name, side, measured)
    if name in OF_WALL_TIME and (waits := core_waits(base, side)):
        bound = _bound(name, base, side) if name in BOUNDED else None
        different = bound is not None
        return Ratio(name, None, None, None, len(measured), different, Notice(WAITS_FOR_CORE, waits), bound)
    if len({*measured}) == 1 and len(measured) > 1:  # counted exactly alike in every pair: no spread, and no rounding
        exact = measured[0][1] / measured[0][0]
        return Ratio(name, exact, exact, exact, len(measured), different=exact != 1)
    mean, low, high = mean_interval(np.log([after / before for before, after in measured]))
    if low is None or high is None:
        return Ratio(name, math.exp(mean), None, None, 1, different=False, reason=ONE_PAIR)
    return Ratio(name, math.exp(mean), math.exp(low), math.exp(high), len(measured), different=not low <= 0 <= high)


def _of_blocks(name: str, side: SideRuns, measured: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio of speeds or times of alternating blocks of steps."""
    if side.doubt is not None:
        return Ratio(name, None, None, None, side.pairs, different=False, reason=side.doubt)
    log = fmean(math.log(after / before) for before, after in measured)
    low, high = math.exp(log - side.half), math.exp(log + side.half)
    return Ratio(name, math.exp(log), low, high, side.pairs, different=abs(log) > side.half)


def core_waits(base: SideRuns, side: SideRuns) -> dict[str, Any] | None:
    """Return the side that waited for a core for the larger share of its time, and that share; None: neither did for
    long."""
    known = [(each, [wait for wait in _values(each, WITHOUT_CORE) if wait is not None]) for each in (base, side)]
    shares = [(fmean(waits), each.label) for each, waits in known if waits]
    share, label = max(shares, default=(0.0, ""))
    return {"side": label, "share": share} if share > MAX_WITHOUT_CORE else None


def _bound(name: str, base: SideRuns, side: SideRuns) -> float | None:
    """Return what the ratio of speeds, or of times, is beyond if no side waits for a core; None: that is not known.

    All waits of the faster side stay in its time, and those of the slower side are taken out of its own. So each pair
    gives a ratio that is too near to 1, and the end of their interval that is nearer to 1 is the bound.
    """
    pairs = list(zip(*(_values(each, what) for what in (name, WITHOUT_CORE) for each in (base, side)), strict=False))
    measured = [(math.log(after / before), *waits) for before, after, *waits in pairs if before and after]
    direction = math.copysign(1, fmean(ratio for ratio, *_ in measured))
    slower = 1 if (direction > 0) is (name in RATES) else 2
    with_core = [max(1 - (pair[slower] or 0.0), _LEAST_WITH_CORE) for pair in measured]
    logs = [direction * pair[0] + math.log(share) for pair, share in zip(measured, with_core, strict=True)]
    mean, low, _ = mean_interval(logs)
    nearest = mean if low is None else low
    return math.exp(direction * nearest) if nearest > 0 else None


def _no_ratio(name: str, base: SideRuns, side: SideRuns, pairs: Sequence[tuple[float, float]]) -> Notice | None:
    if not pairs:
        for runs in (base, side):
            reason = next((run.measures[name].reason for run in runs.light if name in run.measures), None)
            if reason:
                return Notice("not-measured-in", {"side": runs.label, "reason": reason})
        return Notice("not-measured-in-pairs")
    for number, runs in enumerate((base, side)):
        if any(pair[number] == 0 for pair in pairs):
            return Notice("zero", {"side": runs.label})
        if any(pair[number] < 0 or not math.isfinite(pair[number]) for pair in pairs):
            return Notice("not-positive", {"side": runs.label})
    return None


def _names(side: SideRuns) -> dict[str, None]:
    return dict.fromkeys(name for run in side.light for name in run.measures)


def _values(side: SideRuns, name: str) -> list[float | None]:
    """Return one value for each round: where there is a second run of it, the geometric mean."""
    first = [run.value(name) for run in side.light]
    if not side.again:
        return first
    return [_mean(*both) for both in zip(first, (run.value(name) for run in side.again), strict=False)]


def _mean(first: float | None, second: float | None) -> float | None:
    """Return the geometric mean; where one value is missing the other one, and where one has no logarithm that one."""
    if first is None or second is None:
        return second if first is None else first
    if first == second or min(first, second) <= 0:
        return min(first, second)
    return math.sqrt(first) * math.sqrt(second)


# ---------------------------------------------------------------- whether runs can be compared

MUST_BE_EQUAL: Final[Mapping[str, str]] = {
    "device": "another device does the same work at another speed",
    "work": "other mathematics: learning does more than a forward pass, empty kernels do nothing",
    "preset": "a model of another size is other work",
    "dtype": "narrower numbers are less work, and give other results",
    "step": "per-step figures of different steps mean nothing beside each other",
    "tokens_per_chunk": "a step of another size",
    "samples_per_chunk": "a step made of other pieces: more to tokenize for as many tokens",
    "corpus": "another text",
    "corpus_sha256": "another text under the same name",
    "tokenizer": "the same text becomes other tokens",
    "seed": "other weights, and other predictions from them",
    "unit": "what is counted a second is something else",
    "methods": "other ways of fitting do other work",
    "seeds": "other teachers, measurements and students: more or fewer jobs, or others",
    "teacher_ranks": "teachers of other ranks are other problems",
    "student_dims": "students of other dimensions are other work",
    "sequence_length": "sequences of another length are other work",
    "measurements": "students that are fitted to more or fewer sequences do other work",
    "budget": "fits that stop at other losses, or after other numbers of updates or guesses, do other work",
}
"""Fact that a program states through marks.describe -> why sides that differ in it are not comparable."""

_TEXT_FACTS: Final = ("preset", "tokens_per_chunk", "samples_per_chunk", "corpus", "corpus_sha256", "tokenizer", "seed")
_SWEEP_FACTS: Final = ("methods", "seeds", "teacher_ranks", "student_dims", "sequence_length", "measurements", "budget")
"""Facts of programs that train on text, and of sweeps: one that states facts of one kind need not state the other's."""
_SWEEP_ONLY: Final = (*_SWEEP_FACTS, "unit")
"""Any program may count other things than tokens: that alone makes no sweep."""
_MIN_SWEEP_FACTS: Final = 2
"""Models of text state single ones of these facts too, such as `sequence_length`."""

HOST_FACTS: Final[Mapping[str, str]] = {
    "cpu": "another processor runs the same program at another speed",
    "cores": "another number of cores changes what can run at once",
}
"""The same for the machine."""

_WORK_FACTS: Final = ("work", "preset", "step", "corpus", "corpus_sha256", "tokens_per_chunk", "seeds", "student_dims")
"""Facts by which a program states what its work is: those are then compared, not its name."""
_MAX_CHARACTERS: Final = 60
NOT_STATED: Final = "not stated"
_Stated = Mapping[str, list[StatedResult]]
_EXACT: Final = float(1 << 53)
"""Integers from here on have no exact floating-point number."""


def find_mismatches(sides: Sequence[SideRuns], *, ignored: Collection[str] = ()) -> tuple[Mismatch, ...]:
    """Return why the sides are not comparable, facts or else results that differ; empty when they are.

    :param ignored: facts that may differ; results then differ too, and are not compared.
    """
    facts = fact_mismatches(sides, ignored=ignored)
    return facts if facts or ignored else result_mismatches(compare_results(sides))


def result_mismatches(results: Iterable[ResultComparison]) -> tuple[Mismatch, ...]:
    """Return the results that differ. Where facts differ too, other results are what these lead to."""
    return tuple(Mismatch(result.name, result=result) for result in results if result.difference is not None)


def fact_mismatches(
    sides: Sequence[SideRuns], *, ignored: Collection[str] = (), same_program: bool = False
) -> tuple[Mismatch, ...]:
    """Return the facts in which a run, detailed ones included, differs from the first run of the baseline.

    Facts that no run states are no mismatch: `unstated_facts` lists them.

    :param ignored: facts that may differ.
    :param same_program: the sides were not named as two programs, so that they should be runs of one.
    """
    infos = [run.info for side in sides for run in all_runs(side)]
    mismatches: dict[Mismatch, None] = {}
    for info in infos[1:]:
        mismatches |= dict.fromkeys(_different(_identity(infos[0], ignored), _identity(info, ignored)))
    light = [run for side in sides for run in side.light]
    mismatches |= _unlike("step", [run.step.label if run.step else "" for run in light])
    if same_program and not any(name in info.facts for info in infos for name in _WORK_FACTS):
        mismatches |= _unlike("program", [program_name(run.info) for run in light])
    levels = [run.info.level for side in sides for run in side.light]
    mismatches |= dict.fromkeys(Mismatch("level", levels[0], level) for level in levels if level != levels[0])
    return tuple(mismatches)


def counted_mismatches(infos: Sequence[RunInfo]) -> tuple[Mismatch, ...]:
    """Return the facts in which a run that was counted differs from the first one; on any machine the counts are the
    same."""
    first, *others = map(_counted_work, infos)
    return tuple(dict.fromkeys(each for other in others for each in _different(first, other)))


def _counted_work(info: RunInfo) -> Mapping[str, Any]:
    stated = {name: info.facts[name] for name in MUST_BE_EQUAL if name in info.facts}
    if sizes := batch_sizes(info.facts):
        stated["batch size"] = sizes
    return {**stated, "virtual devices": info.facts.get("virtual_cuda", "none")}


def batch_sizes(facts: Mapping[str, Any]) -> str:
    """Return the sizes of batches that loaders give, the smallest first; empty where none is known."""
    loaders = facts.get("loaders")
    sizes = [one.get("batch_size") for one in loaders.values()] if isinstance(loaders, Mapping) else []
    return ", ".join(map(str, sorted({size for size in sizes if isinstance(size, int)})))


def _unlike(name: str, values: Sequence[str]) -> dict[Mismatch, None]:
    stated = [value for value in values if value]
    return dict.fromkeys(Mismatch(name, stated[0], value) for value in stated if value != stated[0])


def program_name(info: RunInfo) -> str:
    """Return the script without its folders, or the module, that a command runs; empty where there is none."""
    return PurePath(program(info.argv)).name


def unstated_facts(sides: Sequence[SideRuns]) -> tuple[str, ...]:
    """Return facts that should be equal and that no run states; of a sweep's only where they state two of them."""
    stated = {name for side in sides for run in all_runs(side) for name in run.info.facts}
    missing = [name for name in MUST_BE_EQUAL if name not in stated]
    if len(stated.intersection(_SWEEP_FACTS)) < _MIN_SWEEP_FACTS:
        return tuple(name for name in missing if name not in _SWEEP_ONLY)
    if stated.isdisjoint(_TEXT_FACTS):
        return tuple(name for name in missing if name not in _TEXT_FACTS)
    return tuple(missing)


def all_runs(side: SideRuns) -> tuple[Analysis, ...]:
    """Return all runs of a side, the detailed one last."""
    return (*side.light, *((side.detail,) if side.detail else ()))


def _identity(info: RunInfo, ignored: Collection[str]) -> Mapping[str, Any]:
    stated = {name: info.facts[name] for name in MUST_BE_EQUAL if name in info.facts and name not in ignored}
    stated |= {f"host {name}": info.host[name] for name in HOST_FACTS if name in info.host}
    if info.facts.get("device") in ("cuda", None) and info.devices:
        stated["GPUs"] = ", ".join(str(device.get("name", "unnamed")) for device in info.devices)
    return stated


def _different(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[Mismatch]:
    for name in dict.fromkeys((*before, *after)):
        if name not in before or name not in after or before[name] != after[name]:
            yield Mismatch(name, _short(before, name), _short(after, name))


def _short(facts: Mapping[str, Any], name: str) -> str:
    text = str(facts[name]) if name in facts else NOT_STATED
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."


def compare_results(sides: Sequence[SideRuns]) -> tuple[ResultComparison, ...]:
    """Return one comparison for each name under which some run states results; empty where no run states any.

    Every run is compared with the first one that states results of that name.
    """
    runs = [(side.label, _by_name(run)) for side in sides for run in side.compared_runs]
    names = dict.fromkeys(name for _, stated in runs for name in stated)
    return tuple(_compare_name(name, [side.label for side in sides], runs) for name in names)


def _by_name(run: Analysis) -> _Stated:
    stated: dict[str, list[StatedResult]] = {}
    for result in run.results:
        stated.setdefault(result.name, []).append(result)
    return stated


def _compare_name(name: str, labels: Sequence[str], runs: Sequence[tuple[str, _Stated]]) -> ResultComparison:
    stating = [(label, stated[name]) for label, stated in runs if name in stated]
    (_, reference), *others = stating
    counts = [_compare_runs(reference, stated) for _, stated in others]
    differences = [
        (label, difference) for (label, _), (*_, difference) in zip(others, counts, strict=True) if difference
    ]
    worst = max(differences, key=lambda each: each[1].different, default=None)
    silent = {label for label, stated in runs if name not in stated}
    speaking = {label for label, stated in runs if name in stated}
    return ResultComparison(
        name,
        runs=len(others),
        compared=min((compared for compared, *_ in counts), default=0),
        stated=max(sum(result.count for result in stated) for _, stated in stating),
        near_ties=max((ties for _, ties, _ in counts), default=0),
        missing=tuple(label for label in labels if label in silent),
        never=tuple(label for label in labels if label not in speaking),
        side="" if worst is None else worst[0],
        difference=None if worst is None else worst[1],
    )


def _compare_runs(
    reference: Sequence[StatedResult], other: Sequence[StatedResult]
) -> tuple[int, int, ResultDifference | None]:
    """Compare as many calls as both runs have: the number of values, of near ties, and what differs."""
    compared = ties = different = 0
    first: dict[str, Any] | None = None
    calls = list(zip(reference, other, strict=False))
    for number, (before, after) in enumerate(calls, 1):
        if before.count != after.count:
            different += max(before.count, after.count)
            compared += max(before.count, after.count)
            first = first or {"call": number, "position": 0, "counts": (before.count, after.count)}
            continue
        is_different, is_tie = _compare_values(before, after)
        compared += len(before.values)
        ties += int(np.sum(is_tie))
        different += int(np.sum(is_different))
        if is_different.any() and first is None:
            index = int(np.argmax(is_different))
            values = before.values[index], after.values[index]
            places = result_positions(before.count, has_margins=bool(before.margins))
            first = {"call": number, "position": places[index], "values": values}
        elif _differs_elsewhere(before, after) and not is_different.any():
            different += 1
            first = first or {"call": number, "position": 0}
    return compared, ties, ResultDifference(different, compared, calls=len(calls), **first) if first else None


def _compare_values(before: StatedResult, after: StatedResult) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which values differ, and which may differ because the two largest scores were nearly equal."""
    rtol, atol = max(before.rtol, after.rtol), max(before.atol, after.atol)
    old, new = (np.array(result.values, np.float64) for result in (before, after))
    if not (before.integer and after.integer):
        with np.errstate(invalid="ignore"):
            close = np.abs(new - old) <= atol + rtol * np.maximum(np.abs(old), np.abs(new))
        same = (close & np.isfinite(old) & np.isfinite(new)) | (old == new) | (np.isnan(old) & np.isnan(new))
        return ~same, np.zeros(len(old), np.bool_)
    unequal = old != new
    if max(np.abs(old).max(), np.abs(new).max()) >= _EXACT:
        unequal = np.array([one != other for one, other in zip(before.values, after.values, strict=True)])
    gaps = [np.array(result.margins) for result in (before, after) if result.margins]
    if not gaps:
        return unequal, np.zeros(len(old), np.bool_)
    may_differ = np.max(gaps, axis=0) <= atol
    return unequal & ~may_differ, unequal & may_differ


def _differs_elsewhere(before: StatedResult, after: StatedResult) -> bool:
    """Return whether integers differ of which not all are stored; of other numbers the checksum shows rounding too."""
    is_exact = before.integer and after.integer and not (before.margins or after.margins)
    return is_exact and len(before.values) < before.count and before.checksum != after.checksum
