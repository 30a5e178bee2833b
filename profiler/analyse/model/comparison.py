"""Defines the results of comparing sides of recorded runs.

The only sentences are `verdict`, `headline` and `why`: `profiler.report.comparison_text` adds them after the diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import FlameDiff
from profiler.analyse.model.measures import Measure
from profiler.core.errors import Notice

WITHOUT_CORE, WAITS_FOR_CORE = "without_core", "waits-for-core"
"""Measure of the share of a run in which it waited for a core that others had, and the reason not to compare times of
such runs."""
MAX_WITHOUT_CORE = 0.05
"""Share of a side's time up to which its waits for a core stay in a ratio: they change it by about that share, which is
less than runs vary. On a quiet machine it is below 0.01."""
GIT_COMMIT, ABSENT = "git commit", "-"
"""In the environment of a comparison, the row of the commit, and the value of a side that has none."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A side over the baseline, from interleaved pairs: geometric mean and 95% interval."""

    name: str
    """Name of the measure."""
    value: float | None
    """Geometric mean over the pairs; None: `reason` says why there is none."""
    low: float | None
    """Lower end of the 95% interval of `value`; None: too few pairs."""
    high: float | None
    """Upper end of the same interval; None: too few pairs."""
    n: int
    """Number of pairs."""
    different: bool
    """False: the interval contains 1, so that no difference was seen, whatever `value` is."""
    reason: Notice | None = None
    """Why there is no value or no interval; None: there is."""
    bound: float | None = None
    """Where a side waited for a core, so that there is no value: on a quiet machine the ratio is at least that, or at
    most that if it is below 1. None: not known, or there is a value."""

    @property
    def known(self) -> float | None:
        """Return the value or, where there is none, the bound."""
        return self.bound if self.value is None else self.value

    @property
    def is_doubted(self) -> bool:
        """Return whether there is no value because a side waited for a core, or because its interval is too wide."""
        return self.reason is not None and self.reason.code in (WAITS_FOR_CORE, "too-wide")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its unrecorded-as-possible runs, and one detailed run."""

    label: str
    """Name of the side."""
    command: str
    """The command of its program, with secrets masked."""
    runs: tuple[Analysis, ...]
    """Light runs: every ratio comes from these only."""
    detail: Analysis | None
    """The breakdown pass, with the breakdown, the findings and the cells; its times never enter a ratio. None: none was
    made."""
    measures: Mapping[str, Measure]
    """Measures over the light runs: geometric means, so that the quotient of two sides is their ratio, and medians
    where a value is 0 or negative; `low` and `high` are the lowest and the highest run."""
    recording_slowdown: Measure
    """How many times slower a step was in the breakdown pass than in the light runs."""

    def value(self, name: str) -> float | None:
        """Return the value of a measure; None: the light runs do not have it, or it was not measured."""
        measure = self.measures.get(name)
        return measure.value if measure else None


class Extension(Protocol):
    """A part of a comparison that only some trainers measure; their plug-ins show it."""

    def method_sentences(self) -> Iterable[str]:
        """Return how it was measured."""

    def verdict_sentence(self) -> str:
        """Return its part of the comparison's verdict; it may be empty."""

    def next_command(self) -> str:
        """Arguments of the profiler that measure each fix of the trainer by itself; empty where they would not."""


@dataclass(frozen=True, slots=True)
class ResultDifference:
    """How the results of a run differ from those of the run that it is compared with."""

    different: int
    """Number of values that differ by more than their tolerance."""
    compared: int
    """Number of values that were compared."""
    call: int
    """The call of `profiler.result` with that name that states the first of them, from 1 on."""
    calls: int
    """The calls with that name that were compared."""
    position: int
    """Where the first of them is among the values of that call, from 0 on."""
    values: tuple[float, float] | None = None
    """The two values there; None: the values are not stored, only their checksums differ."""
    counts: tuple[int, int] | None = None
    """Where the numbers of values of a call differ: these numbers. None: they do not differ."""


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """Whether all runs of a comparison state the same results of one name."""

    name: str
    """Name of the results."""
    runs: int
    """Number of runs that were compared with the first run that states results of that name."""
    compared: int
    """Number of stored values that all these runs have in common with it."""
    stated: int
    """Number of values that the run with most of them states: more than `compared` where only some of them are stored,
    and where runs have different lengths."""
    near_ties: int
    """Number of values that may differ, because the two largest scores were nearly equal."""
    missing: tuple[str, ...]
    """Labels of the sides of which some run states no result of that name."""
    side: str
    """Label of the side of the run that differs most; empty: none differs."""
    difference: ResultDifference | None
    """How that run differs; None: all results are the same."""
    never: tuple[str, ...] = ()
    """Labels of the sides of which no run states a result of that name."""

    @property
    def are_same(self) -> bool:
        """Return whether runs of all sides were compared, and none differs."""
        return bool(self.compared) and not self.missing and self.difference is None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A fact in which a run differs from the first run of the baseline, so that they are not comparable."""

    name: str
    """Name of the fact, or of the result."""
    before: str = ""
    """Its value on the baseline."""
    after: str = ""
    """Its value in the other run."""
    result: ResultComparison | None = None
    """The comparison of the results of the programs, if these differ; None: a fact differs."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more sides; the first is the baseline."""

    title: str
    """Name of the comparison."""
    created_at: str
    """When it was made, ISO 8601, UTC."""
    sides: tuple[Side, ...]
    """All sides in order."""
    ratios: Mapping[str, Mapping[str, Ratio]]
    """Label of a side -> name of a measure -> ratio over the baseline."""
    pairs: int
    """Interleaved pairs of runs behind every ratio."""
    comparable: bool
    """False: the sides must not be compared; `mismatches` say why."""
    mismatches: tuple[Mismatch, ...]
    """Why the sides are not comparable: facts, or else results, that differ."""
    forced: bool
    """True: not comparable, and compared nevertheless because the user gave --anyway."""
    verdict: str
    """How much faster the sides are and why, as a sentence."""
    headline: str = ""
    """The beginning of `verdict` that reads well in large type."""
    why: tuple[str, ...] = ()
    """What changed along with the speed of the last side, as sentences."""
    floor: Side | None = None
    """The least that the baseline's call pattern can cost: the same calls with empty kernels. None: it was not
    measured."""
    differences: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Facts of the environment that differ: name, and one value per side, `-` where a side has none."""
    packages: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Installed packages that differ: name, and one version per side, `-` where a side has none. They are looked up
    where the commands run different Pythons."""
    environment: tuple[tuple[str, str], ...] = ()
    """Rows that are the same on all sides."""
    method: tuple[Notice, ...] = ()
    """How it was measured."""
    flame_diff: FlameDiff | None = None
    """The flame graphs of the baseline and the last side laid over each other."""
    extensions: Mapping[str, Extension] = field(default_factory=dict)
    """Extension by its name, such as `ladder`."""
    results: tuple[ResultComparison, ...] = ()
    """The stated results of all runs compared with those of the first run; empty: no run states any."""
    planned: int | None = None
    """The rounds that were planned, if a signal stopped the recording before all runs were made; None: all were
    made."""
