"""The run as a whole: its start, its end, its memory."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from profiler.analyse.model.analysis import LOADED_MACHINE
from profiler.analyse.model.finding import Confidence
from profiler.analyse.model.host import BACKWARD, UPDATE, Period, Stage
from profiler.analyse.model.ledger import Cell, Ledger, Owner, Quartiles
from profiler.analyse.model.ledger import Period as LedgerPeriod
from profiler.diagnose.known_cures import DENORMAL, cure_of_function, has_denormal_numbers
from profiler.diagnose.model import MOST
from profiler.diagnose.rule import MAX_SITES, RunClaim, StepCosts, rule
from profiler.run.model import Site

LONG_S: Final = 30.0
"""Seconds outside of the steps, with imports, from which they are told. A choice: importing torch takes up to 20 s
beside other programs on two cores."""
LONG_OWN_S: Final = 5.0
"""The same for seconds without imports, which the program itself spends. A choice."""
MUCH: Final = 0.2
"""Share of the run from which they are told. A choice: of a run of 150 s, 30 s."""


def stage_seconds(costs: StepCosts, *stages: Stage) -> tuple[float, float]:
    """Return the seconds of these stages, and their share of the run."""
    chosen = [time for time in costs.analysis.stages if time.stage in stages]
    return sum(time.seconds for time in chosen), sum(time.share for time in chosen)


def share_of_run(costs: StepCosts, seconds: float) -> float:
    """Return the share of the run that these seconds are; 0: its length is not known."""
    info = costs.analysis.info
    return min(1.0, seconds / (info.end - info.begin) * 1e9) if info.begin and info.end else 0.0


def period_sites(costs: StepCosts, period: Period) -> tuple[Site, ...]:
    """Return the lines that take most of a period in which no step is measured."""
    lines = next((each.lines for each in costs.analysis.startup_teardown if each.period is period), ())
    return tuple(line.site for line in lines[:MAX_SITES])


@rule(
    "long-startup",
    "Much of the run passes before its first step",
    ("The first step begins after {seconds:time}, {share:share} of the run.", "Imports take {imports:time} of it."),
    "Prepare data and downloads once and store the result; import only what the program uses.",
)
def long_startup(costs: StepCosts) -> RunClaim | None:
    """The time of imports and of all else before the first step."""
    seconds, share = stage_seconds(costs, Stage.IMPORT, Stage.START)
    imports, _ = stage_seconds(costs, Stage.IMPORT)
    own = seconds - imports if costs.analysis.info.level != "light" else 0.0  # which does not record imports
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
        "It grows by {growth:size} per step, {total:size} in {steps:n step}.",
        "In the slowest third of the run it grows by {low:size} per step, in the fastest by {high:size}.",
        "A replay buffer, or a dataset that is cached in the first epoch, grows like this too until it is full.",
    ),
    "Look for a list, a cache or a sum that keeps tensors with their graphs: store loss.item() or loss.detach().",
    code="history.append(loss.detach())",
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
    "A cost that occurs once: {seconds:time} in {steps:n step}",
    (
        "With it, {steps:n step} took {times:number} times as long as the others. The figures of steps leave it out.",
        "{part:share} of the extra time is at {line:place}.",
        "Most of it is {stage:stage}.",
        "There it imports {imports}.",
        "There it calls {calls}.",
    ),
    "It occurs once: make it cheaper if your runs are short. To measure steps alone, do it before the first step.",
    fixes=("{cure}", "It occurs once. To measure steps alone, import {imports} before the first step."),
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
        "line": line.site if line else None,
        "calls": f"{line.calls}()" if line and line.calls else None,
        "cure": (cure_of_function(line.calls, outside=True) if line else "") or None,
        "stage": found.stage or None,
        "imports": line.imports or None if line else None,
    }
    steps = costs.seconds * (costs.analysis.value("steps") or 0.0)
    sites = tuple(each.site for each in found.lines[:MAX_SITES])
    confidence = Confidence.HIGH if found.enough else Confidence.MEDIUM
    share = share_of_run(costs, found.seconds)
    of_steps = found.seconds / (found.seconds + steps) if steps else 0.0
    return RunClaim(found.seconds, share, sites, values, confidence, LedgerPeriod.ONE_OFF, of_steps)


_GROWS, _GOES_ON = 1.25, 1.1
"""Times as long in the last third of the steps as in the first, and in a third as in the one before, from which usual
steps grow. Of 260 recordings of the clinic, only programs that keep more and more do so, also from 1.2 and 1.05 on."""


_PHASES: Final = {
    "": "outside of the backward pass and of the optimizer's step",
    "data": "in data loading",
    BACKWARD: "in the backward pass",
    UPDATE: "in the optimizer's step",
    Stage.EVALUATION: "in evaluations",
    Stage.ROLLOUT: "in roll-outs",
    Stage.NO_GRADIENTS: "in work without gradients",
    Stage.COMPILE: "in compilations",
}


def _are_growing(usual: Quartiles) -> bool:
    """Return whether these times grow from third to third, and most of the last ones are longer than most of the
    first."""
    (_, begin, first_high), (_, middle, _), (last_low, end, _) = usual
    return end >= _GROWS * begin and _GOES_ON * begin <= middle <= end / _GOES_ON and last_low > first_high


def _where_it_grows(ledger: Ledger, phase: str) -> dict[str, Any]:
    """Return the times of this phase, and the line that grows, else the function.

    All other lines together must take less than the phase has grown by.
    """
    cells = [
        cell
        for cell in ledger.of(LedgerPeriod.STEPS)
        if cell.is_own and phase == (cell.activity if cell.activity in ledger.usual_phases else "")
    ]
    (_, before, _), (_, middle, _), (_, after, _) = ledger.usual_phases[phase]
    grown, whole = 1.0 - 3.0 * before / (before + middle + after), sum(cell.seconds for cell in cells)
    found: dict[str, Any] = {"phase": _PHASES[phase], "before": before, "after": after}
    placed = [(site, cell) for cell in cells if (site := cell.registered_at or cell.place)]
    for of_function in (False, True):
        groups = defaultdict[Any, list[tuple[Site, Cell]]](list)
        for site, cell in placed:
            groups[(site.file, site.function) if of_function else site].append((site, cell))
        for members in groups.values():
            seconds = sum(cell.seconds for _, cell in members)
            if seconds > max(MOST, 1.0 - grown) * whole:
                site, _ = max(members, key=lambda each: each[1].seconds)
                inside = defaultdict[str, float](float)  # functions of libraries, and the libraries
                for _, cell in members:
                    if cell.owner in (Owner.LIBRARY, Owner.PYTHON):
                        inside[f"{cell.function}()"] += cell.seconds
                        inside[cell.package or "Python's library"] += cell.seconds
                most = next((name for name, amount in inside.items() if amount > MOST * seconds), None)
                of_torch = sum(cell.seconds for _, cell in members if cell.owner is Owner.TORCH) > MOST * seconds
                found |= {"site": site, "torch": site if of_torch else None}
                found["inside"] = f", mostly in {most}" if most else ""
                function = f"{site.function}()" if of_function and site.function != "<module>" else None
                return found | {"function": function, ("of_function" if of_function else "part"): seconds / whole}
    return found


@rule(
    "growing-steps",
    "Steps take longer and longer ({first:time}, later {last:time})",
    (
        "Most of it is {phase}: {before:time}, later {after:time}.",
        "There {part:share} of the time is at {site:place}{inside}.",
        "There {of_function:share} of the time is in {function}{inside}.",
        "These are medians of the first and the last third of {steps:count} steps, without waits for a core.",
        "Longer texts, larger images and layers that are trained from some step on make steps longer, too.",
    ),
    "Look for what grows, such as a list or a deque, a file that is written anew, or handlers and hooks that are added "
    "again. Append, copy, send or compute only what is new, and keep only what is needed, such as a running mean.",
    fixes=(
        "{denormal}",
        (
            "If texts, images or batches become larger on purpose, nothing is wrong. Else look for tensors that are "
            "appended to, hooks that are added again, and graphs that are kept, in what runs at {torch:place}. If "
            "there are none, activations may have become denormal: try torch.set_flush_denormal(True)."
        ),
        (
            "If texts, images or batches become larger on purpose, nothing is wrong. Else activations may have become "
            "denormal, since all {phases:count} recorded parts of a step grow: try torch.set_flush_denormal(True)."
        ),
    ),
)
def growing_steps(costs: StepCosts) -> RunClaim | None:
    """What usual steps take more than those of the first third."""
    analysis, ledger = costs.analysis, costs.analysis.ledger
    # threads beside other programs wait for each other, in time that counts as computing
    is_busy = any(each.code in LOADED_MACHINE for each in analysis.warnings) and costs.number("torch_threads") != 1
    if ledger is None or not ledger.usual or costs.has_queue or costs.is_device_unseen or is_busy:
        return None
    (_, first, _), (_, middle, _), (_, last, _) = ledger.usual
    grown = {name: last - first for name, ((_, first, _), _, (_, last, _)) in ledger.usual_phases.items()}
    whole = sum(more for more in grown.values() if more > 0)
    phase = next((name for name, more in grown.items() if more > MOST * whole), None)
    # a phase has fewer sources of noise than a whole step
    of_phase = phase is not None and last >= _GROWS * first and _are_growing(ledger.usual_phases[phase])
    if not (of_phase or _are_growing(ledger.usual)):
        return None
    steps, more = analysis.value("steps") or 0.0, (middle + last - 2.0 * first) / 3.0
    values: dict[str, Any] = {"first": first, "last": last, "steps": steps}
    if phase is not None:
        values |= _where_it_grows(ledger, phase)
    elif len(ledger.usual_phases) > 1 and all(map(_are_growing, ledger.usual_phases.values())):
        values["phases"] = len(ledger.usual_phases)
    if costs.fact("device") != "cpu":
        values |= {"torch": None, "phases": None}
    elif has_denormal_numbers(costs.analysis.info.facts):
        values["denormal"] = DENORMAL
    sites = (values["site"],) if values.get("site") else ()
    share, of_steps = share_of_run(costs, more * steps), 3.0 * more / (first + middle + last)
    return RunClaim(more * steps, share, sites, values, Confidence.MEDIUM, of_steps=of_steps)
