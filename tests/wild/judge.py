"""Compares what a recorded run says with what is true of its program: pure functions, tried on constructed results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Final

from tests.wild.manifest import RANK_CONDITION, Case, TrueCause

NAMED: Final = 0.10
"""A cause from this share of a step on must be named, and a false one from this share on is a false sentence."""
POINTS: Final = 0.03
"""How far a share may lie from the independent measure."""
MARGIN: Final = 0.03
"""A cause whose true share is so close above `NAMED` need not be named."""
LOADED: Final = frozenset({"core", "throttled"})
"""Categories of a busy machine: they are true wherever the scheduler's clocks say so."""
ALL_CLEAR: Final = re.compile(r"neither data nor Python|is not what limits|no cause to name", re.IGNORECASE)


class Miss(StrEnum):
    """The kinds of misses, the worst first."""

    FAILED = "failed"
    """The program or the recording failed."""
    STEPS = "steps"
    FALSE = "false"
    """A sentence on the first screen is not true."""
    ALL_CLEAR = "all-clear"
    """The verdict says that nothing limits a program that is ill."""
    NOT_NAMED = "not named"
    """A true cause is not named."""
    ORDER = "order"
    """A true cause is named, but a smaller one is named first."""
    PLACE = "place"
    SHARE = "share"
    """A share is more than `POINTS` and its own interval from the truth."""
    RANK = "rank"


@dataclass(frozen=True, slots=True)
class Problem:
    """One difference between the verdict and the truth."""

    miss: Miss
    said: str
    true: str

    def __str__(self) -> str:
        return f"{self.miss}: said {self.said}; true: {self.true}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One recorded run: its facts, the first screen, and the independent measures that were made meanwhile."""

    condition: str
    facts: Mapping[str, Any]
    screen: str
    output: str
    exit_code: int
    truth: Sequence[Mapping[str, Any]] = ()
    """What the script's own clocks printed, a row for each rank."""
    runnable: Mapping[str, float] = field(default_factory=dict)
    """PID -> share of the measured steps in which its main thread was runnable without a core."""

    @property
    def waited(self) -> float | None:
        """The largest share of time in which a stepping process waited for a core."""
        return max(self.runnable.values(), default=None)


def judge(case: Case, outcome: Outcome) -> list[Problem]:
    """Everything that is false or missing in the run's verdict, the worst first."""
    facts = outcome.facts
    if outcome.exit_code or not facts or facts.get("state") != "complete":
        last = " ".join(outcome.output.partition("\nrecorded ")[0].splitlines()[-2:])[-200:]
        return [Problem(Miss.FAILED, f"exit code {outcome.exit_code}: {last}", "the program ends well")]
    problems = [
        *_judge_steps(case, outcome),
        *_judge_causes(case, outcome),
        *_judge_rank(case, outcome),
        *_judge_core(case, outcome),
        *_judge_text(case, outcome),
    ]
    order = list(Miss)
    return sorted(problems, key=lambda problem: order.index(problem.miss))


# ---------------------------------------------------------------- steps


def expected_steps(case: Case, output: str) -> list[int]:
    """Updates that each rank made, as the manifest says or the program printed."""
    if case.steps is not None:
        return [case.steps] * case.ranks
    return sorted(int(match[1].replace(",", "")) for match in re.finditer(case.steps_pattern, output))[-case.ranks :]


def _judge_steps(case: Case, outcome: Outcome) -> list[Problem]:
    """The recorder may leave out the first step of each rank, whose begin nothing marks."""
    expected = expected_steps(case, outcome.output)
    counted = sorted(row["count"] for row in outcome.facts["steps"])
    if not expected:
        return [Problem(Miss.FAILED, "no number of steps in the program's output", case.steps_pattern)]
    fits = len(counted) == len(expected) and all(
        want - (not case.first_step) <= have <= want for have, want in zip(counted, sorted(expected), strict=True)
    )
    said = f"{counted} steps ({outcome.facts['step_source']})" if counted else "no steps"
    return [] if fits else [Problem(Miss.STEPS, said, f"{expected} updates")]


# ---------------------------------------------------------------- causes


def true_share(cause: TrueCause, outcome: Outcome) -> tuple[float, float] | None:
    """The least and the largest share that the cause can have, on the rank where it is largest.

    The time of a part includes waiting for a core, which the verdict may take out: at most all that the thread waited,
    and at least the thread's CPU time stays, less the error of its measurement.
    """
    waited = outcome.waited or 0.0
    if cause.part and outcome.truth:
        shares = [
            (max(cpu - sum(error), wall - waited * row["wall"]) / row["wall"], wall / row["wall"])
            for row in outcome.truth
            for cpu, wall, *error in [row["parts"].get(cause.part, (0.0, 0.0))]
        ]
        return max(shares, key=lambda share: share[1])
    if cause.share is None:
        return None
    return cause.share[0] * (1 - waited), cause.share[1]


def must_be_named(cause: TrueCause, outcome: Outcome) -> bool:
    """Whether its truth is clearly above the share from which causes are named."""
    if outcome.condition in ("busy", "quota") and outcome.condition not in cause.under:
        return False
    share = true_share(cause, outcome)
    return share is None or share[0] >= NAMED + MARGIN


def _judge_causes(case: Case, outcome: Outcome) -> list[Problem]:
    named = [cause for cause in _all_causes(outcome) if cause["category"] not in LOADED or cause["notice"]]
    problems = []
    matched: list[int] = []
    for true in case.causes:
        index = next((number for number, cause in enumerate(named) if _matches(true, cause)), None)
        if index is None:
            if must_be_named(true, outcome):
                problems.append(Problem(Miss.NOT_NAMED, _named(outcome), _truth(true, outcome)))
            continue
        matched.append(index)
        problems += _judge_match(true, named[index], outcome)
    if case.ordered and case.causes and matched and min(matched) > 0 and named[0]["category"] not in case.allowed:
        problems.append(Problem(Miss.ORDER, _named(outcome), _truth(case.causes[0], outcome)))
    if case.ordered and len(matched) > 1 and matched != sorted(matched):
        problems.append(Problem(Miss.ORDER, _named(outcome), "; ".join(_truth(true, outcome) for true in case.causes)))
    true_categories = {category for true in case.causes for category in true.category}
    for cause in named:
        if cause["share"] >= NAMED and cause["category"] not in true_categories | set(case.allowed) | LOADED:
            truth = "; ".join(_truth(true, outcome) for true in case.causes) or "nothing is wrong"
            problems.append(Problem(Miss.FALSE, _describe(cause), truth))
    return problems


def _all_causes(outcome: Outcome) -> list[Mapping[str, Any]]:
    """What makes one rank late, then the causes of the rank that was analysed."""
    late = outcome.facts.get("straggler")
    return [*([late] if late else []), *outcome.facts["causes"]]


def _judge_rank(case: Case, outcome: Outcome) -> list[Problem]:
    """The rank that is ill, or slowed from outside, must be named as late; with equal ranks, none."""
    slowed = RANK_CONDITION.fullmatch(outcome.condition)
    expected = int(slowed[1]) if slowed else case.late_rank
    late = outcome.facts.get("straggler")
    if case.ranks == 1 or (expected is None and outcome.condition != "quiet"):
        return []
    if slowed and not _is_slowed(int(slowed[1]), outcome):
        return []
    said = f"rank {late['rank']} is late: {_describe(late)}" if late else "no rank is late"
    if expected is None:
        is_small = late is None or late["lead"] < NAMED or late["category"] in LOADED
        return [] if is_small else [Problem(Miss.FALSE, said, "the ranks are alike")]
    if late is None or expected not in (late["rank"], *late["alike"]):
        return [Problem(Miss.RANK, said, f"rank {expected} is late")]
    if slowed and late["category"] not in LOADED:
        return [Problem(Miss.FALSE, said, f"rank {expected} waits for a core")]
    return []


def _is_slowed(rank: int, outcome: Outcome) -> bool:
    """Whether the rank waited for a core clearly longer than the others; on a full machine it may not."""
    waited = {row["rank"]: outcome.runnable.get(str(row["pid"]), 0.0) for row in outcome.facts["steps"]}
    others = [share for other, share in waited.items() if other != rank]
    return bool(others) and waited.get(rank, 0.0) >= max(others) + NAMED


def _matches(true: TrueCause, cause: Mapping[str, Any]) -> bool:
    code = cause["notice"][0] if cause["notice"] else ""
    return cause["category"] in true.category and (not true.notice or code in true.notice)


def _judge_match(true: TrueCause, cause: Mapping[str, Any], outcome: Outcome) -> list[Problem]:
    problems = []
    if true.at and not any(is_at(place, cause) for place in true.at):
        problems.append(Problem(Miss.PLACE, _describe(cause), f"at {' or '.join(true.at)}"))
    share = true_share(true, outcome)
    if share is not None:
        low = cause["low"] if cause["low"] is not None else cause["share"]
        high = cause["high"] if cause["high"] is not None else cause["share"]
        if min(low, cause["share"] - POINTS) > share[1] or max(high, cause["share"] + POINTS) < share[0]:
            problems.append(Problem(Miss.SHARE, _describe(cause), _truth(true, outcome)))
    return problems


_PLACE: Final = re.compile(r"(?P<file>[^:]+):(?:(?P<first>\d+)(?:-(?P<last>\d+))?|(?P<function>[\w<>.]+))$")


def is_at(place: str, cause: Mapping[str, Any]) -> bool:
    """Whether a site of the cause's path, or the function that it calls, is the place."""
    match = _PLACE.match(place)
    assert match is not None, place
    if match["function"] and match["function"] in str(cause["calls"]).replace("()", "").split("."):
        return True
    for file, line, function in cause["path"]:
        if not PurePath(file).match(match["file"]):
            continue
        if match["first"]:
            if int(match["first"]) <= line <= int(match["last"] or match["first"]):
                return True
        elif match["function"] == function or match["function"] == function.split(".")[-1]:
            return True
    return False


# ---------------------------------------------------------------- the machine and the text


def _judge_core(case: Case, outcome: Outcome) -> list[Problem]:
    """Waiting for a core is as long as the scheduler's clock of the main thread says.

    Where the main thread waits for other threads or ranks, which may lack a core too, it is at least as long.
    """
    waits_for_others = case.ranks > 1 or case.env.get("OMP_NUM_THREADS") != "1"
    waited = outcome.waited
    parts = outcome.facts["breakdown"]
    known = [parts[name] for name in LOADED if name in parts]
    if waited is None or not outcome.facts["steps"]:
        return []
    said = sum(part[0] for part in known)
    wide = sum(part[2] - part[1] for part in known if part[1] is not None and part[2] is not None) / 2
    if abs(said - waited) <= max(2 * POINTS, wide) or (waits_for_others and said > waited):
        return []
    text = f"{said:.0%} waiting for a core or throttled" if known else "no time waiting for a core"
    return [Problem(Miss.SHARE, text, f"{waited:.0%} by the scheduler's clock")]


def _judge_text(case: Case, outcome: Outcome) -> list[Problem]:
    problems = []
    if case.causes and ALL_CLEAR.search(outcome.screen) and any(must_be_named(true, outcome) for true in case.causes):
        text = "; ".join(_truth(true, outcome) for true in case.causes)
        problems.append(Problem(Miss.ALL_CLEAR, f"“{_first_line(outcome)}”", text))
    for pattern in case.never_say:
        if match := re.search(pattern, outcome.screen):
            problems.append(Problem(Miss.FALSE, f"“{match[0]}”", f"must not be said: {case.truth}"))
    for pattern in case.must_say:
        if not re.search(pattern, outcome.screen):
            problems.append(Problem(Miss.NOT_NAMED, f"“{_first_line(outcome)}”", f"must say /{pattern}/"))
    return problems


def _first_line(outcome: Outcome) -> str:
    return str(outcome.facts["text"])[:300]


def _describe(cause: Mapping[str, Any]) -> str:
    place = " > ".join(f"{PurePath(file).name}:{line} {function}" for file, line, function in cause["path"])
    code = f" [{cause['notice'][0]}]" if cause["notice"] else ""
    return f"{cause['category']}{code} {cause['share']:.0%} at {place or 'no place'}"


def _named(outcome: Outcome) -> str:
    causes = "; ".join(_describe(cause) for cause in _all_causes(outcome))
    return causes or f"{outcome.facts['verdict']}: “{_first_line(outcome)}”"


def _truth(true: TrueCause, outcome: Outcome) -> str:
    share = true_share(true, outcome)
    amount = f" {share[0]:.0%} to {share[1]:.0%}" if share else ""
    code = f" [{' or '.join(true.notice)}]" if true.notice else ""
    return f"{' or '.join(true.category)}{code}{amount}" + (f" at {' or '.join(true.at)}" if true.at else "")


# ---------------------------------------------------------------- repeats


def signature(outcome: Outcome) -> tuple[str, frozenset[str]]:
    """What must be equal in repeats: the first cause with its place, and the causes clearly above the limit."""
    causes = [cause for cause in outcome.facts.get("causes", ()) if cause["category"] not in LOADED]
    first = ""
    if causes:
        file, _, function = causes[0]["path"][-1] if causes[0]["path"] else ("", 0, "")
        first = f"{causes[0]['category']} at {PurePath(file).name}:{function}"
    clear = frozenset(cause["category"] for cause in causes if cause["share"] >= NAMED + MARGIN)
    return first, clear


def differences(outcomes: Iterable[Outcome]) -> list[str]:
    """The different verdicts of repeats; one or none: all are the same.

    A cause near the limit may be named in one repeat and not in the next; two causes of nearly the same share may
    change places.
    """
    kept: list[tuple[tuple[str, frozenset[str]], Outcome]] = []
    for outcome in outcomes:
        mine = signature(outcome)
        if not any(_same(outcome, mine, other, theirs) for theirs, other in kept):
            kept.append((mine, outcome))
    return [_named(outcome) for _, outcome in kept]


def _same(one: Outcome, mine: tuple[str, frozenset[str]], other: Outcome, theirs: tuple[str, frozenset[str]]) -> bool:
    all_mine, all_theirs = ({cause["category"] for cause in run.facts.get("causes", ())} for run in (one, other))
    is_same_first = mine[0] == theirs[0] or (_tie(one) and _tie(other))
    return is_same_first and mine[1] <= all_theirs | LOADED and theirs[1] <= all_mine | LOADED


def _tie(outcome: Outcome) -> bool:
    causes = [cause for cause in outcome.facts.get("causes", ()) if cause["category"] not in LOADED]
    return len(causes) > 1 and abs(causes[0]["share"] - causes[1]["share"]) <= 2 * POINTS
