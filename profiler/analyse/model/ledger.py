"""Defines the ledger of a run: disjoint cells that sum to the time of each stepping thread and of its device."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from profiler.run.model import Site

RECORDER_KIND: Final = "recording"
GARBAGE_KIND: Final = "garbage collection"
IMPORT_KIND: Final = "import"
"""Kinds of time beside the host categories: what recording costs, collecting garbage, and importing packages."""
MAIN, DEVICE = "main", "device"
"""Threads: the one that makes the steps, and the device, whose queue works by itself."""
NOT_RECORDED: Final = "not recorded"
"""The kind of a step of which only its length was recorded."""
SMALLEST: Final = 0.001
"""Share of the time of a period below which reports leave a cell out."""


class Period(StrEnum):
    """A part of the life of a stepping thread; together they are all of it."""

    BEFORE = "before the steps"
    """The start, and warm-up."""
    STEPS = "steps"
    """The measured steps."""
    ONE_OFF = "one-off steps"
    """Steps with work that occurs once."""
    BETWEEN = "between the steps"
    """Pauses between measured steps."""
    AFTER = "after the steps"
    UNSEEN = "no step seen"
    """All of a run in which nothing ended a step."""


class Recurrence(StrEnum):
    """How often a cost occurs."""

    EACH = "each step"
    PERIODIC = "periodic"
    """In some steps, which do work that others do not."""
    ONCE = "once"
    OUTSIDE = "outside of the steps"
    UNKNOWN = "unknown"
    """There are too few steps to tell."""


class Owner(StrEnum):
    """Whose code takes the time."""

    USER = "user"
    TORCH = "torch"
    PYTHON = "python"
    """The standard library."""
    LIBRARY = "library"
    IMPORT = "import"
    """Code that runs because a package is imported."""
    LAUNCHER = "launcher"
    """Code without a frame of the user's."""
    RECORDER = "recorder"
    OTHERS = "other programs"
    UNKNOWN = "unknown"


Quartiles = tuple[tuple[float, float, float], ...]
"""Quartiles of a time in seconds, in each third of the measured steps; empty: not known."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of the time of one thread of one rank."""

    rank: int
    """Number of the rank."""
    thread: str
    """`main`: the thread that makes the steps; `device`: the queue of the device."""
    period: Period
    """The part of the thread's life in which it is."""
    activity: str
    """A phase or a stage of the step, of a device what the host did meanwhile; empty: not known."""
    kind: str
    """A host category, `garbage collection`, `import`, `recording` or `not recorded`; of a device, `device` and the
    kind of its work, or `idle:` and a host category."""
    owner: Owner
    """Whose code takes it."""
    package: str
    """The library, or the package that is imported; else empty."""
    place: Site | None
    """The innermost line of the user's own; None: not known, or no line causes it."""
    function: str
    """The innermost function below that line, as its module and name; of a library, its own one; empty: the line
    itself."""
    recurrence: Recurrence
    """How often it occurs."""
    every: float
    """Steps between two occurrences of what is periodic; 0: irregular, or not periodic."""
    seconds: float
    """Seconds over the whole period."""
    low: float
    """Lower end of the 95% interval of `seconds`."""
    high: float
    """Upper end of the same interval."""
    samples: float
    """Stack samples that show it; 0: it was recorded, or no sample shows its line."""
    entry: Site | None = None
    """Of a periodic cell the outermost line that only such steps run; None: not known, or it is not periodic."""
    called_by: str = ""
    """The innermost function of another library that calls that of a library, for most of the time; else empty."""
    registered_at: Site | None = None
    """Most of the time is in a hook: the user's line that registered it. None: it is the place itself, there is no
    hook, or the line is not known."""
    callers: frozenset[tuple[str, int]] = frozenset()
    """File and number of the user's lines above the place, through which most of the time passes."""
    findings: Mapping[str, float] = field(default_factory=dict)
    """Name of a rule -> the seconds of the cell that its finding has; empty before the diagnosis."""

    @property
    def is_own(self) -> bool:
        """Return whether it is time of the program, which neither other programs nor the recorder took."""
        return self.owner not in (Owner.OTHERS, Owner.RECORDER)

    @property
    def lines(self) -> frozenset[tuple[str, int]]:
        """Return the file and number of the lines whose time it is, or that call what takes it."""
        return self.callers if self.place is None else self.callers | {self.place.place}

    def is_at(self, places: Container[tuple[str, int]]) -> bool:
        """Return whether it is the time of one of these lines, or of what they call."""
        return any(place in places for place in self.lines)

    @property
    def left(self) -> float:
        """Return the seconds that no finding has."""
        return max(0.0, self.seconds - sum(self.findings.values()))


@dataclass(frozen=True, eq=False, slots=True)
class Ledger:
    """All cells of a run, with what they must sum to."""

    cells: tuple[Cell, ...] = ()
    """All cells, those with most seconds first."""
    wall: Mapping[tuple[int, str, Period], float] = field(default_factory=dict)
    """Rank, thread and period -> seconds."""
    moved: Mapping[int, float] = field(default_factory=dict)
    """Rank -> the share of its measured time to which samples and records give different kinds; the records hold."""
    active: Mapping[int, float] = field(default_factory=dict)
    """Rank -> seconds of its measured time in which the thread could run, by its clocks; missing: not measured."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """Thread -> the number of its measured steps, of the rank that stands for the run."""
    unplaced: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Kind -> name of a rule -> seconds of that kind that its finding costs, of which the cells are not known."""
    usual: Quartiles = ()
    """Quartiles of the seconds of a step without its waits for a core, in each third of the measured steps. Empty where
    there are too few, or the waits are not known."""
    usual_phases: Mapping[str, Quartiles] = field(default_factory=dict)
    """Recorded phase or stage -> the same of its part of a step, with waits for a core; the empty name has all other
    time of a step."""
    rank: int = 0
    """The rank that stands for the run."""

    def of(self, period: Period, thread: str = MAIN, rank: int | None = None) -> Iterator[Cell]:
        """Return the cells of a period of a thread, of the rank that stands for the run unless another one is given."""
        wanted = self.rank if rank is None else rank
        return (cell for cell in self.cells if (cell.rank, cell.thread, cell.period) == (wanted, thread, period))

    def own_seconds(self, period: Period, thread: str = MAIN, rank: int | None = None) -> float:
        """Return the program's own time in a period: without what other programs and the recorder took."""
        return sum(cell.seconds for cell in self.of(period, thread, rank) if cell.is_own)
