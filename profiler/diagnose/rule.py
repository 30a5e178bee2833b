"""Tells what a rule is: one cause of slowness, how to recognize it in an analysed run, and what to do about it.

A rule sees a `StepCosts`, the seconds of a step by category, and claims the part that its cause costs. It never sees
other rules: `profiler.diagnose.board` gives each cell of the ledger to one claim.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import COMMUNICATING, COPYING, FILLING, HostState
from profiler.analyse.model.finding import Confidence, GainMethod, RuleText
from profiler.analyse.model.host import LineCost, Phase
from profiler.analyse.model.input import InputPart
from profiler.analyse.model.ledger import DEVICE, GARBAGE_KIND, IMPORT_KIND, MAIN, Cell, Owner, Period, Recurrence
from profiler.analyse.model.measures import CORELESS_CATEGORIES
from profiler.core.errors import Notice
from profiler.diagnose.device import BUSY, COPIES, is_sampled, program_blame, trace_category
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.model import MOST, NAMED, WORTH_NAMING, InputDiagnosis
from profiler.run.code_origin import USER, code_owner
from profiler.run.model import Site

ON_CORE: Final = ("input", "compute", "framework", "python", "log", "checkpoint", "launch")
"""Categories of host work that needs a core."""
MAX_SITES: Final = 3
NARROW: Final = 0.8
"""Least ratio of the lower end of a cost to the cost for a high confidence."""
FASTEST: Final = 1e-3
"""Least share of a step that is assumed to remain: waits for a core, or what a rule claims, may be all of it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds per step with their 95% interval; the interval is empty where they were recorded exactly."""

    seconds: float
    low: float
    high: float

    def part(self, share: float) -> Cost:
        """Return a share of it, as far as that is known exactly."""
        return Cost(share * self.seconds, share * self.low, share * self.high)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.low + other.low, self.high + other.high)


def exactly(seconds: float) -> Cost:
    return Cost(seconds, seconds, seconds)


NOTHING: Final = exactly(0.0)


def line_cost(line: LineCost, seconds: float) -> Cost:
    """These seconds of a line, with the ends of its interval."""
    low, high = (line.low / line.share, line.high / line.share) if line.share else (1.0, 1.0)
    return Cost(seconds, seconds * low, seconds * high)


def whole_cost(costs: Iterable[Cost]) -> Cost:
    return sum(costs, NOTHING)


def spread(cost: Cost, room: Mapping[str, float]) -> dict[str, Cost]:
    """Divide a cost among categories, in proportion to the seconds that each has room for, and no more than these."""
    room = {name: seconds for name, seconds in room.items() if seconds > 0}
    whole = max(cost.seconds, sum(room.values()))
    return {name: cost.part(seconds / whole) for name, seconds in room.items()} if cost.seconds > 0 else {}


def total_seconds(costs: Mapping[str, Cost]) -> float:
    return sum(cost.seconds for cost in costs.values())


@dataclass(frozen=True, slots=True)
class Claim:
    """What a rule says that its cause costs."""

    costs: Mapping[str, Cost]
    """Host category -> seconds per step of that category which would not be there without the cause."""
    sites: tuple[Site, ...] = ()
    """The lines that cause it, the largest cost first."""
    values: Mapping[str, Any] = field(default_factory=dict)
    remaining: float = 0.0
    """Seconds per step that the cured program needs instead, at least."""
    has_gain: bool = True
    """Whether a change of the program can save this time."""
    is_periodic: bool = False
    """Whether it costs time in every so many steps only."""
    method: GainMethod = GainMethod.BOUND
    """ESTIMATE where a part of the costs, or of what remains, is assumed."""
    is_least: bool = False
    """Whether the cure also makes the rest of the step faster, by how much is not known, as fewer threads do."""
    is_most: bool = False
    """Whether the program needs a part of the work that costs this time, as it needs some evaluation."""
    confidence: Confidence = Confidence.HIGH
    """The highest that the finding can have: lower where what was recorded can have a cause that is no mistake."""


@dataclass(frozen=True, slots=True)
class RunClaim:
    """What a rule says about a run as a whole, such as its start, and not about its steps."""

    seconds: float = 0.0
    """Seconds of the run; 0: it costs no time as yet."""
    share: float = 0.0
    sites: tuple[Site, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    confidence: Confidence = Confidence.HIGH
    period: Period | None = None
    """The part of the run whose time it is about; None: it is not about one of them."""
    of_steps: float = 0.0


class StepCosts:
    """What a step of an analysed run costs, by category: what a cure can remove.

    For a device with a queue this is its idle time, charged to what the host did meanwhile, and the time in which it
    only communicates or copies: host work under a busy device costs nothing. Else it is the host's time.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.seconds = analysis.value("step_time") or 0.0
        busy = analysis.measures.get("device_utilization")
        self.has_queue = bool(analysis.idle) or (busy is not None and busy.value is not None and not is_sampled(busy))

    @property
    def recording(self) -> float:
        """Return the seconds of a step that recording takes; 0 with a queue, where they may lie under a busy device."""
        return 0.0 if self.has_queue else self.analysis.recording

    @property
    def is_idle(self) -> bool:
        """Return whether a device with a queue was idle for more of the time than a busy one is."""
        return self.has_queue and sum(row.share_of_wall for row in self.analysis.idle) > 1.0 - BUSY

    def is_little(self, idle: float) -> bool:
        """Return whether this is little idle time per step of a trace whose device is too busy for the host to limit
        it."""
        return self.analysis.is_trace and not self.is_idle and idle < NAMED * self.seconds

    @cached_property
    def categories(self) -> Mapping[str, Cost]:
        """Return host category, COMMUNICATING or COPYING -> what it costs; empty where nothing was recorded."""
        if self.has_queue:
            costs: dict[str, float] = {}
            for row in program_blame(self.analysis):
                category = row.category
                if self.analysis.is_trace:  # what no operator and no function recorded may be a wait as well as Python
                    category, _ = trace_category(category, row.subject, row.state, is_once=row.is_once)
                costs[category] = costs.get(category, 0.0) + row.seconds_per_step
            for part in self.analysis.device_parts:
                name = COMMUNICATING if part.kind == "communication" else COPYING if part.kind in COPIES else ""
                if name:
                    costs[name] = costs.get(name, 0.0) + part.exposed * self.seconds
            costs[FILLING] = self.analysis.memory_fills[0]
            return {name: exactly(cost) for name, cost in costs.items()}
        return {
            name: Cost(
                measure.value,
                measure.value if measure.low is None else measure.low,
                measure.value if measure.high is None else measure.high,
            )
            for name, measure in self.analysis.breakdown.items()
            if measure.value is not None
        }

    @property
    def active(self) -> float:
        """Return the seconds of a step without waits for a core: of shares of it, a busy machine hides no cause."""
        return max(0.0, self.seconds - sum(self.cost(name).seconds for name in CORELESS_CATEGORIES))

    @cached_property
    def core_wait_factor(self) -> float:
        """Return how many times as long host work takes because it waits for a core at times."""
        work = sum(self.cost(name).seconds for name in ON_CORE)
        return 1.0 + self.cost("core").seconds / work if work and not self.has_queue else 1.0

    @property
    def collecting(self) -> float:
        """Return the seconds of a step in which garbage is collected, without waits for a core."""
        return (self.analysis.value("gc_time") or 0.0) / self.core_wait_factor

    @property
    def blocked(self) -> float | None:
        """Return the seconds of a step in which the thread could not run, by its clocks."""
        return self.analysis.blocked

    @property
    def is_device_unseen(self) -> bool:
        """Return whether a device other than the CPU was not recorded: host work may then run while that is busy."""
        return not self.has_queue and self.fact("device") not in (None, "cpu")

    @cached_property
    def input(self) -> InputDiagnosis | None:
        return diagnose_input(self.analysis)

    def cost(self, category: str) -> Cost:
        """Return what a category costs; nothing where it was not recorded."""
        return self.categories.get(category, NOTHING)

    def is_known(self, *categories: str) -> bool:
        """Return whether the breakdown tells what these categories take: then none of them is part of what is
        unknown."""
        return all(name in self.categories for name in categories)

    def own_step(self, claimed: float, waits: float = 0.0) -> float:
        """Return the seconds of a step without waits for a core and without recording: what costs are shares of, and
        what a cure shortens. So a share and the gain agree, and neither depends on what else the machine did.

        :param claimed: seconds that a cause costs. Recording is taken to be half of the others at most.
        :param waits: the part of them that is waits for a core, which stays in the step.
        """
        if self.has_queue:
            return self.seconds
        step = max(min(self.seconds, self.active + waits), FASTEST * self.seconds)
        return step - min(self.recording, MOST * max(0.0, step - claimed))

    def share(self, seconds: float) -> float:
        """Return a cost, none of which is waits for a core, as a share of the step (`own_step`)."""
        return seconds / self.own_step(seconds) if self.seconds else 0.0

    def own_share(self, part: float) -> float:
        """Return a share of the recorded step, none of which is waits for a core, as one of the step without these."""
        return self.share(part * self.seconds)

    def fact(self, name: str) -> Any:
        return self.analysis.info.facts.get(name)

    def number(self, name: str) -> float | None:
        """Return a fact, or else a detail of the machine, that is a number."""
        value = self.analysis.info.facts.get(name, self.analysis.info.host.get(name))
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.analysis.phases if phase.name == name), None)

    def inputs(self, *, where: str = "", context: str = "", name: str = "") -> list[InputPart]:
        """Return the parts of the input with these properties, the most seconds first."""
        return [
            part
            for part in self.analysis.input
            if (not where or part.where == where)
            and (not context or part.context == context)
            and (not name or part.name == name)
        ]

    @property
    def lines(self) -> Sequence[LineCost]:
        return self.analysis.lines

    @cached_property
    def cells(self) -> Sequence[tuple[str, float, Cell]]:
        """Return the cells of the measured steps of the device, or else of the host, with category and seconds per
        step."""
        ledger, thread = self.analysis.ledger, DEVICE if self.has_queue else MAIN
        steps = ledger.steps.get(thread, 0) if ledger else 0
        if ledger is None or not steps:
            return [*self._cells_of_lines()]
        name = _category_in_trace if self.analysis.is_trace else _category
        return [(name(cell), cell.seconds / steps, cell) for cell in ledger.of(Period.STEPS, thread)]

    def _cells_of_lines(self) -> Iterator[tuple[str, float, Cell]]:
        """Yield the cells of a run without a ledger, such as of an attached program."""
        for line in () if self.has_queue else self.analysis.lines:
            for category, seconds in line.categories.items():
                cost, origin = line_cost(line, seconds), (Owner.USER, "", line.site, line.calls)
                ends = seconds, cost.low, cost.high, float(line.samples)
                cell = Cell(0, MAIN, Period.STEPS, "", category, *origin, Recurrence.EACH, 0.0, *ends)
                yield category, seconds, cell

    def sites(self, category: str) -> tuple[Site, ...]:
        """Return the lines that are worth naming for a category, the most seconds first."""
        totals = defaultdict[Site, float](float)
        for name, seconds, cell in self.cells:
            if name == category and cell.place is not None:
                totals[cell.place] += seconds
        least = WORTH_NAMING * min(self.active, self.cost(category).seconds)
        lines = sorted((site for site in totals if totals[site] >= least), key=lambda site: -totals[site])
        return largest_sites(lines)

    def line_sites(self, category: str, others: Collection[Site] = ()) -> tuple[Site, ...]:
        """Return the lines that are worth naming for a category by their own samples, the most first, without
        `others`."""
        lines = {line.site: line.categories.get(category, 0.0) for line in self.lines if line.site not in others}
        largest = sorted(lines, key=lambda site: -lines[site])
        return tuple(site for site in largest if lines[site] >= WORTH_NAMING * self.active)[:MAX_SITES]


class Order(IntEnum):
    """When a rule is asked: a later one gets what earlier ones leave."""

    EXACT = 0
    """It recognizes a setting, a call or a record."""
    RECURRING = 1
    """It recognizes work of some steps only."""
    SHAPE = 2
    """It recognizes a shape of code, such as a loop of small operators."""
    REST = 3
    """It explains a kind of time. It sees only what all others leave."""


_CATEGORIES: Final[Mapping[str, str]] = {
    GARBAGE_KIND: "python",
    IMPORT_KIND: "python",
    "device communication": COMMUNICATING,
    "device copy": COPYING,
}
"""Kinds of cells -> the category of a claim's cost that they are, where it has another name."""
_IDLE: Final = "idle: "


def _category(cell: Cell) -> str:
    return _CATEGORIES.get(cell.kind, cell.kind.removeprefix(_IDLE))


def _category_in_trace(cell: Cell) -> str:
    if not cell.kind.startswith(_IDLE):
        return _category(cell)
    state, is_once = HostState[cell.activity.upper().replace(" ", "_")], cell.recurrence is Recurrence.ONCE
    return trace_category(_category(cell), cell.function, state, is_once=is_once)[0]


Judge = Callable[[StepCosts], Claim | RunClaim | Notice | None]
"""A rule's function: what its cause costs, why it cannot judge the run, or None where there is no sign of the cause."""


@dataclass(frozen=True)
class Rule(RuleText):
    """One cause of slowness: how to recognize it, and its words."""

    judge: Judge
    threshold: float = field(default=WORTH_NAMING, kw_only=True)
    """Share of a step that the cause must cost. By default 5%: without it a program is 5% faster."""
    order: Order = field(default=Order.EXACT, kw_only=True)
    """When it is asked."""
    is_alternative: bool = field(default=False, kw_only=True)
    """Whether its gain counts as its square root where rules of one order compete: the others have simpler cures, and
    what this one claims can seldom be saved as a whole."""


def rule(name: str, title: str, evidence: tuple[str, ...], fix: str, **options: Any) -> Callable[[Judge], Rule]:
    """Declare the function below to be a rule, with its words, and one of the `PLUGINS` of its module."""

    def declare(judge: Judge) -> Rule:
        made = Rule(name, title, evidence, fix, judge, **options)
        vars(sys.modules[judge.__module__]).setdefault("PLUGINS", []).append(made)
        return made

    return declare


def take(costs: StepCosts, *categories: str) -> dict[str, Cost]:
    """Return all of these categories, as the costs of a claim."""
    return {name: costs.cost(name) for name in categories if costs.cost(name).seconds > 0}


NO_WORK: Final = (*CORELESS_CATEGORIES, "ranks")
"""Waits that are no part of the work in which they lie."""


def phase_costs(costs: StepCosts, phase: Phase) -> tuple[dict[str, Cost], tuple[Site, ...]]:
    """Return the time of a phase by category, as its stack samples are divided, without waits for a core or for other
    ranks, and the lines with most of it: those of libraries, which the program cannot change, come last."""
    sampled = sum(phase.categories.values())
    parts = {name: seconds / sampled for name, seconds in phase.categories.items()} if sampled else {"compute": 1.0}
    parts = {name: part for name, part in parts.items() if name not in NO_WORK}
    whole = Cost(phase.seconds_per_step, phase.low * costs.seconds, phase.high * costs.seconds)
    known = largest_sites([phase.site, *phase.further])
    sites = tuple(sorted(known, key=_is_of_library))
    return {name: whole.part(part) for name, part in parts.items() if part}, sites


def _is_of_library(site: Site) -> bool:
    return code_owner(site.file) != USER


def largest_sites(sites: Iterable[Site | None]) -> tuple[Site, ...]:
    """Return the first sites on distinct lines: a lambda or a comprehension is a function of its own on the same
    line."""
    by_line: dict[tuple[str, int], Site] = {}
    for site in sites:
        if site is not None:
            by_line.setdefault(site.place, site)
    return tuple(by_line.values())[:MAX_SITES]
