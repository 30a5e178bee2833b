"""Writes the page of the clinic: the score by kind, what was told of each case, and wrong answers beside the truth."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.clinic.case import KINDS, Case
from tests.clinic.judge import ASPECTS, LAWS, Mark
from tests.clinic.keep import REPORTS, read_rows

PAGE: Final = REPORTS / "README.md"
_HEAD: Final = """# The clinic

Slow programs of other people, each rebuilt from a public thread, and what the profiler tells about them. Written by
`make clinic`; docs/clinic.md tells how a case is made and judged. A *right* answer names the cause, a line that the
cure touches, and the cure, in its first entry. A *partly right* one has some of that, or has it in a later entry. A
*wrong* one has none, or says something false or harmful. An *empty* one names nothing. An answer about a control is
right if it promises no gain."""
_MARKS: Final = (Mark.RIGHT, Mark.PARTLY, Mark.WRONG, Mark.EMPTY)


def write(cases: Sequence[Case]) -> int:
    """Write the page of all results about these cases."""
    by_name = {case.name: case for case in cases}
    rows = [row for row in read_rows() if row["case"] in by_name]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(by_name, rows), encoding="utf-8")
    return 0


def page(cases: Mapping[str, Case], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page in Markdown."""
    conditions = list(dict.fromkeys(row["condition"] for row in rows))
    parts = [_HEAD]
    for condition in conditions:
        of = [row for row in rows if row["condition"] == condition]
        parts += [f"## Score, {condition}", "\n".join(_score(cases, of)), "\n".join(_aspects(of))]
    parts += ["## Each case", "\n".join(_table(cases, rows))]
    parts += ["## Wrong answers beside the truth", *(_wrong(cases[row["case"]], row) for row in rows if _is_wrong(row))]
    laws = "; ".join(f"{number} ({text})" for number, text in LAWS.items())
    parts.append(f"Not judged yet, because the report does not tell enough: the laws {laws}.")
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
    if measured := case.measured():
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
