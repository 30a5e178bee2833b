"""The run as a whole: its start, its end, its memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from profiler.analyse.finding import Confidence
from profiler.analyse.ledger.cells import MAIN, Cell, Ledger, Owner
from profiler.analyse.ledger.cells import Period as LedgerPeriod
from profiler.analyse.model import Period, Stage
from profiler.diagnose.model import MOST
from profiler.diagnose.rule import MAX_SITES, RunClaim, StepCosts, rule, rules_of
from profiler.run.model import Site

LONG_S: Final = 30.0
"""Seconds outside of the steps, with imports, from which they are told. A choice: importing torch takes up to 20 s
beside other programs on two cores."""
LONG_OWN_S: Final = 5.0
"""The same for seconds without imports, which the program itself spends. A choice."""
MUCH: Final = 0.2
"""Share of the run from which they are told. A choice: of a run of 150 s, 30 s."""


def stage_seconds(costs: StepCosts, *stages: Stage) -> tuple[float, float]:
    """Seconds of these stages, and their share of the run."""
    chosen = [time for time in costs.analysis.stages if time.stage in stages]
    return sum(time.seconds for time in chosen), sum(time.share for time in chosen)


def run_seconds(costs: StepCosts) -> float:
    """Seconds of the whole run; 0: not known."""
    info = costs.analysis.info
    return (info.end - info.begin) * 1e-9 if info.begin and info.end else 0.0


def period_sites(costs: StepCosts, period: Period) -> tuple[Site, ...]:
    """The lines that take most of a period in which no step is measured."""
    lines = next((each.lines for each in costs.analysis.startup_teardown if each.period is period), ())
    return tuple(line.site for line in lines[:MAX_SITES])


@rule(
    "long-startup",
    "Much of the run passes before its first step",
    ("The first step begins after {seconds:time}, {share:share} of the run.", "Imports take {imports:time} of it."),
    "Prepare data and downloads once and store the result; import only what the program uses.",
    threshold=MUCH,
    threshold_source="A choice: 30 s, or 5 s without imports, and a fifth of the run.",
)
def long_startup(costs: StepCosts) -> RunClaim | None:
    """The time of imports and of all else before the first step."""
    seconds, share = stage_seconds(costs, Stage.IMPORT, Stage.START)
    imports, _ = stage_seconds(costs, Stage.IMPORT)
    own = seconds - imports if imports else 0.0  # level light does not record imports
    if (seconds < LONG_S and own < LONG_OWN_S) or share < MUCH:
        return None
    sites = period_sites(costs, Period.STARTUP)
    return RunClaim(seconds, share, sites, {"imports": imports or None}, period=LedgerPeriod.BEFORE)


@rule(
    "long-tail",
    "Much of the run passes after its last step",
    (
        "The program ends {seconds:time} after its last step, {share:share} of the run.",
        "A final test of the model usually comes after the last step.",
    ),
    "Do work that does not need the device in a program of its own.",
    threshold=MUCH,
    threshold_source="A choice: 30 s and a fifth of the run.",
)
def long_tail(costs: StepCosts) -> RunClaim | None:
    """The time from the last step to the end of the program."""
    seconds, share = stage_seconds(costs, Stage.END)
    if seconds < LONG_S or share < MUCH:
        return None
    return RunClaim(seconds, share, period_sites(costs, Period.TEARDOWN), period=LedgerPeriod.AFTER)


_LEAST_BYTES: Final = 32 << 20
_LEAST_SHARE: Final = 0.05
"""Growth in the recorded steps from which it is told, in bytes and as a share of the largest memory. A choice: in a
healthy program, allocators and caches grow by some MB."""


@rule(
    "memory-creep",
    "The memory of the training process grows with each step",
    (
        "It grows by {growth:size} per step, {total:size} in {steps:count} steps.",
        "In the slowest third of the run it grows by {low:size} per step, in the fastest by {high:size}.",
        "A replay buffer, or a dataset that is cached in the first epoch, grows like this too until it is full.",
    ),
    "Look for a list, a cache or a sum that keeps tensors with their graphs: store loss.item() or loss.detach().",
    code="history.append(loss.detach())",
    threshold_source="32 MiB and a twentieth of the memory: a choice. It grows in each third of the run.",
)
def memory_creep(costs: StepCosts) -> RunClaim | None:
    """The growth of memory that is not the page cache's, where it goes on throughout the run. It costs no time yet."""
    growth, peak = costs.analysis.measures.get("memory_growth"), costs.analysis.value("peak_memory")
    steps = costs.analysis.value("steps") or 0.0
    if growth is None or growth.value is None or not peak:
        return None
    total = growth.value * steps
    if total < max(_LEAST_BYTES, _LEAST_SHARE * peak):
        return None
    return RunClaim(
        values={"growth": growth.value, "low": growth.low, "high": growth.high, "total": total, "steps": steps},
        confidence=Confidence.MEDIUM,  # a buffer that is still being filled grows alike
    )


@rule(
    "one-off-work",
    "A cost that occurs once: {seconds:time} in {steps:steps}",
    (
        "With it, {steps:steps} took {times:number} times as long as the others. The figures of steps leave it out.",
        "{part:share} of the extra time is at this line.",
        "Most of it is {stage}.",
        "There it imports {imports}.",
        "There it calls {calls}.",
    ),
    "A longer run divides it among more steps. To measure steps alone, let the program do it before its first step.",
    fixes=(
        (
            "It occurs once, and a longer run divides it among more steps. To measure steps alone, import {imports} "
            "before the first step."
        ),
    ),
    threshold_source="It must take as much time as 5% of all steps, and 0.1 s. It occurs in at most two steps.",
)
def one_off_work(costs: StepCosts) -> RunClaim | None:
    """The extra time of the steps that were set apart."""
    found = costs.analysis.one_offs
    if found is None:
        return None
    line = found.lines[0] if found.lines else None
    values = {
        "steps": found.count,
        "times": found.times,
        "part": line.share if line else None,
        "calls": f"{line.calls}()" if line and line.calls else None,
        "stage": found.stage or None,
        "imports": line.imports or None if line else None,
    }
    whole, steps = run_seconds(costs), costs.seconds * (costs.analysis.value("steps") or 0.0)
    sites = tuple(each.site for each in found.lines[:MAX_SITES])
    confidence = Confidence.HIGH if found.enough else Confidence.MEDIUM
    share = min(1.0, found.seconds / whole) if whole else 0.0
    of_steps = found.seconds / steps if steps else 0.0
    return RunClaim(found.seconds, share, sites, values, confidence, LedgerPeriod.ONE_OFF, of_steps)


class _Line(NamedTuple):
    """What a line takes per step in each third of the sampled steps, in seconds."""

    site: Site
    begin: float
    middle: float
    end: float
    samples: float
    is_computing: bool
    inside: str
    """The function of a library, or of Python's, that takes most of it; empty: none does."""

    @property
    def deviations(self) -> float:
        """By how many standard deviations of a count of samples the last third has more than the first."""
        whole = self.begin + self.middle + self.end
        return math.sqrt(self.samples / whole) * (self.end - self.begin) / math.sqrt(max(self.begin + self.end, 1e-12))


def _lines(ledger: Ledger) -> list[_Line]:
    """The lines of the measured steps, as far as samples tell their thirds."""
    steps = max(1, ledger.steps.get(MAIN, 0))
    of_line = defaultdict[Site, list[Cell]](list)
    for cell in ledger.of(LedgerPeriod.STEPS):
        if cell.is_own and cell.place is not None and any(cell.thirds):
            of_line[cell.place].append(cell)
    lines = []
    for site, cells in of_line.items():
        whole = sum(cell.seconds for cell in cells)
        per_step = 3.0 * whole / (steps * sum(part for cell in cells for part in cell.thirds))
        begin, middle, end = (per_step * sum(cell.thirds[third] for cell in cells) for third in range(3))
        computing = sum(cell.seconds for cell in cells if cell.kind in ("compute", "framework"))
        inside = (cell for cell in cells if cell.owner in (Owner.LIBRARY, Owner.PYTHON) and cell.seconds > MOST * whole)
        function = next((cell.function for cell in inside), "")
        samples = sum(cell.samples for cell in cells)
        lines.append(_Line(site, begin, middle, end, samples, computing > MOST * whole, function))
    return lines


def _growing_line(lines: Sequence[_Line], usual: Sequence[float]) -> _Line | None:
    """The line whose time grows; None where samples do not tell it.

    :param usual: `Ledger.usual` where it grows; then samples need only tell which line does.
    """
    line = max(lines, key=lambda each: each.end - each.begin, default=None)
    if line is None or not line.begin:
        return None
    others = [sum(each.begin for each in lines) - line.begin, sum(each.end for each in lines) - line.end]
    if usual:
        grown = sum(each.end - each.begin for each in lines)
        return line if line.deviations >= _LIKELY and line.end - line.begin >= MOST * grown else None
    is_steady = _GOES_ON * line.begin <= line.middle <= line.end / _GOES_ON
    is_alone = line.end * others[0] >= _GROWS_MORE * line.begin * others[1]
    is_sure = line.samples >= _MANY_SAMPLES and line.deviations >= _SURE
    return line if is_sure and is_steady and is_alone and line.end >= _GROWS * line.begin else None


_GROWS, _GOES_ON = 1.8, 1.2
"""Times as long in the last third of the steps as in the first, and in a third as in the one before, from which usual
steps grow, or the time of a line. A choice: of the clinic's 133 first recordings, the medians of the steps without the
time of other programs do so only in programs that keep more and more."""
_GROWS_MORE: Final = 1.7
"""Times as much as all other lines, from which a line grows although usual steps do not. A busy machine slows down all
of them. A choice."""
_MANY_SAMPLES, _SURE, _LIKELY = 40, 4.0, 1.0
"""Samples of such a line, its standard deviations, and those of a line that grows with the steps. Choices."""


def _are_growing(usual: Sequence[float]) -> bool:
    """Whether steps grow by their clocks (`Ledger.usual`)."""
    if not usual:
        return False
    begin, middle, end = usual
    return end >= _GROWS * begin and _GOES_ON * begin <= middle <= end / _GOES_ON


@rule(
    "growing-steps",
    "Steps take longer and longer ({first:time}, later {last:time})",
    (
        "These are medians of the first and the last third of {steps:count} steps, without what other programs took.",
        (
            "The time at {site:place} grows: {begin:time} in each step of the first third of the sampled steps, "
            "{end:time} of the last."
        ),
        "Most of it is in {inside}().",
    ),
    "Look for what grows, such as a list or a deque, a file that is written anew, or handlers and hooks that are added "
    "again. Append, send or compute only what is new, and keep only what is needed.",
    fixes=(
        (
            "If the tensors at {computing:place} become larger, or hooks are added or a graph is kept, find what adds "
            "to them. If not, the numbers may have become denormal, which a CPU computes slowly: see whether "
            "torch.set_flush_denormal(True) helps."
        ),
    ),
    threshold_source="_GROWS and _GOES_ON.",
)
def growing_steps(costs: StepCosts) -> RunClaim | None:
    """What usual steps take more than those of the first third, by their clocks, or by the samples of a line."""
    ledger = costs.analysis.ledger
    if ledger is None or costs.has_queue:
        return None
    usual = ledger.usual if _are_growing(ledger.usual) else ()
    line = _growing_line(_lines(ledger), usual)
    if usual:
        first, last, mean = usual[0], usual[2], sum(usual) / 3.0
    elif line is not None:  # what else a step takes remains the same
        mean, of_line = costs.seconds, (line.begin + line.middle + line.end) / 3.0
        first, last = mean + line.begin - of_line, mean + line.end - of_line
    else:
        return None
    steps, run = costs.analysis.value("steps") or 0.0, run_seconds(costs)
    values = {
        "first": first,
        "last": last,
        "steps": steps if usual else None,
        "site": line.site if line else None,
        "begin": line.begin if line else None,
        "end": line.end if line else None,
        "inside": (line.inside or None) if line else None,
        "computing": line.site if line and line.is_computing else None,
    }
    seconds = (mean - first) * steps
    share = min(1.0, seconds / run) if run else 0.0
    confidence = Confidence.HIGH if line else Confidence.MEDIUM
    return RunClaim(
        seconds,
        share,
        (line.site,) if line else (),
        values,
        confidence,
        of_steps=(mean - first) / mean if mean else 0.0,
    )


PLUGINS = rules_of(globals())
