"""Defines what the ranks of a program did, and which one makes the others wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler.core.errors import Notice
from profiler.run.model import Site


@dataclass(frozen=True, slots=True)
class RankActivity:
    """What one rank did in a step, in seconds per step."""

    rank: int
    """Number of the rank."""
    pid: int
    """Number of its process."""
    steps: int
    """Measured steps."""
    excluded: int
    """Measured steps that not all ranks have, which are left out where ranks are compared."""
    step_time: float
    """Mean seconds of the steps that all ranks measured; if there is no such step, of all steps of this rank."""
    own_work: float | None
    """The step without the waits for other ranks; None: not recorded, or the ranks do not wait for each other."""
    last: float | None
    """Share of collectives that this rank entered last, by a trace. Without one: share of steps with most own work in
    this rank. None: not known."""
    categories: Mapping[str, float] = field(default_factory=dict)
    """Host category -> seconds per step; empty where it was not recorded."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that makes the others wait, and the category of its time that exceeds theirs most."""

    rank: int
    """Number of the rank."""
    lead: float
    """Seconds per step of own work beyond the median of the other ranks."""
    category: str
    """A host category, or `device compute`, `device copy`."""
    seconds: float
    """Seconds per step of that category on this rank."""
    others: float
    """The median of the other ranks."""
    site: Site | None = None
    """The line with most of the excess of that category; None: not known."""
    at_line: bool = False
    """Whether more than half of the excess is at this line; else only its function has as much."""
    alone: bool = False
    """Whether no sample of another rank is in the function of this line."""
    alike: tuple[int, ...] = ()
    """Other ranks that are nearly as late."""
    core: float = 0.0
    """Seconds per step that it waits longer for a core than the others, where the category is another one."""
    cpu: float = 0.0
    """Seconds per step that its stepping thread runs longer on a core than that of the others; 0: not known."""


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """A collective in which ranks wait because one of them arrives late."""

    name: str
    """Name of the collective, such as `all_reduce`."""
    site: Site | None
    """The line that calls it; None: not recorded."""
    rank: int
    """The rank that makes the others wait longest."""
    last: float
    """Share of the calls at which this rank was the last."""
    seconds: float
    """Seconds per step for which another rank waits, on average, until this rank arrives."""
    before: Site | None = None
    """The line at which this rank is for longer than the others between the collective before and this one; None:
    `reason` says why it is not known."""
    at_line: bool = False
    """Whether more than half of the difference is at this line; else only its function has as much."""
    reason: Notice | None = None
    """The reason why `before` is not known; None: it is known."""


@dataclass(frozen=True, slots=True)
class RankLedger:
    """The ranks of a program, and the one that makes the others wait."""

    ranks: tuple[RankActivity, ...]
    """By rank."""
    analysed: int
    """The rank that all other figures of the analysis are about."""
    synchronous: bool
    """Whether the ranks wait for each other, so that their steps end together."""
    straggler: Straggler | None = None
    """The rank that makes the others wait; None: none does, or `reason` says why it is not known."""
    reason: Notice | None = None
    """The reason why the analysis cannot tell whether a rank makes the others wait; None: it can."""
    uniform: bool = False
    """Whether all ranks spend their steps alike, so that what holds for the analysed one holds for all."""
    size: int = 0
    """The number of ranks of the job, of which some may not have been recorded."""
    few_steps: tuple[int, ...] = ()
    """Ranks that are left out, because they ended fewer than half as many steps as the rank with most of them."""
    collectives: tuple[CollectiveWait, ...] = ()
    """The collectives in which ranks wait for a late one, the longest wait first."""

    @property
    def late(self) -> int | None:
        """Return the rank that makes the others wait; None where there is none."""
        return self.straggler.rank if self.straggler else None
