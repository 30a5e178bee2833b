"""The run as a whole: its start, its end, its memory."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import Confidence
from profiler.analyse.ledger.cells import Period as LedgerPeriod
from profiler.analyse.model import Period, Stage
from profiler.diagnose.rule import MAX_SITES, RunClaim, StepCosts, rule, rules_of
from profiler.run.model import Site

LONG_S: Final = 30.0
"""Seconds outside of the steps, with imports, from which they are told. A choice: importing torch takes up to 20 s
beside other programs on two cores."""
LONG_OWN_S: Final = 10.0
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
    threshold_source="A choice: 30 s, or 10 s without imports, and a fifth of the run.",
)
def long_startup(costs: StepCosts) -> RunClaim | None:
    """The time of imports and of all else before the first step."""
    seconds, share = stage_seconds(costs, Stage.IMPORT, Stage.START)
    imports, _ = stage_seconds(costs, Stage.IMPORT)
    if (seconds < LONG_S and seconds - imports < LONG_OWN_S) or share < MUCH:
        return None
    sites = period_sites(costs, Period.STARTUP)
    return RunClaim(seconds, share, sites, {"imports": imports}, period=LedgerPeriod.BEFORE)


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
    whole = run_seconds(costs)
    sites = tuple(each.site for each in found.lines[:MAX_SITES])
    confidence = Confidence.HIGH if found.enough else Confidence.MEDIUM
    share = min(1.0, found.seconds / whole) if whole else 0.0
    return RunClaim(found.seconds, share, sites, values, confidence, LedgerPeriod.ONE_OFF)


PLUGINS = rules_of(globals())
