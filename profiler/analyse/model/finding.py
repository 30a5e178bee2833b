"""Findings as data: what takes the time of a run, where, and what a cure is worth.

`profiler.diagnose` makes them: its rules recognize causes of slowness, and what no rule explains is told as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from profiler.analyse.model.ledger import Period
from profiler.core.errors import Notice
from profiler.run.model import Site


class GainMethod(StrEnum):
    """How a gain was predicted."""

    BOUND = "bound"
    """The step without the time that the cause costs, as it was recorded."""
    ESTIMATE = "estimate"
    """The same, where how much of the time the cure saves, or what it needs instead, is not recorded, but taken from
    measurements elsewhere."""
    REPLAY = "replay"
    """The recorded steps, simulated again with the cure: what then waits for what is computed anew."""
    KNOCK_OUT = "knock-out"
    """`try` measured it: the program ran unchanged and without the cause, in alternating blocks of steps."""


@dataclass(frozen=True, slots=True)
class Cure:
    """One change of a step, of which a replay or the bound predicts what it gives."""

    name: str
    """What is changed: `sync`, `copy`, `copies`, `launch`, `allocation`, `kernels`, `compute`, `communication`, a host
    category, or the name of a region, an operator or a function."""
    factor: float = 0.0
    """How many times as long it takes then."""
    word: str = ""
    """How it is done then, for `copies` (pinned, overlapped) and `kernels` (fused); else empty."""
    sites: tuple[Site, ...] = ()
    """The lines at which it is changed; empty: everywhere."""

    def __str__(self) -> str:
        return f"{self.name}={self.word or f'{self.factor:g}'}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What changes give, seconds per step."""

    method: GainMethod
    before: float
    """A step as it was recorded. In a replay, of steps that follow each other: where the host was ahead of the device
    when the recording ended, that is longer than the host's steps."""
    after: float
    measured: float
    """The host's step, as it was recorded."""
    replayed: float | None = None
    """The same by the replay without any change: how far that is from `measured` tells how true the replay is."""
    unexplained: float = 0.0
    """Share of the measured time by which activities began later than all that was recorded explains. A replay keeps
    it, although it may be a wait for something that a change shortens."""

    @property
    def factor(self) -> float:
        """Return how many times as fast steps become."""
        return self.before / self.after if self.after > 0 else float("inf")


class Predictor(Protocol):
    """Simulates the steps of one run again."""

    def predict(self, cures: Sequence[Cure], remaining: float = 0.0) -> Prediction | None:
        """Return what these changes give; None where nothing of what they change was recorded.

        :param remaining: seconds per step that the cured program needs instead.
        :raises KeyError: nothing in the run bears the name of a change.
        """
        ...

    def names(self) -> Sequence[str]:
        """Return the names of regions, operators and functions that can be changed, those with most time first."""
        ...


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast steps become by a cure."""

    method: GainMethod
    """How it was predicted or measured."""
    factor: float
    """How many times as many steps per second."""
    low: float
    """Lower end of the 95% interval of `factor`."""
    high: float
    """Upper end of the same interval."""
    is_least: bool = False
    """Whether the cure also makes the rest of the step faster, by how much is not known: the real gain may be several
    times as large."""
    is_most: bool = False
    """Whether it is the gain of leaving out work of which the program needs a part, such as evaluation."""


class Confidence(StrEnum):
    """How sure a finding is."""

    HIGH = "high"
    """Its cost was recorded exactly, or its interval is narrow."""
    MEDIUM = "medium"
    """All of the interval of its cost is large enough to matter."""
    LOW = "low"
    """The cost may be too small to matter."""


class KnockOut(StrEnum):
    """How `try` runs the program without the cause of a finding."""

    STATEMENT = "statement"
    """The statements at its lines are skipped after their first execution, with the loop or function around them."""
    LINE = "line"
    """Only the innermost statements at its lines are: the loop or the function around them does needed work."""
    THREAD = "thread"
    """Threads other than the main one stop at its lines."""
    SETTINGS = "settings"
    """Settings are changed as the cure changes them (`profiler.agent.hooks.trial_settings`)."""


@dataclass(frozen=True)
class RuleText:
    """The words of a rule: templates, which `profiler.report.finding_text` fills with the values of a finding.

    Time that no rule explains has a name only.

    A field's format tells how its value is written: `{wait:share}`, `{batch:time}`, `{made:size}`, `{workers:count}`,
    with its noun `{times:n time}`, in code `{workers:plain}`, `{site:place}`, `{variable:assignment}` (`loader = `, or
    nothing). All findings have the values `seconds` and `share`, which the cause costs, and `site`, the first of its
    lines.
    """

    name: str
    """Its name, which is stable."""
    title: str
    """The cause in one sentence that a verdict can begin with, without its full stop."""
    evidence: tuple[str, ...]
    """Sentences with the figures that show it; one that mentions a value that is not known is left out."""
    fix: str
    """What to do about it, as a sentence."""
    fixes: tuple[str, ...] = field(default=(), kw_only=True)
    """The same for findings that tell more: the first of these whose values are all known takes the place of `fix`."""
    code: str = field(default="", kw_only=True)
    """What to write instead, as code."""
    is_of_code: bool = field(default=False, kw_only=True)
    """Whether `fix` is general advice to change the code at the lines. Advice about the function that takes most of the
    time replaces it."""
    knock_out: KnockOut | None = field(default=None, kw_only=True)
    """How `try` runs a program without the cause; None: it cannot."""
    settings: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """The settings to change; of a text, the value of the finding with this name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line that takes a part of the time of a finding."""

    site: Site
    """The line."""
    share: float
    """The share of a step, as that of the finding."""
    inside: str = ""
    """The function of a library, or of Python's, in which most of that time is spent; empty: the line's own code,
    torch, or several functions."""
    package: str = ""
    """The library whose code takes most of that time; empty: there is none."""
    called_by: str = ""
    """The function of another library that calls that one, most of that time; empty: there is none."""
    registered_at: Site | None = None
    """The line that registered the hook in which most of that time is; None: there is none, or it is not known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that takes time: a cause of slowness that a rule recognized, or time that no rule explains."""

    rule: RuleText
    """Name of the rule that recognized it; of time that no rule explains, the name of a category, a stage or another
    kind of time. Names are stable."""
    seconds: float
    """Seconds per step that it takes."""
    share: float
    """The same as a share of a step without waits for a core and recording (`left_out`). Waits for a core that no cure
    shortens are a share of the recorded step."""
    low: float
    """Lower end of the 95% interval of `share`."""
    high: float
    """Upper end of the same interval."""
    confidence: Confidence
    """How sure it is."""
    sites: tuple[Site, ...] = ()
    """Its lines, the largest cost first; at most three."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The figures that the texts of the rule mention, in base units."""
    gains: tuple[Gain, ...] = ()
    """The predictions of what the cure gives, the most certain first."""
    overlaps: str = ""
    """Name of the rule of a finding with a larger gain that accounts for most of the same time: after the cure of that
    one, this one costs less."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """`seconds` by category of the step, such as `input` or `python`."""

    left_out: float = 0.0
    """Share of the recorded step that `share` and `gains` leave out: waits for a core, and the cost of recording."""
    is_periodic: bool = False
    """Whether it costs time in every so many steps only, such as an evaluation."""
    places: tuple[Place, ...] = ()
    """The lines whose time it is by stack samples and records, the largest first; at most three. `sites` may be other
    ones: those at which the cure is made."""
    known_cure: str = ""
    """Advice about the function that takes most of its time, as a sentence; empty where there is none."""
    cure_site: Site | None = None
    """The line to change, where that is none of `sites`: it registered the hooks of a library that take most of the
    time, or it made what the advice changes, such as TrainingArguments. None: there is none, or it is not known."""
    of_steps: float = 0.0
    """The share of the time of all steps that a finding about the run takes. The steps with work that occurs once are
    among them. It is 0 for a finding about another part of the run."""
    period: Period | None = None
    """The part of the run whose time a finding about the run has; None: it is about the steps."""
    is_of_run: bool = False
    """Whether `seconds` and `share` are of the whole run, and not of a step; both are 0 where a cause costs no time."""

    @property
    def recorded_share(self) -> float:
        """Return the cost as a share of the step as it was recorded, waits for a core and the cost of recording
        included."""
        return self.share * (1.0 - self.left_out)

    @property
    def gain(self) -> float:
        """Return the most certain prediction as a factor; 1 without any."""
        return self.gains[0].factor if self.gains else 1.0

    @property
    def has_cure(self) -> bool:
        """Return whether a rule explains it. What no rule explains is told as it is, such as computing."""
        return bool(self.rule.title)

    @property
    def is_part_of_run(self) -> bool:
        """Return whether it tells what took a part of the run outside of its steps, of which no cause is known."""
        return self.is_of_run and not self.has_cure

    @property
    def is_told(self) -> bool:
        """Return whether a verdict tells it: it is sure, about a step, and no other finding is about the same time."""
        return not self.overlaps and not self.is_of_run and self.confidence is not Confidence.LOW

    @property
    def is_growth(self) -> bool:
        """Return whether it tells that steps take longer and longer."""
        return self.of_steps > 0 and self.period is None

    @property
    def can_be_tried(self) -> bool:
        """Return whether `try` knows what to leave out or to change; it may still refuse, as where a file has
        changed."""
        if self.is_of_run or self.rule.knock_out is None:
            return False
        if self.rule.knock_out is KnockOut.SETTINGS:
            return self.filled_settings() is not None
        return bool(self.sites or self.values.get("thread_site"))

    def filled_settings(self) -> dict[str, Any] | None:
        """Return the settings of its rule with the values that they name; None where one is not known."""
        return _filled(self.rule.settings, self.values)


def _filled(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
    filled: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            new: Any = _filled(value, values)
        elif isinstance(value, str):
            number = values.get(value)
            new = number if number is None or isinstance(number, bool) else max(1, round(number))
        else:
            new = value
        if new is None:
            return None
        filled[name] = new
    return filled


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A rule that cannot judge this run, and the reason."""

    rule: RuleText
    """Name of the rule."""
    reason: Notice
    """The reason why it cannot judge the run."""


# ---------------------------------------------------------------- two runs


class FindingState(StrEnum):
    """What became of a cause from one run to another."""

    NEW = "new"
    GREW = "grew"
    REMAINS = "remains"
    SHRANK = "shrank"
    CURED = "cured"
    """No longer found."""
    UNKNOWN = "unknown"
    """Only one run has it, and the other does not tell: the rule cannot judge it, or a step takes so long that the same
    cost would be too small a share of it to be named."""


MUCH: Final = 0.05
"""Share of a step by which the cost of a cause must have changed to count as more or less: that of `WORTH_NAMING`."""


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A cause in two runs, of which at least one has it."""

    state: FindingState
    """What became of it."""
    before: Finding | None
    """The finding about the first run; None: it does not have it."""
    after: Finding | None
    """The finding about the second run; None: it does not have it."""

    @property
    def finding(self) -> Finding:
        """Return the finding about the second run, else that about the first."""
        finding = self.after or self.before
        assert finding is not None
        return finding


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """What the rules say about one of two runs."""

    findings: tuple[Finding, ...]
    not_judged: tuple[NotJudged, ...]
    step: float
    """Seconds of a step."""

    def tells_of(self, cost: float, rule: str) -> bool:
        """Return whether a rule would name a cost of so many seconds per step."""
        return cost >= MUCH * self.step and all(each.rule.name != rule for each in self.not_judged)


def compare_findings(before: JudgedRun, after: JudgedRun) -> tuple[FindingChange, ...]:
    """Return what became of each cause of a step's time, the worst first. A cause of low confidence in both runs is
    none."""
    first, last = (
        {each.rule.name: each for each in run.findings if each.has_cure and not each.is_of_run}
        for run in (before, after)
    )
    changes = []
    for name in {**first, **last}:
        old, new = first.get(name), last.get(name)
        if all(each is None or each.confidence is Confidence.LOW for each in (old, new)):
            continue
        if old is not None and new is not None:
            state = _growth(old, new)
        elif new is not None:
            state = FindingState.NEW if before.tells_of(new.seconds, name) else FindingState.UNKNOWN
        else:
            assert old is not None
            state = FindingState.CURED if after.tells_of(old.seconds, name) else FindingState.UNKNOWN
        changes.append(FindingChange(state, old, new))
    order = list(FindingState)
    return tuple(sorted(changes, key=lambda change: (order.index(change.state), -change.finding.seconds)))


def _growth(old: Finding, new: Finding) -> FindingState:
    """Return whether a cause costs more or less, by more than chance and by MUCH of a step."""
    if new.seconds < old.seconds:
        return FindingState.SHRANK if _growth(new, old) is FindingState.GREW else FindingState.REMAINS
    step = old.seconds / old.recorded_share
    is_chance = new.low / new.share * new.seconds <= old.high / old.share * old.seconds
    return FindingState.REMAINS if is_chance or new.seconds - old.seconds < MUCH * step else FindingState.GREW
