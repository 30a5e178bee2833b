"""Tells time that no rule explains as it is: by its kind or its stage, with the lines that take it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import COMMUNICATING, COPYING, HostState, IdleBlame
from profiler.analyse.model.finding import Confidence, Finding, RuleText
from profiler.analyse.model.host import AFTER_OPTIMIZER, INTERRUPTIONS, UPDATE, Stage
from profiler.analyse.model.input import WAITING_FOR_INDEX, WAITING_FOR_WORKERS, InputPart
from profiler.analyse.model.ledger import (
    GARBAGE_KIND,
    IMPORT_KIND,
    NOT_RECORDED,
    Cell,
    Ledger,
    Owner,
    Period,
    Recurrence,
)
from profiler.analyse.model.measures import CORELESS_CATEGORIES, UNATTRIBUTED
from profiler.diagnose.board import Board, Lines
from profiler.diagnose.device import (
    BUSY,
    COPIES,
    MAX_LISTED,
    hides_waits,
    program_blame,
    too_few_launches,
    trace_category,
)
from profiler.diagnose.known_cures import DENORMAL, has_denormal_numbers, known_cure, largest_cure
from profiler.diagnose.model import (
    BETWEEN_OPERATORS,
    CODE_OF,
    DENORMAL_COMPUTING,
    DEVICE_UNSEEN,
    IDLE,
    LAUNCHED_ONCE,
    MOST,
    NAMED,
    OTHER_CODE,
    PYTHON_OR_WAITS,
    RECORDED_COMPUTING,
    RUNS_TRAINING,
    SETUP_CALLS,
    SETUP_ONCE,
    SUBMITTED,
    WAITS_FOR_WORKERS,
    WORTH_NAMING,
)
from profiler.diagnose.rule import MAX_SITES, NARROW, NOTHING, Cost, StepCosts, exactly, largest_sites
from profiler.run.model import Site

_STAGES: Final = (AFTER_OPTIMIZER, *(stage for stage in INTERRUPTIONS if stage != Stage.NO_GRADIENTS))
"""Work without gradients may be an update of parameters, and is no stage here."""
MUCH_UPDATING: Final = 1 / 3
"""Share of a step from which the optimizer's step is told apart. A choice: less is a usual part of a step."""
_BESIDE_A_DEVICE: Final = ("input", "log", "checkpoint")
"""Categories that take the host's time whether the device is busy or not; in all others it may be waiting for it."""
_CHANCE: Final = 0.03
"""Lower end of an interval below which time may be none: '16% (1 to 25%)' names what may not be there."""


def rest(board: Board, costs: StepCosts) -> Iterator[Finding]:
    """Yield what claims left of a step, the most seconds first; none of it has a cure."""
    found = _of_device(board, costs) if costs.has_queue else _of_host(board, costs)
    yield from sorted(found, key=lambda finding: -finding.seconds)[:MAX_LISTED]


@dataclass(slots=True)
class _Group:
    """Time that is told together."""

    lines: Lines
    cost: Cost = NOTHING
    categories: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Category -> its seconds per step."""
    claimed: float = 0.0
    """Seconds per step of the same cells that claims have."""

    def add(self, category: str, cost: Cost, cell: Cell | None) -> None:
        self.cost += cost
        self.categories[category] += cost.seconds
        if cell is not None:
            self.lines.add(cell, cost.seconds)


def _finding(name: str, group: _Group, costs: StepCosts, **values: Any) -> Finding | None:
    """Return the time with its lines; None where it is too little to tell."""
    cost = group.cost
    least = NAMED if name == UNATTRIBUTED else WORTH_NAMING
    if not cost.seconds or cost.seconds < least * costs.active:
        return None
    # waits for a core are a part of the whole step; all else is a part of the time in which the program has one
    step = costs.seconds if name in CORELESS_CATEGORIES else costs.own_step(cost.seconds)
    confidence = Confidence.HIGH if cost.low >= NARROW * cost.seconds else Confidence.MEDIUM
    busy = costs.analysis.value("device_utilization") or 0.0
    if is_of_device := (costs.is_device_unseen and busy >= BUSY and name not in _BESIDE_A_DEVICE):
        values[DEVICE_UNSEEN] = True
    if is_of_device or cost.low < _CHANCE * step:
        confidence = Confidence.LOW
    places = group.lines.places(step)
    share, low, high = (min(1.0, end / step) for end in (cost.seconds, cost.low, cost.high))
    sites = largest_sites(place.site for place in places)
    values["is_rest"] = group.claimed >= WORTH_NAMING * costs.active
    found = Finding(RuleText(name, "", (), ""), cost.seconds, share, low, high, confidence, sites, values)
    part = largest_cure(group.lines.functions(step))
    cure = part.most_of(share) if share >= NAMED else ""
    if not cure and name in (DENORMAL_COMPUTING, UPDATE) and has_denormal_numbers(costs.analysis.info.facts):
        cure = DENORMAL
        found = replace(found, cure_site=_only_optimizer(costs))
    if not cure and part.share >= NAMED:
        values["part_cure"], found = part.text, replace(found, cure_site=part.site)
    return replace(found, costs=group.categories, places=places, known_cure=cure, left_out=1.0 - step / costs.seconds)


def _only_optimizer(costs: StepCosts) -> Site | None:
    """Return the line that makes the only optimizer of the program."""
    optimizers = costs.fact("optimizers") or ()
    lines = [each for each in optimizers if each.get("file")]
    return Site.from_fact(lines[0]) if len(optimizers) == len(lines) == 1 else None


# ---------------------------------------------------------------- the host


def _of_host(board: Board, costs: StepCosts) -> Iterator[Finding]:
    phase = costs.phase(UPDATE)
    is_updating = phase is not None and phase.low >= MUCH_UPDATING and costs.fact("device") == "cpu"
    stages = (*_STAGES, UPDATE) if is_updating else _STAGES
    groups = defaultdict[tuple[str, str], _Group](lambda: _Group(Lines()))

    def is_apart(cell: Cell) -> bool:
        # within a phase, a library may hold the model
        is_around = cell.owner is Owner.LIBRARY and not cell.activity and bool(costs.analysis.phases)
        return is_around and cell.recurrence is Recurrence.EACH and cell.package not in RUNS_TRAINING

    def group(category: str, cell: Cell | None) -> _Group:
        if cell is not None and category in ("python", "framework", "compute"):  # of which the stage tells more
            if cell.activity in stages:
                return groups[cell.activity, ""]
            if is_apart(cell):
                return groups[CODE_OF[cell.owner], cell.package]
        return groups[category, ""]

    for category, whole in costs.categories.items():
        if not whole.seconds:  # samples alone do not give it any time
            continue
        for part, seconds in board.free(category):
            cell = part.cell if part else None
            # the samples that tell a category from others tell so for all of its cells together
            group(category, cell).add(category, whole.part(seconds / whole.seconds), cell)
        for cell, seconds in board.claimed(category):
            group(category, cell).claimed += seconds
    for (name, package), found in groups.items():
        values = {"loader": _largest_part(costs.analysis.input)} if name == "input" else {"package": package}
        if finding := _finding(_name(name, found.lines, costs.analysis), found, costs, **values):
            yield finding


def _name(category: str, lines: Lines, analysis: Analysis) -> str:
    facts = analysis.info.facts
    if analysis.is_trace and category in ("python", UNATTRIBUTED) and not lines:
        operators = sum(analysis.breakdown[name].value or 0.0 for name in ("compute", "framework"))
        is_known = operators >= WORTH_NAMING * (analysis.value("step_time") or 0.0)
        return BETWEEN_OPERATORS if category == "python" or is_known else category
    if category == "python" and hides_waits(analysis):
        return PYTHON_OR_WAITS
    if category == "compute" and analysis.is_undivided:
        return RECORDED_COMPUTING  # without samples, only what hooks record is known
    if category == "compute" and has_denormal_numbers(facts):
        return DENORMAL_COMPUTING
    # a program with an engine waits for its workers, not for a device
    if category == "sync" and facts.get("device") == "cpu" and facts.get("engine", "inline") != "inline":
        return WAITS_FOR_WORKERS
    return category


def _largest_part(parts: Iterable[InputPart]) -> InputPart | None:
    """Return what the training process does itself, where it takes most of the input; else what takes most time."""
    making = [part for part in parts if part.name not in (WAITING_FOR_INDEX, WAITING_FOR_WORKERS)]
    whole = sum(part.seconds_per_step for part in making)
    own = [part for part in making if part.where == "main process" and part.seconds_per_step > MOST * whole]
    return max(own or making, key=lambda part: part.seconds_per_step, default=None)


# ---------------------------------------------------------------- a device with a queue


def _of_device(board: Board, costs: StepCosts) -> Iterator[Finding]:
    """Idle time by what the host does meanwhile, and time in which the device communicates or copies only."""
    analysis = costs.analysis
    groups = defaultdict[tuple[str, str], list[IdleBlame]](list)
    for row in program_blame(analysis):
        key = row.category, ""
        if analysis.is_trace:
            key = trace_category(row.category, row.subject, row.state, is_once=row.is_once)
        groups[key].append(row)
    has_operators = bool(analysis.breakdown.get("framework") and analysis.breakdown["framework"].value)
    has_functions = any(row.state is HostState.IN_PYTHON for row in analysis.idle)
    few = too_few_launches(analysis)
    for (category, code), rows in groups.items():
        if few and code != SUBMITTED and not _is_single_call(rows):
            continue
        whole = sum(row.seconds_per_step for row in rows)
        if costs.is_little(whole):
            continue
        left, found = board.share_left(category), _Group(Lines())
        found.add(_ONCE_OF.get(code, category), exactly(left * whole), None)
        found.claimed = whole * (1.0 - left)
        for part, seconds in board.free(category):
            if part:
                found.lines.add(part.cell, seconds)
        is_known = code != BETWEEN_OPERATORS or (has_operators and not has_functions)
        shown = tuple(_scaled(row, left) for row in rows)
        values: dict[str, Any] = {"rows": _largest(shown)}
        if code in _ONCE_OF:
            values["once"] = whole * (analysis.value("steps") or 1.0)
        if finding := _finding(f"{IDLE}{code if code and is_known else category}", found, costs, **values):
            yield replace(finding, is_periodic=code in _ONCE_OF)
    for category, kinds in ((COMMUNICATING, ("communication",)), (COPYING, COPIES)):
        parts = sorted((part for part in analysis.device_parts if part.kind in kinds), key=lambda part: -part.exposed)
        left, found = board.share_left(category), _Group(Lines())
        found.add(category, exactly(left * costs.cost(category).seconds), None)
        found.claimed = (1.0 - left) * costs.cost(category).seconds
        rest_of = tuple(replace(part, exposed=left * part.exposed) for part in parts)
        shown_parts = tuple(part for part in rest_of if part.exposed >= WORTH_NAMING)
        if finding := _finding(category, found, costs, parts=shown_parts):
            yield finding


_ONCE_OF: Final = {SETUP_ONCE: "launch", LAUNCHED_ONCE: "framework"}
"""What occurs once -> its category."""


def _scaled(row: IdleBlame, part: float) -> IdleBlame:
    seconds, share, gaps = (part * value for value in (row.seconds_per_step, row.share_of_wall, row.gaps_per_step))
    return replace(row, seconds_per_step=seconds, share_of_wall=share, gaps_per_step=gaps)


def _is_single_call(rows: Iterable[IdleBlame]) -> bool:
    """Return whether one call that blocks, allocates or sets the device up takes nearly all of the time."""
    row = max(rows, key=lambda each: each.share_of_wall)
    is_setup = row.state is HostState.IN_CALL and trace_category(
        row.category, row.subject, row.state, is_once=False
    ) == ("launch", SETUP_CALLS)
    return row.share_of_wall >= BUSY and (row.state is HostState.BLOCKED_IN_CALL or is_setup)


def _largest(rows: Iterable[IdleBlame]) -> tuple[IdleBlame, ...]:
    """Return the operators, calls and functions with at least a tenth of the wall time each, the largest first."""
    merged: dict[tuple[HostState, str, str], IdleBlame] = {}
    for row in rows:
        key = row.state, row.subject, str(row.site) if row.state is HostState.IN_PYTHON else ""
        before = merged.get(key)
        if before is not None:
            row = replace(
                before,
                site=row.site if row.site == before.site else None,
                seconds_per_step=before.seconds_per_step + row.seconds_per_step,
                share_of_wall=before.share_of_wall + row.share_of_wall,
                gaps_per_step=before.gaps_per_step + row.gaps_per_step,
            )
        merged[key] = row
    named = (row for row in merged.values() if row.share_of_wall >= NAMED and row.state is not HostState.BETWEEN_CALLS)
    return tuple(sorted(named, key=lambda row: -row.share_of_wall)[:MAX_SITES])


# ---------------------------------------------------------------- outside of the steps

_NAMED_KINDS: Final = ("python", "compute", "framework", GARBAGE_KIND, IMPORT_KIND)
"""Kinds that say less of a part of a run than whose code it was."""
_TORCH: Final = (Owner.IMPORT, "torch")


def steps_share(ledger: Ledger) -> float:
    whole = sum(map(ledger.own_seconds, Period))
    return ledger.own_seconds(Period.STEPS) / whole if whole else 0.0


def outside_steps(analysis: Analysis) -> Iterator[Finding]:
    """Make findings of what took a run that has no step, or more of a run than its measured steps: of each import, and
    of each line and kind of time, the most seconds first. Every program with steps imports torch: that is left out."""
    ledger, is_unseen = analysis.ledger, analysis.step is not None and analysis.step.is_whole_run
    if ledger is None:
        return
    own, periods = sum(map(ledger.own_seconds, Period)), (Period.UNSEEN, Period.BEFORE, Period.AFTER)
    steps = ledger.own_seconds(Period.STEPS)
    if not is_unseen and (analysis.is_trace or not steps):
        return
    is_small = steps < NAMED * own  # then most of the time went elsewhere
    # a run that was ended early has few steps for that reason, unless it had gone on to something else
    leading = (Period.BEFORE, Period.AFTER) if analysis.info.state == "complete" else (Period.AFTER,)
    can_lead = is_small and not is_unseen
    groups = defaultdict[tuple[Period, Owner, str, Site | None, str], list[Cell]](list)
    for cell in (each for period in periods for each in ledger.of(period)):
        if cell.is_own and cell.kind != NOT_RECORDED and (is_unseen or (cell.owner, cell.package) != _TORCH):
            kind = "" if cell.kind in _NAMED_KINDS else cell.kind
            groups[cell.period, cell.owner, cell.package, cell.place, kind].append(cell)
    found, cures = list[Finding](), dict[Site | None, str]()
    for (period, owner, package, site, kind), cells in groups.items():
        seconds = sum(cell.seconds for cell in cells)
        is_much = seconds >= (WORTH_NAMING * own if is_small else steps) and (is_small or owner is not Owner.IMPORT)
        if own and is_much and (site is not None or kind != UNATTRIBUTED):
            lines = Lines()
            for cell in cells:
                lines.add(cell, cell.seconds)
            places = lines.places(own)
            if cure := known_cure(lines.functions(own), seconds / own, outside=True):
                cures[site] = cure
            is_telling = bool(cure) or (owner is Owner.USER and not kind)
            low, high = (min(1.0, sum(getattr(cell, end) for cell in cells) / own) for end in ("low", "high"))
            is_leading = can_lead and period in leading and is_telling
            found.append(
                Finding(
                    RuleText(kind or CODE_OF.get(owner, OTHER_CODE), "", (), ""), seconds, seconds / own, low, high,
                    Confidence.HIGH, (site,) if site else (), {"package": package}, places=places, is_of_run=True,
                    period=period,
                    of_steps=seconds / (seconds + steps) if is_leading else 0.0,
                )
            )  # fmt: skip
    # of a line that calls a function whose cure is known, that cure helps against its own code, too
    found = [replace(each, known_cure=cures.get(each.sites[0] if each.sites else None, "")) for each in found]
    yield from sorted(found, key=lambda finding: -finding.seconds)[:MAX_LISTED]
