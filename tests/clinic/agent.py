"""A scripted agent: asks `why` about each archived recording, does what `next_step` says, and ends at an edit.

    python -m tests.clinic.agent [CASE or KIND ...]

It prints how often the line of the edit is a line of the truth. Of a healthy program it is right to name no line.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from profiler.mcp.answers import MOST_TOKENS, limited, tokens
from profiler.mcp.tools import Tools
from tests.clinic.case import Case, select
from tests.clinic.keep import BEFORE, archive_path, read_rows

MOST_CALLS: Final = 4
_CALL: Final = re.compile(r"Call (\w+) (\{.*\})")
_EDIT: Final = re.compile(r"(?:Edit|Read) (.+?:\d+)(?: \(also (.+?)\))?[:,] ")
"""Lines without a known cure are to be read: that claims nothing about them."""
_PLACE: Final = re.compile(r"([^\s,]+):(\d+)")


class Followed(NamedTuple):
    """Where the agent ended."""

    places: tuple[tuple[str, int], ...]
    """Name of the file and number of the lines of the edit, the one to edit first; empty: it ended without an edit."""
    calls: int
    step: str
    """The last `next_step`."""


def follow(run: Path) -> Followed:
    """Ask `why` about a run, and call what `next_step` names, at most MOST_CALLS times in all."""
    tools, step = Tools(allow_runs=False, folder=run.parent), f"Call why {json.dumps({'run': str(run)})}"
    for calls in range(1, MOST_CALLS + 1):
        name, arguments = _CALL.fullmatch(step).groups()  # type: ignore[union-attr]
        answer = limited(getattr(tools, name)(**json.loads(arguments)))
        assert tokens(answer) <= MOST_TOKENS, name
        step = answer["next_step"]
        if edit := _EDIT.match(step):
            places = _PLACE.findall(" ".join(filter(None, edit.groups())))
            return Followed(tuple((file.rpartition("/")[2], int(line)) for file, line in places), calls, step)
        if not _CALL.fullmatch(step):
            return Followed((), calls, step)
    return Followed((), MOST_CALLS, step)


def true_lines(case: Case) -> set[tuple[str, int]]:
    """Name of the file and number of each line of the statements that the cure touches."""
    return {(file.rpartition("/")[2], line) for place in case.truth.lines for file, line in case.statement(place)}


def archived(cases: list[Case]) -> Iterator[tuple[Case, str]]:
    """The cases whose recordings are archived, each with its condition."""
    by_name = {case.name: case for case in cases}
    for row in read_rows(BEFORE):
        if row["case"] in by_name:
            yield by_name[row["case"]], row["condition"]


def _try(task: tuple[Case, str]) -> Followed:
    return follow(archive_path(*task))


def main(names: list[str]) -> int:
    """Follow every archive, and print each wrong end and the shares of right ones."""
    tasks = list(archived(select(names)))
    counts = Counter[str]()
    with ProcessPoolExecutor() as pool:
        for (case, condition), end in zip(tasks, pool.map(_try, tasks), strict=True):
            true = true_lines(case)
            if not true:
                kind, right = "healthy", not end.step.startswith("Edit")
            else:
                kind, right = "ill", bool(true & set(end.places))
                counts["first"] += bool(true & set(end.places[:1]))
            counts[kind] += 1
            counts[f"{kind} right"] += right
            counts[f"calls {end.calls}"] += 1
            if not right:
                print(f"{case.name} {condition}: {end.calls} calls: {end.step[:160]}", flush=True)
    ill, healthy = counts["ill"], counts["healthy"]
    print(f"an edit at a true line: {counts['ill right']} of {ill}; as the first line: {counts['first']} of {ill}")
    print(f"no edit of a healthy program: {counts['healthy right']} of {healthy}")
    print(f"calls: { ({name: number for name, number in sorted(counts.items()) if name.startswith('calls')}) }")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
