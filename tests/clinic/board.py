"""Writes the pages of the clinic.

The report holds the score by kind, what was told of each case, and wrong answers beside the truth. The board holds our
answers beside those of other tools.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tests.clinic.case import KINDS, Case
from tests.clinic.conditions import QUIET
from tests.clinic.judge import ASPECTS, NOT_JUDGED, Mark, verdict_of
from tests.clinic.keep import REPORTS, hash_of_case, read_rows
from tests.clinic.program import ROOT
from tests.clinic.rivals import RESULTS, TOOLS, cause_of, judge_rival

PAGE: Final = REPORTS / "README.md"
BOARD: Final = ROOT / "docs" / "clinic-board.md"
_HEAD: Final = """# The clinic

Slow programs of other people, each rebuilt from a public thread, and what the profiler tells about them. Written by
`make clinic`; docs/clinic.md tells how a case is made and judged. A *right* answer names the cause, a line that the
cure touches, and the cure, in its first entry. A *partly right* one has some of that, or has it in a later entry. A
*wrong* one has none, or says something false or harmful. An *empty* one names nothing. An answer about a control is
right if it promises no gain. [The board](../../docs/clinic-board.md) shows what other tools tell about these cases."""
_MARKS: Final = (Mark.RIGHT, Mark.PARTLY, Mark.WRONG, Mark.EMPTY)


def write(cases: Sequence[Case]) -> int:
    """Write the page of all results about these cases."""
    by_name = {case.name: case for case in cases}
    rows = [row for row in read_rows() if row["case"] in by_name]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(by_name, rows), encoding="utf-8")
    others = [row for row in read_rows(RESULTS) if row["case"] in by_name]
    BOARD.write_text(board(by_name, rows, others), encoding="utf-8")
    return 0


def page(cases: Mapping[str, Case], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page in Markdown."""
    conditions = list(dict.fromkeys(row["condition"] for row in rows))
    parts = [_HEAD]
    for condition in conditions:
        for title, is_others in (("Score", True), ("Score of programs whose authors know our rules", False)):
            of = [row for row in rows if row["condition"] == condition and cases[row["case"]].is_others == is_others]
            if of:
                parts += [f"## {title}, {condition}", "\n".join(_score(cases, of)), "\n".join(_aspects(of))]
    parts += ["## Each case", "\n".join(_table(cases, rows))]
    parts += ["## Wrong answers beside the truth", *(_wrong(cases[row["case"]], row) for row in rows if _is_wrong(row))]
    parts.append(f"Not judged yet, because the report does not tell enough: {'; '.join(NOT_JUDGED)}.")
    return "\n\n".join(parts) + "\n"


def _score(cases: Mapping[str, Case], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| kind | cases | " + " | ".join(_MARKS) + " | crashed | false sentences |"
    yield "|---|" + "---:|" * (len(_MARKS) + 3)
    for kind in (*KINDS, ""):
        of = [row for row in rows if not kind or kind in cases[row["case"]].kinds]
        if of:
            yield _score_row(kind or "**all**", of)


def _score_row(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    found = Counter(row.get("verdict", "crash") for row in rows)
    false = sum(len(row.get("false", ())) for row in rows)
    cells = [name, len(rows), *(found[mark] for mark in _MARKS), found["crash"], false]
    return f"| {' | '.join(map(str, cells))} |"


def _aspects(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    judged = [row["marks"] for row in rows if "marks" in row]
    yield "| aspect | judged | " + " | ".join(_MARKS) + " |"
    yield "|---|" + "---:|" * (len(_MARKS) + 1)
    for aspect in ASPECTS:
        found = Counter(marks.get(aspect, Mark.NOT_JUDGED) for marks in judged)
        counts = [found[mark] for mark in _MARKS]
        yield f"| {aspect} | {sum(counts)} | {' | '.join(map(str, counts))} |"


def _table(cases: Mapping[str, Case], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    conditions = list(dict.fromkeys(row["condition"] for row in rows))
    verdicts = {(row["case"], row["condition"]): row for row in rows}
    yield "| case | source | it measured | real gain, wall | our first entry | " + " | ".join(conditions) + " |"
    yield "|---|---|---|---|---|" + "---|" * len(conditions)
    for name, case in cases.items():
        of = [verdicts.get((name, condition)) for condition in conditions]
        if not any(of):
            continue
        first = next((row for row in of if row), {})
        marks = [row.get("verdict", "crash") if row else "" for row in of]
        cells = [name, _source(case), case.figure, _gain(case), _first_entry(first), *marks]
        yield f"| {' | '.join(map(_cell, cells))} |"


def _source(case: Case) -> str:
    repository, sign, number = re.split("([#@])", case.source) if case.source != "here" else ("", "", "")
    path = "issues" if sign == "#" else "tree"
    return f"[{case.source[:60]}](https://github.com/{repository}/{path}/{number})" if number else "here"


def _gain(case: Case) -> str:
    measured = case.measured()
    if "wall" in measured:
        wall = measured["wall"]
        return f"{wall['gain']:.2f} ({wall['low']:.2f} to {wall['high']:.2f})"
    pairs = {name: pair for name, pair in case.counts.model_dump().items() if pair is not None}
    return ", ".join(f"{name} {before} → {after}" for name, (before, after) in pairs.items())


def _first_entry(row: Mapping[str, Any]) -> str:
    """The headline, and the first cause with its gain."""
    if "crash" in row:
        return f"crash: {row['crash'].strip().splitlines()[-1] if row['crash'].strip() else 'no run'}"
    entries = row.get("entries", ())
    head = row.get("screen", "").splitlines()[1:2]
    if not entries:
        return head[0] if head else ""
    gain = entries[0]["gain"]
    return entries[0]["title"] + (f", {gain[0]:.2f}×" if gain else "")


def _is_wrong(row: Mapping[str, Any]) -> bool:
    return row.get("verdict") in (Mark.WRONG, None)


def _wrong(case: Case, row: Mapping[str, Any]) -> str:
    truth = case.truth
    places = "; ".join(truth.lines) or "no line"
    false = "".join(f"\n- **{text}**" for text in row.get("false", ()))
    false += "".join(f"\n- {text}" for text in row.get("missing", ()))
    marks = ", ".join(f"{name} {mark}" for name, mark in row.get("marks", {}).items() if mark != Mark.NOT_JUDGED)
    told = row.get("screen") or row.get("crash", "")
    return (
        f"### {case.name}, {row['condition']}\n\n{truth.says} {truth.recurrence.capitalize()}; owner: {truth.owner}; "
        f"lines: `{places}`\n\nMarks: {marks}{false}\n\n```text\n{told.strip()}\n```"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_BOARD_HEAD: Final = """# What other tools tell

Slow programs of other people, and what five tools tell about each. [The clinic](clinic.md) tells how the cases are
made, how each tool is used, and when it is right. `python -m tests.clinic page` wrote this page on {date}. An answer
about an older version of a program is left out."""
_OURS: Final = "ours"
_NOT_RUN, _FAILED, _NOT_APPLICABLE = "", "failed", "n/a"
_BOARD_ASPECTS: Final = ("cause", "line", "advice", "gain")
_RANK: Final = {Mark.RIGHT: 3, Mark.PARTLY: 2, Mark.EMPTY: 1, _FAILED: 1, Mark.WRONG: 0}
"""How good an answer is to a reader: a wrong one is worse than none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one tool told about one case, for the board."""

    mark: str
    """The verdict on it, or why there is none."""
    words: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)
    false: Sequence[str] = ()
    version: str = ""


def board(cases: Mapping[str, Case], ours: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """The board in Markdown."""
    answers: dict[str, dict[str, Answer]] = {name: {} for name in (_OURS, *TOOLS)}
    for row in ours:
        if row["condition"] == QUIET:
            answers[_OURS][row["case"]] = _our_answer(cases[row["case"]], row)
    for row in others:
        if row["program"] == hash_of_case(cases[row["case"]], with_truth=False):
            answers[row["tool"]][row["case"]] = _answer(cases[row["case"]], row)
    shown = {name: case for name, case in cases.items() if any(name in of for of in answers.values())}
    date = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
    blind = {name: case for name, case in shown.items() if case.is_others}
    older = {name: case for name, case in shown.items() if name not in blind}
    parts = [_BOARD_HEAD.format(date=date), "## Totals", "\n".join(_totals(blind, answers))]
    if older:
        parts += ["Programs whose authors know our rules:", "\n".join(_totals(older, answers))]
    parts += ["## Where another tool tells more than we do", "\n".join(_losses(answers))]
    parts += ["## Each case", "\n".join(_rows(shown, answers)), "## In their words"]
    parts += [
        _words(case, {tool: of[name] for tool, of in answers.items() if name in of}) for name, case in shown.items()
    ]
    return "\n\n".join(parts) + "\n"


def _our_answer(case: Case, row: Mapping[str, Any]) -> Answer:
    words = _first_entry(row)
    if "marks" not in row:
        return Answer(_FAILED, words)
    cause = cause_of(case, row["marks"], [entry["title"] for entry in row["entries"]])
    marks = dict.fromkeys(ASPECTS, Mark.NOT_JUDGED) | {name: Mark(mark) for name, mark in row["marks"].items()}
    marks["cause"] = Mark(cause)
    return Answer(verdict_of(case, marks, tuple(row["false"])), words, _told_gain(marks, row["entries"]), row["false"])


def _answer(case: Case, row: Mapping[str, Any]) -> Answer:
    told, judged = judge_rival(case, row)
    words = (
        " / ".join(each.title + (f" → {each.advice}" if each.advice else "") for each in told.entries) or told.screen
    )
    if judged is None:
        return Answer(_FAILED if "failed" in row else _NOT_APPLICABLE, words, version=row["version"])
    marks = _told_gain(judged.marks, [{"leads": each.leads} for each in told.entries])
    return Answer(judged.verdict, words or "nothing", marks, judged.false, row["version"])


def _told_gain(marks: Mapping[str, str], entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The marks; where nothing can be gained in steps, only a gain that somebody tells is judged."""
    silent = marks["gain"] == Mark.RIGHT and not any(entry["leads"] for entry in entries)
    return dict(marks) | ({"gain": Mark.NOT_JUDGED} if silent else {})


def _totals(cases: Mapping[str, Case], answers: Mapping[str, Mapping[str, Answer]]) -> Iterator[str]:
    """Slow programs by verdict and by aspect (right + partly right of the judged ones), and controls."""
    heads = [
        "tool",
        "version",
        "slow programs",
        *_MARKS,
        _FAILED,
        _NOT_APPLICABLE,
        *_BOARD_ASPECTS,
        "false",
        "controls",
    ]
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|" + "---:|" * (len(heads) - 2)
    for tool, of in answers.items():
        told = {name: answer for name, answer in of.items() if name in cases}
        slow = [answer for name, answer in told.items() if "control" not in cases[name].kinds]
        healthy = [answer for name, answer in told.items() if "control" in cases[name].kinds and answer.marks]
        found = Counter(str(answer.mark) for answer in slow)
        right = sum(answer.mark == Mark.RIGHT for answer in healthy)
        aspects = [_aspect([answer.marks[name] for answer in slow if answer.marks]) for name in _BOARD_ASPECTS]
        versions = ", ".join(sorted({answer.version for answer in told.values()} - {""}))
        counts = [found[name] for name in (*_MARKS, _FAILED, _NOT_APPLICABLE)]
        false = sum(len(answer.false) for answer in told.values())
        controls = f"{right} of {len(healthy)}" if healthy else _NOT_APPLICABLE
        yield f"| {' | '.join(map(str, [tool, versions, len(slow), *counts, *aspects, false, controls]))} |"
    yield ""
    yield "An aspect shows how often it was right + partly right, of the answers in which it is judged. *n/a*: the tool"
    yield "does not apply. Controls: healthy programs about which nothing false was told."


def _aspect(marks: Sequence[str]) -> str:
    found = Counter(marks)
    judged = len(marks) - found[Mark.NOT_JUDGED]
    return f"{found[Mark.RIGHT]} + {found[Mark.PARTLY]} of {judged}" if judged else ""


def _losses(answers: Mapping[str, Mapping[str, Answer]]) -> Iterator[str]:
    """The cases in which another tool's verdict is better than ours."""
    others = [of for tool, of in answers.items() if tool != _OURS]
    both = [name for name in answers[_OURS] if any(name in of for of in others)]
    yield (
        f"Of {len(both)} cases with our answer and another tool's:\n"
        if both
        else "We have not answered these cases yet."
    )
    for name in both:
        ours = answers[_OURS][name].mark
        told = {tool: of[name].mark for tool, of in answers.items() if name in of}
        if better := [f"{tool} {mark}" for tool, mark in told.items() if _RANK.get(mark, -1) > _RANK[ours]]:
            yield f"- {name}: ours {ours}, {', '.join(better)}"


def _rows(cases: Mapping[str, Case], answers: Mapping[str, Mapping[str, Answer]]) -> Iterator[str]:
    yield f"| case | source | it measured | real gain, wall | our first entry | {' | '.join(answers)} |"
    yield "|---|---|---|---|---|" + "---|" * len(answers)
    for name, case in cases.items():
        marks = [of[name].mark if name in of else _NOT_RUN for of in answers.values()]
        ours = answers[_OURS].get(name, Answer("")).words
        cells = [name, _source(case), case.figure, _gain(case), ours, *marks]
        yield f"| {' | '.join(map(_cell, cells))} |"


def _words(case: Case, answers: Mapping[str, Answer]) -> str:
    lines = [f"### {case.name}", "", case.truth.says, ""]
    for tool, answer in answers.items():
        marks = ", ".join(
            f"{name} {answer.marks[name]}"
            for name in _BOARD_ASPECTS
            if answer.marks.get(name, Mark.NOT_JUDGED) != Mark.NOT_JUDGED
        )
        false = "".join(f" False: {text}." for text in answer.false)
        words = html.escape(_cell(answer.words), quote=False).replace("*", "\\*").replace("_", "\\_")
        lines.append(f"- **{tool}**, {answer.mark}{f' ({marks})' if marks else ''}: {words}{false}")
    return "\n".join(lines)
