"""The types of a check. Times are integer nanoseconds of CLOCK_MONOTONIC.

A slow-down is ln(base's work a second / candidate's work a second): 0.05 means that the candidate takes about 5%
longer for the same work; a gain is negative. Imports nothing of the project but `Notice`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from profiler.core.notice import Notice

PASS: Final = "PASS"
FAIL: Final = "FAIL"
INCONCLUSIVE: Final = "INCONCLUSIVE"
STATES: Final = (PASS, INCONCLUSIVE, FAIL)
"""From good to bad: a result is as bad as its worst part."""

BASE: Final = "base"
CANDIDATE: Final = "candidate"
CONTROL: Final = "control"
"""A second copy of the base, held against the first: what the method says of no difference."""

MEASURE: Final = "measure"
CONFIRM: Final = "confirm"
"""Kinds of rounds: those that a FAIL is suspected in, and those that confirm it (slots swapped, with a control)."""


# ---------------------------------------------------------------- what was measured


@dataclass(frozen=True, slots=True)
class Turn:
    """So many steps of one side, while the others stood still. The device was idle before the first and is after the
    last."""

    side: str
    """BASE | CANDIDATE | CONTROL"""
    begin: int
    steps: tuple[int, ...]
    """ns of each step; they sum to the turn. The last one waits for the device."""
    tokens: int = 0
    """0: the program does not say."""

    @property
    def time(self) -> int:
        """ns."""
        return sum(self.steps)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What else the machine did during a round. None: not known."""

    load: float | None = None
    """Runnable threads, of all programs, mean over the round."""
    steal: float | None = None
    """Share of the cores' time that other virtual machines took."""
    throttled: tuple[str, ...] = ()
    """What held clocks down: 'GPU 0: power cap', 'CPU: thermal'."""
    cores: int | None = None
    """That threads may run on."""


@dataclass(frozen=True, slots=True)
class Round:
    """A fresh pair of programs (a trio, where it confirms) that took turns."""

    number: int
    """From 1 on."""
    kind: str
    """MEASURE | CONFIRM"""
    slots: tuple[str, ...]
    """Sides in the order in which their programs were started."""
    turns: tuple[Turn, ...]
    """In the order in which they were taken."""
    seconds: float = 0.0
    """Of the whole round, with the start of its programs."""
    conditions: Conditions = Conditions()

    def to_json(self) -> dict[str, Any]:
        """As JSON values, from which its verdict can be computed again. Times are in ns."""
        value = asdict(self)
        conditions, turns = value.pop("conditions"), value.pop("turns")
        return {**value, "seconds": round(self.seconds, 3), "conditions": conditions, "turns": list(turns)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Round:
        """:raises KeyError, TypeError, ValueError: it is no round."""
        conditions = value["conditions"]
        return cls(
            int(value["number"]),
            str(value["kind"]),
            tuple(map(str, value["slots"])),
            tuple(
                Turn(str(turn["side"]), int(turn["begin"]), tuple(map(int, turn["steps"])), int(turn["tokens"]))
                for turn in value["turns"]
            ),
            float(value["seconds"]),
            Conditions(
                conditions["load"], conditions["steal"], tuple(conditions["throttled"]), conditions.get("cores")
            ),
        )


Location = tuple[str, str, str, str]
"""Counter, file as shown to people, function, operation."""
Line = tuple[int, float, str]
"""Number of a line, amount, and its text, by which a line that moved is told from a new one."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What one process counted in its measured steps."""

    steps: int
    totals: Mapping[str, float]
    """Counter -> amount in all measured steps of the stepping process: syncs, would_sync, h2d, h2d_bytes, ..."""
    workers: Mapping[str, float] = field(default_factory=dict)
    """The same of its loader's workers."""
    lines: Mapping[Location, tuple[Line, ...]] = field(default_factory=dict)
    """Location -> lines with their amounts in all measured steps."""
    worker_lines: Mapping[Location, tuple[Line, ...]] = field(default_factory=dict)
    """The same of the loader's workers."""
    not_counted: tuple[str, ...] = ()
    """Counters that are unknown, not 0, since it ran without a device."""


# ---------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a counter may rise above its baseline, per step; the larger of both counts."""

    absolute: float = 0.0
    relative: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """`[tool.profiler.check]`, with what the command line says in its place."""

    detect: float = 0.05
    """The slow-down that is caught."""
    counters: Mapping[str, Limit] = field(default_factory=dict)
    """By counter; '*' holds for all others; none at all: no rise."""
    ignore: tuple[str, ...] = ()
    """Counters that gate nothing."""
    inconclusive: str = "fail"
    """pass | fail: what an INCONCLUSIVE does to the exit code."""
    max_rounds: int = 28
    max_seconds: float | None = None


# ---------------------------------------------------------------- what it says


@dataclass(frozen=True, slots=True)
class Change:
    """A line at which a counter rose or fell, per step."""

    counter: str
    file: str
    line: int
    function: str
    operation: str
    """What the user wrote: item, to, ...; empty where the counter says it all."""
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class CounterLine:
    """One counter, baseline against candidate, per step."""

    counter: str
    state: str
    """PASS | FAIL | INCONCLUSIVE"""
    before: tuple[float, float] | None
    """Least and most of the baseline's processes, equal where it is constant; None: it had none."""
    after: tuple[float, float] | None
    allowed: float | None
    """The most that passes; None: it gates nothing."""
    reasons: tuple[Notice, ...] = ()
    """Where the state alone does not tell: `fewer`, `varies`."""
    changes: tuple[Change, ...] = ()
    scope: str = "step"
    """step | worker"""


@dataclass(frozen=True, slots=True)
class TimeLine:
    """One line of the throughput gate."""

    name: str
    """'typical step' | 'all steps'"""
    state: str
    slowdown: float | None
    """None: nothing could be measured."""
    low: float | None
    high: float | None
    """One-sided bounds, each at the confidence of a look."""
    rounds: int
    smallest: float | None
    """The slow-down from which on it would have been a FAIL with 80% probability, with this noise and these rounds."""
    more_rounds: int | None = None
    """Rounds that would probably settle it; None: it is settled, or more rounds would not."""
    more_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the rounds say."""

    state: str
    lines: tuple[TimeLine, ...]
    rounds: tuple[Round, ...]
    reason: Notice | None = None
    """Why it is INCONCLUSIVE, or what confirmed a FAIL."""
    control: float | None = None
    """The base against itself in the rounds that confirm; None: there were none."""
    confirmed: bool | None = None
    """Of a FAIL: whether role-swapped rounds and the control agree; None: nothing was to be confirmed."""
    warnings: tuple[Notice, ...] = ()
    round_slowdowns: tuple[tuple[float | None, float | None], ...] = ()
    """Of each round the typical step: slow-down of the candidate and of the control; None: too few turns of it."""


@dataclass(frozen=True, slots=True)
class SideInfo:
    """One side as people know it."""

    label: str
    """BASE | CANDIDATE"""
    what: str
    """A revision, a file, a run, or the command."""
    command: str
    commit: str | None = None
    step_source: str = ""
    step_time: float | None = None
    """s, median; informational: stored times gate nothing."""
    tokens_per_s: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateResult:
    """Everything that `check` says, for every output."""

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
    """None: counters were not gated."""
    counters_reasons: tuple[Notice, ...] = ()
    """Why nothing could be compared."""
    throughput: Throughput | None = None
    warnings: tuple[Notice, ...] = ()
    notes: tuple[Notice, ...] = ()
    """What such a check can and cannot show."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint: cpu, cores, GPU, kernel, python, torch."""
    explanation: str = ""
    """Where the time went, after a FAIL of speed; empty: not looked into."""
    baseline_file: str = ""
    created_at: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    out: str = ""
    """Directory of the reports and runs."""
