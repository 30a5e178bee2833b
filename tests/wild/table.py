"""The results as a Markdown table, with the reason for each miss beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from tests.wild.judge import Miss, Outcome, Problem, differences, judge
from tests.wild.manifest import Case

_MOST_REASONS: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one case under one condition, over its repeats."""

    case: Case
    condition: str
    repeats: int
    good: int
    problems: tuple[Problem, ...]
    different: tuple[str, ...]
    """The verdicts, where repeats differ."""

    @property
    def is_right(self) -> bool:
        """Whether every repeat was right and all said the same."""
        return self.good == self.repeats and len(self.different) < 2


def outcome_of_row(row: Mapping[str, Any]) -> Outcome:
    """The outcome that a line of the results file holds."""
    return Outcome(**{field.name: row[field.name] for field in fields(Outcome)})


def verdicts(cases: Sequence[Case], rows: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """One for each case and condition that was tried, at the last commit, by the manifest as it is now."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    newest = {(row["case"], row["condition"]): row["commit"] for row in rows}
    for row in rows:
        if row["commit"] == newest[row["case"], row["condition"]]:
            groups[row["case"], row["condition"]].append(outcome_of_row(row))
    result = []
    for case in cases:
        for condition in case.conditions:
            outcomes = groups.get((case.name, condition), [])
            if not outcomes:
                continue
            problems = [judge(case, outcome) for outcome in outcomes]
            once = {(problem.miss, problem.true): problem for found in problems for problem in found}
            different = tuple(differences(outcomes))
            good = sum(not found for found in problems)
            result.append(Verdict(case, condition, len(outcomes), good, tuple(once.values()), different))
    return result


def markdown(found: Sequence[Verdict], skipped: Mapping[str, str], head: str) -> str:
    """The page: the totals, then a row for each case and condition."""
    right = sum(verdict.is_right for verdict in found)
    false = sum(any(problem.miss in (Miss.FALSE, Miss.ALL_CLEAR) for problem in verdict.problems) for verdict in found)
    steps = sum(not any(problem.miss is Miss.STEPS for problem in verdict.problems) for verdict in found)
    same = sum(len(verdict.different) < 2 for verdict in found if verdict.repeats > 1)
    repeated = sum(verdict.repeats > 1 for verdict in found)
    all_same = f"{same} of {repeated}" if repeated else "not repeated"
    lines = [
        head,
        "",
        "| cases under a condition | verdict right | steps exact | a false sentence | same verdict in all repeats |",
        "|---|---|---|---|---|",
        f"| {len(found)} | {right} ({right / max(len(found), 1):.0%}) | {steps} | {false} | {all_same} |",
        "",
        "| case | condition | right | what is wrong | the verdict names | true is |",
        "|---|---|---|---|---|---|",
    ]
    for verdict in found:
        problems = verdict.problems[:_MOST_REASONS]
        columns = [[_cell(str(text)) for text in column] for column in zip(*map(_columns, problems), strict=True)]
        if len(verdict.different) > 1:
            columns = columns or [[], [], []]
            columns[0].append("repeats differ")
            columns[1].append(_cell(" / ".join(verdict.different[:2])))
        texts = ["<br>".join(column) for column in columns] or ["", "", ""]
        count = f"{verdict.good} of {verdict.repeats}"
        lines.append(f"| {verdict.case.name} | {verdict.condition} | {count} | {' | '.join(texts)} |")
    tried = {verdict.case.name for verdict in found}
    if left := {name: reason for name, reason in skipped.items() if name not in tried}:
        lines += ["", "Not tried:", "", *(f"- {name}: {reason}" for name, reason in left.items())]
    return "\n".join(lines) + "\n"


def _columns(problem: Problem) -> tuple[str, str, str]:
    return problem.miss, problem.said, problem.true


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:400]
