"""Defines the types of a check. Times are integer nanoseconds of CLOCK_MONOTONIC.

A slow-down is ln(work per second of the base / work per second of the candidate): 0.05 means that the candidate takes
about 5% longer for the same work. A speed-up is negative. This module imports nothing of the project but `Notice`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from profiler.core.errors import Notice

PASS: Final = "PASS"
FAIL: Final = "FAIL"
INCONCLUSIVE: Final = "INCONCLUSIVE"
NOT_COMPARABLE: Final = "NOT COMPARABLE"
"""The sides do other work, so that neither counts nor times tell anything about a change."""
STATES: Final = (PASS, INCONCLUSIVE, NOT_COMPARABLE, FAIL)
"""The states are ordered from good to bad. A result has the state of its worst part."""

BASE: Final = "base"
CANDIDATE: Final = "candidate"

LOAD: Final = 0.5
"""Runnable threads of other programs per core; if the number of cores is unknown, LOAD_UNKNOWN threads in all."""
LOAD_UNKNOWN: Final = 1.0
PATIENCE_S: Final = 300.0
"""A program's first steps may take this many seconds, since they may load data and compile."""

MEASURE: Final = "measure"
CONFIRM: Final = "confirm"
LOOK: Final = "look"
"""The kinds of rounds. The first kind may lead to a suspected FAIL. The second kind confirms it: the programs start in
the other order. The third kind has many more steps, to see those that are rare."""

LOOKS: Final = (3, 4, 5, 7, 10, 14, 20)
"""The test may decide after these numbers of rounds. Each is about 1.4 times the one before. The test also looks after
the maximum number of rounds."""
POWER: Final = 0.8
"""A slow-down is called detectable if the test finds it with this probability. The rounds that would settle a check use
the same probability."""


# ---------------------------------------------------------------- what was measured


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps that one side took in a row, while the others were paused. A device is idle before and after them."""

    side: str
    """BASE | CANDIDATE"""
    begin: int
    """Start of the first step, in ns."""
    steps: tuple[int, ...]
    """ns of each step; the last one waits for the device."""
    tokens: int = 0
    """0: the program does not report them."""

    @property
    def time(self) -> int:
        """Return sum of the steps in ns."""
        return sum(self.steps)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of the machine during a round. None: not known."""

    load: float | None = None
    """Mean number of runnable threads, of all programs."""
    steal: float | None = None
    """Share of the cores' time that other virtual machines took."""
    throttled: tuple[str, ...] = ()
    """Reasons for throttled clocks: 'GPU 0: power cap', 'CPU: thermal'."""
    cores: int | None = None
    """Cores that threads may run on."""

    @property
    def is_busy(self) -> bool:
        """Whether threads of other programs wanted so many cores. Those of paused sides are not runnable."""
        return self.load is not None and self.load >= max(LOAD * (self.cores or 0), LOAD_UNKNOWN)


@dataclass(frozen=True, slots=True)
class Round:
    """Interleaved blocks of a fresh pair of programs."""

    number: int
    """The first is 1."""
    kind: str
    """MEASURE | CONFIRM"""
    slots: tuple[str, ...]
    """Sides in the order in which their programs were started."""
    blocks: tuple[StepBlock, ...]
    """In the order of time."""
    seconds: float = 0.0
    """Duration with the start of the programs."""
    conditions: Conditions = Conditions()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values from which the verdict can be computed again. Times are in ns; the key `turns` holds the
        blocks."""
        value = asdict(self)
        conditions, blocks = value.pop("conditions"), value.pop("blocks")
        return {**value, "seconds": round(self.seconds, 3), "conditions": conditions, "turns": list(blocks)}


STAGES: Final = ("before", "in", "after")
"""A wait is before, in or after a backward pass, in this order. It is before one from the moment at which the forward
pass made its first gradient function. What follows the optimizer's step is still after the backward pass."""
OTHER_THREAD: Final = "thread"
"""The stage of a wait of another thread, which may come at any time."""


def is_earlier(stage: str, other: str) -> bool:
    """Return whether a wait of the first stage is earlier in a step than one of the other stage."""
    return {stage, other} <= set(STAGES) and STAGES.index(stage) < STAGES.index(other)


class CountedLine(NamedTuple):
    """A line of code at which something is counted. The order of the fields is that of lines."""

    counter: str
    file: str
    """As shown to people."""
    number: int
    function: str
    operation: str
    """What the program calls; of `operators`, the name of the operator. Empty: the counter implies it."""
    text: str = ""
    """It distinguishes a moved line from a new one."""
    stage: str = ""
    """One of STAGES, or OTHER_THREAD; empty: the counter has no stages, or they are not known."""

    def may_become(self, line: CountedLine) -> bool:
        """Return whether a wait here may be one at another line without waiting earlier in a step."""
        return self.stage == line.stage or is_earlier(self.stage, line.stage)


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of one process in its measured steps."""

    steps: int
    totals: Mapping[str, float]
    """Counter -> amount in all measured steps of the stepping process: syncs, might_sync, h2d, h2d_bytes, ..."""
    workers: Mapping[str, float] = field(default_factory=dict)
    """Totals of the loader's workers."""
    lines: Mapping[CountedLine, float] = field(default_factory=dict)
    """Line -> its amount in all measured steps."""
    worker_lines: Mapping[CountedLine, float] = field(default_factory=dict)
    """Lines of the loader's workers."""
    not_counted: tuple[str, ...] = ()
    """These counters are unknown (not 0), because the process ran without a device."""
    growing: frozenset[tuple[str, int]] = frozenset()
    """File and line that allocated memory. More of it is in use after each measured step than after the one before."""


# ---------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a counter may rise above its baseline, per step. The larger of both amounts applies."""

    absolute: float = 0.0
    relative: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a counter there may be, whatever the base has. None: any amount."""

    warn: float | None = None
    """More than this is a warning."""
    fail: float | None = None
    """More than this is a FAIL."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that `[tool.profiler.check]` and the command line set."""

    detect: float = 0.05
    """The slow-down that is caught."""
    counters: Mapping[str, Limit] = field(default_factory=dict)
    """Limits of counters; '*' applies to all others. Without a limit a counter may not rise."""
    ignore: tuple[str, ...] = ()
    """Counters that cannot fail the check by rising."""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """Counter -> how much of it there may be."""
    inconclusive: str = "fail"
    """pass | fail: what an INCONCLUSIVE does to the exit code."""
    max_rounds: int = 28
    max_seconds: float | None = None


# ---------------------------------------------------------------- the result


class ChangeKind(StrEnum):
    """What became of a line at which something is counted."""

    APPEARED = "appeared"
    GREW = "grew"
    SHRANK = "shrank"
    VANISHED = "vanished"
    MOVED = "moved"
    """It counts as much as before, at another place."""


@dataclass(frozen=True, slots=True)
class Change:
    """A line at which a counter rose or fell, or that has moved, per step."""

    counter: str
    file: str
    line: int
    function: str
    operation: str
    """The operation that the program calls: item, to, ...; empty where the counter implies it."""
    before: float
    after: float
    source: str = ""
    """Text of the line; empty: it was not recorded."""
    stage: str = ""
    """One of STAGES, or OTHER_THREAD; empty: it is not known, or does not matter."""
    base_file: str = ""
    """Where the line was in the base; empty: it is new, or that is not known."""
    base_line: int = 0
    base_function: str = ""

    @property
    def kind(self) -> ChangeKind:
        """Return what became of the line."""
        if self.after > self.before:
            return ChangeKind.GREW if self.before else ChangeKind.APPEARED
        if self.after < self.before:
            return ChangeKind.SHRANK if self.after else ChangeKind.VANISHED
        return ChangeKind.MOVED


@dataclass(frozen=True, slots=True)
class CounterLine:
    """One counter, baseline against candidate, per step."""

    counter: str
    state: str
    """PASS | FAIL | INCONCLUSIVE"""
    before: tuple[float, float] | None
    """Lowest and highest of the baseline's processes, equal where it is constant; None: the baseline has no value."""
    after: tuple[float, float] | None
    allowed: float | None
    """The largest amount that passes; it is None if there is no limit."""
    reasons: tuple[Notice, ...] = ()
    """These tell why the line has its state, where the state alone does not tell: `fewer`, `varies`."""
    changes: tuple[Change, ...] = ()
    """The lines at which it rose."""
    scope: str = "step"
    """step | worker"""
    other_changes: tuple[Change, ...] = ()
    """The lines at which it fell, those that are gone, and those that only moved."""
    exceeded: float | None = None
    """The budget that the candidate exceeds; None: it exceeds none."""
    is_risen: bool = False
    """Whether it fails for what it rose, and not only for its budget."""
    largest: tuple[Change, ...] = ()
    """Where a budget is exceeded, the lines that count most."""


@dataclass(frozen=True, slots=True)
class TimeLine:
    """One line of the verdict on speed."""

    name: str
    """'typical step' | 'all steps'"""
    state: str
    slowdown: float | None
    """None: nothing could be measured."""
    low: float | None
    high: float | None
    """`low` and `high` are one-sided bounds at the confidence of one interim analysis ("look")."""
    rounds: int
    smallest: float | None
    """The smallest slow-down that would have been a FAIL with 80% probability, at this noise and number of rounds."""
    more_rounds: int | None = None
    """The number of further rounds that would probably decide the check; None if it is decided, or if no number of
    rounds would decide it."""
    more_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Throughput:
    """The verdict on speed."""

    state: str
    lines: tuple[TimeLine, ...]
    rounds: tuple[Round, ...]
    reason: Notice | None = None
    """Why it is INCONCLUSIVE, or what confirmed a FAIL."""
    confirmed: bool | None = None
    """Whether the confirming rounds confirm a suspected FAIL; None: nothing was to be confirmed."""
    warnings: tuple[Notice, ...] = ()
    round_slowdowns: tuple[float | None, ...] = ()
    """For each round the slow-down of the typical step. None: too few blocks."""


@dataclass(frozen=True, slots=True)
class WorseCause:
    """A cause of slowness that the candidate has and the base does not, or that costs more in it or is there more
    often."""

    rule: str
    """The rule that recognized it."""
    file: str
    """Where it is; empty: not known."""
    line: int
    before: float | None
    """Seconds per step that the line costs in the base; 0 if the line is new; None if it was not measured, because
    only `counter` shows it."""
    after: float | None
    sentence: str
    fix: str
    """What to do about it."""
    source: str = ""
    """Text of the line; empty: it was not recorded."""
    counter: str = ""
    """The counter that rose at the line; empty: the time of steps shows it."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Neighboring lines of a file that differ between the base and the candidate, with three lines around them."""

    file: str
    """As sites name it."""
    base: int
    """The line of the base at which it begins."""
    line: int
    """The line of the candidate at which it begins."""
    lines: tuple[str, ...]
    """As in a unified diff: '-' before a line that only the base has, '+' before one of the candidate, else a space."""

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield the lines, each with the line of the candidate at which it stands."""
        number = self.line
        for line in self.lines:
            yield number, line
            number += not line.startswith("-")

    def written(self) -> dict[int, str]:
        """Return the number and the text of each line that only the candidate has."""
        return {number: text[1:] for number, text in self.numbered() if text.startswith("+")}


@dataclass(frozen=True, slots=True)
class SlowerLine:
    """A line of the candidate that takes longer than its counterpart in the base."""

    file: str
    line: int
    function: str
    before: float
    """Seconds per step in the base; of lines that the change replaced together."""
    after: float
    is_changed: bool
    """Whether the diff has the line; then `before` and `after` are those of all lines of that change."""
    source: str = ""
    """Text of the line; empty: it was not recorded."""


@dataclass(frozen=True, slots=True)
class SideInfo:
    """One side, as it is described to people."""

    label: str
    """BASE | CANDIDATE"""
    what: str
    """A revision, a file, a run, or the command."""
    command: str
    commit: str | None = None
    step_source: str = ""
    step_time: float | None = None
    """Median in s; informational: stored times are not compared."""
    tokens_per_s: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateResult:
    """Everything that a check found, for every output."""

    state: str = ""
    """Empty: not concluded yet."""
    sentence: str = ""
    """The verdict in one sentence."""
    base: SideInfo = SideInfo(BASE, "", "")
    candidate: SideInfo = SideInfo(CANDIDATE, "", "")
    limits: Limits = Limits()
    mode: str = "commands"
    """baseline | against | commands | runs"""
    counters: tuple[CounterLine, ...] = ()
    counters_state: str | None = None
    """None: counters were not compared."""
    counters_reasons: tuple[Notice, ...] = ()
    """Why no counter could be compared."""
    throughput: Throughput | None = None
    warnings: tuple[Notice, ...] = ()
    notes: tuple[Notice, ...] = ()
    """Facts that a reader of the result should know."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint: cpu, cores, GPU, kernel, python, torch."""
    explanation: str = ""
    """Where the time went, after a FAIL of speed. Empty: it was not recorded."""
    baseline_file: str = ""
    created_at: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    out: str = ""
    """Directory of the reports and runs."""
    causes: tuple[WorseCause, ...] = ()
    """The findings that appeared or grew, the worst first, where runs of both sides have a breakdown; then the causes
    that counters show."""
    slower_lines: tuple[SlowerLine, ...] | None = None
    """The lines that take longer, the largest increase first; None: not known."""
    hunks: tuple[Hunk, ...] = ()
    """What changed in the files of these lines and of those at which counters rose."""
    options: str = ""
    """Without these options of the check its command counts something else, as with `--virtual-cuda 2`."""
