"""Checks the cases of the clinic, measures their cures, and judges what the profiler tells about them.

    python -m tests.clinic check [CASE or KIND ...]
    python -m tests.clinic gain [CASE or KIND ...] [--pairs 5]
    python -m tests.clinic judge [CASE or KIND ...] [--conditions quiet busy] [--part 1/4]
    python -m tests.clinic archive [CASE or KIND ...] [--conditions quiet busy]
    python -m tests.clinic again [CASE or KIND ...]
    python -m tests.clinic rivals --python ENV/bin/python [CASE or KIND ...] [--tools Scalene]
    python -m tests.clinic page

`judge` and `rivals` go on where an earlier call ended. `archive` keeps recordings for good. `again` judges the archives
and lists each verdict that is another one than that of the version which made them. `page` writes
reports/clinic/README.md and docs/clinic-board.md.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.clinic import board, gain, rivals
from tests.clinic.case import Case, select
from tests.clinic.conditions import CONDITIONS, QUIET, NotPermittedError, has_condition
from tests.clinic.judge import Mark
from tests.clinic.keep import BEFORE, archive, judge_archive, read_rows, try_case, write_rows
from tests.clinic.program import placed, start

_MOST_LINES: Final = 120
RANKS: Final = (Mark.WRONG, Mark.EMPTY, Mark.PARTLY, Mark.RIGHT)
"""Verdicts from the worst to the best."""
_PART_S: Final = 3_300
"""Seconds after which a part starts no further recording: it ends within an hour."""


def problems(case: Case) -> list[str]:
    """What is wrong with the programs of a case: both are run once."""
    found = []
    for is_cured in (False, True) if case.is_curable else (False,):
        name = "cured" if is_cured else "program"
        with placed(case, is_cured=is_cured) as folder:
            ended = start(case, folder, before=gain.VIRTUAL if case.is_cuda else (), is_cured=is_cured)
        expected = {case.exit_code, 0} if is_cured else {case.exit_code}
        if ended.exit_code not in expected:
            found.append(f"{name}: exit code {ended.exit_code}\n{ended.errors[-3000:]}")
        is_timed = not (case.is_cuda or case.stop_after or case.exit_code or case.truth.parts or case.truth.style)
        if ended.seconds is None and is_timed:
            found.append(f"{name}: prints no line `trained in ... s, ... s of CPU`")
        print(f"{case.name}: {name}: {ended.seconds}", flush=True)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _programs(case))
    if lines > _MOST_LINES and case.source != "here" and not case.checkout:
        found.append(f"{lines} lines; a case has about 60, at most {_MOST_LINES}")
    return found


def _programs(case: Case) -> list[Path]:
    return [path for path in case.folder.rglob("*.py") if "__pycache__" not in path.parts]


def judge(cases: list[Case], conditions: list[str], part: str) -> None:
    """Record and judge each case under each condition, and keep every row at once."""
    rows = {(row["case"], row["condition"]): row for row in read_rows()}
    number, parts = map(int, part.split("/"))
    tasks = [(case, name) for name in conditions for case in cases if has_condition(case, name)]
    begin = time.monotonic()
    for case, condition in tasks[number - 1 :: parts]:
        if time.monotonic() - begin > _PART_S:
            print("this part has taken its time; start it again to go on", file=sys.stderr)
            return
        key = case.name, condition
        try:
            row = try_case(case, condition, rows.get(key))
        except NotPermittedError as error:
            print(f"{case.name} {condition}: skipped: {error}", flush=True)
            continue
        if row is not rows.get(key):
            rows = {(each["case"], each["condition"]): each for each in read_rows()} | {key: row}
            write_rows(rows.values())
        print(f"{case.name} {condition}: {row.get('verdict', 'crash')}", flush=True)


def keep(cases: list[Case], conditions: list[str]) -> int:
    """Archive the recordings that there are."""
    rows = {(row["case"], row["condition"]): row for row in read_rows()}
    for case in cases:
        for condition in conditions:
            if (case.name, condition) in rows and (path := archive(case, condition, rows[case.name, condition])):
                print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB", flush=True)
    return 0


def again(cases: list[Case]) -> int:
    """Judge archives; the exit code is 1 if this version tells less about one of them than before."""
    by_name, worse, verdicts = {case.name: case for case in cases}, 0, Counter[tuple[str, str]]()
    for before in read_rows(BEFORE):
        case = by_name.get(before["case"])
        if case is None:
            continue
        row = judge_archive(case, before["condition"])
        change = before["verdict"], row["verdict"]
        verdicts[change] += 1
        if change[0] != change[1]:
            is_worse = RANKS.index(change[1]) < RANKS.index(change[0])
            worse += is_worse
            print(
                f"{case.name} {before['condition']}: {change[0]} became {change[1]}{' (worse)' * is_worse}", flush=True
            )
    for name in Mark:
        old, new = (sum(count for pair, count in verdicts.items() if pair[at] == name) for at in (0, 1))
        if old or new:
            print(f"{name}: {old} became {new}")
    return int(worse > 0)


def try_rivals(cases: list[Case], tools: list[str], python: Path) -> None:
    """Run other tools on the cases, and keep every row at once."""
    for case in cases:
        for tool in tools:
            rows = {(row["case"], row["tool"]): row for row in read_rows(rivals.RESULTS)}
            row = rivals.try_tool(case, tool, python, rows.get((case.name, tool)))
            rows[case.name, tool] = row
            write_rows(rows.values(), rivals.RESULTS)
            print(f"{case.name}: {tool}: {row.get('told', row.get('failed') or row.get('not_applicable'))}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clinic", description=__doc__.partition("\n")[0])
    actions = ("check", "gain", "judge", "archive", "again", "rivals", "page")
    parser.add_argument("action", choices=actions)
    parser.add_argument("cases", nargs="*", help="names or kinds of cases (default: all)")
    parser.add_argument("--pairs", type=int, default=5, help="at least 2")
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=[QUIET])
    parser.add_argument("--part", default="1/1", help="i/n: every n-th recording, from the i-th on")
    parser.add_argument("--python", type=Path, help="the Python of an environment with the other tools")
    parser.add_argument("--tools", nargs="+", choices=rivals.TOOLS, default=list(rivals.TOOLS))
    options = parser.parse_args()
    if options.action == "rivals" and not options.python:
        parser.error("rivals needs --python ENV/bin/python")
    return options


def main() -> int:
    """Do what the command says; the exit code is 1 if a case is wrong."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # takes the conditions away first
    try:
        cases = select(options.cases)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    of_files = {
        "page": lambda: board.write(cases),
        "again": lambda: again(cases),
        "archive": lambda: keep(cases, options.conditions),
    }
    if options.action in of_files:
        return of_files[options.action]()
    present = []
    for case in cases:
        if missing := case.missing():
            print(f"{case.name}: skipped: {missing}")
        else:
            present.append(case)
    if options.action == "judge":
        judge(present, options.conditions, options.part)
        return board.write(select(()))
    if options.action == "rivals":
        try_rivals(present, options.tools, options.python)
        return board.write(select(()))
    return check(present) if options.action == "check" else measure(present, options.pairs)


def check(cases: list[Case]) -> int:
    """Run each program once; the exit code is 1 if a case is wrong."""
    found = [f"{case.name}: {problem}" for case in cases for problem in problems(case)]
    print("\n".join(found))
    return int(bool(found))


def measure(cases: list[Case], pairs: int) -> int:
    """Measure each cure and keep the result; the exit code is 1 if one could not be measured."""
    failed = False
    for case in cases:
        if case.is_curable and not case.stop_after and (case.is_counted or case.has_gain):
            try:
                result = gain.write(case, max(2, pairs))
            except ValueError as error:
                failed = True
                print(error, flush=True)
                continue
            print(f"{case.name}:", {name: each for name, each in result.items() if name != "pairs"}, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
