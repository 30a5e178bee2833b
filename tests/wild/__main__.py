"""`make wild`: tries the profiler on programs of known illness, in parts that resume: `python -m tests.wild --help`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.wild.conditions import NotPermittedError
from tests.wild.judge import judge
from tests.wild.manifest import Case, read_manifest, select
from tests.wild.record import ROOT, Environment, record_case, result_row, revision
from tests.wild.table import markdown, verdicts

FOLDER: Final = ROOT / "reports" / "wild"
_HEAD: Final = """# Verdicts on programs of known illness

`make wild` made this page of recordings at {commits}.
The cases, with the source, the command, the data and the truth
of each, are in `tests/wild/manifest.toml`. A verdict is right if the number of steps is exact, every true cause of at
least 13% of a step is named at its place, no other cause of at least 10% is named, and all shares, the time without a
core included, agree with the independent measure. `core` and `throttled` may be named under every condition, because
the machine is shared; the scheduler's clock of the main thread tells how much of them is true. Conditions: `quiet`
(nothing is added), `busy` (a busy loop on the program's core), `quota` (a control group with 0.6 cores),
`slow-rank-N` (a busy loop on the core of rank N). Shares are parts of the time of a step; a range is what can be true,
because nothing tells in which part of a step its thread waited for a core.

Public programs are read from the folder `WILD_DIR`, which has a checkout `owner+name` of each repository, and run with
the interpreter `WILD_PYTHON`."""
_PART_S: Final = 3_300
"""Seconds after which a part starts no further recording: it ends within an hour."""


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # takes the conditions away first
    cases = select(read_manifest(), args.cases)
    if args.list:
        for case in cases:
            print(f"{case.name:24} {case.kind:8} {', '.join(case.conditions)}")
        return 0
    if not args.table:
        _run(cases, args)
    return _write_table(cases, args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.wild", description=__doc__)
    add = parser.add_argument
    add("cases", nargs="*", help="names of cases, or script, program, package (default: all)")
    add("--conditions", nargs="*", default=[], help="default: all of each case")
    add("--repeats", type=int, default=0, help="recordings of each case and condition (default: the manifest's)")
    add("--part", default="1/1", help="i/n: every n-th recording, from the i-th on")
    add("--results", type=Path, default=FOLDER / "results.jsonl", help="lines are added; what is there is not repeated")
    add("--page", type=Path, default=FOLDER / "README.md", help="the table")
    add("--commit", default="", help="count results of this commit only, not of all commits ('HEAD': of this one)")
    add("--keep", type=Path, help="keep run directories below this folder")
    add("--list", action="store_true", help="list the cases")
    add("--table", action="store_true", help="record nothing; judge the results and write the table")
    return parser


def _rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    commit = revision() if args.commit == "HEAD" else args.commit
    if not args.results.exists():
        return []
    rows = [json.loads(line) for line in args.results.read_text().splitlines()]
    return [row for row in rows if not commit or row["commit"] == commit]


def _run(cases: Sequence[Case], args: argparse.Namespace) -> None:
    environment, commit, begin = Environment.from_variables(), revision(), time.monotonic()
    missing = {case.name: environment.missing(case) for case in cases}
    done = Counter((row["case"], row["condition"]) for row in _rows(args))
    tasks = [
        (case, condition, repeat)
        for repeat in range(args.repeats or max(case.repeats for case in cases))
        for case in cases
        for condition in case.conditions
        if not missing[case.name] and (not args.conditions or condition in args.conditions)
        if repeat < (args.repeats or case.repeats)
    ]
    number, parts = map(int, args.part.split("/"))
    for case, condition, repeat in tasks[number - 1 :: parts]:
        if repeat < done[case.name, condition]:
            continue
        if time.monotonic() - begin > _PART_S:
            print("this part has taken its time; start it again to go on", file=sys.stderr)
            return
        keep = args.keep and args.keep / f"{case.name}.{condition}.{repeat}.{commit}"
        started = time.monotonic()
        try:
            outcome = record_case(case, condition, environment, keep)
        except NotPermittedError as error:
            print(f"{case.name} {condition}: skipped: {error}", flush=True)
            continue
        row = result_row(case, outcome, repeat, commit, time.monotonic() - started)
        args.results.parent.mkdir(parents=True, exist_ok=True)
        with open(args.results, "a") as file:
            file.write(json.dumps(row) + "\n")
        problems = judge(case, outcome)
        print(f"{case.name} {condition} #{repeat + 1}: {'right' if not problems else problems[0]}", flush=True)


def _write_table(cases: Sequence[Case], args: argparse.Namespace) -> int:
    rows = _rows(args)
    found = verdicts(cases, rows)
    environment = Environment.from_variables()
    skipped = {case.name: reason for case in cases if (reason := environment.missing(case))}
    commits = sorted({row["commit"] for row in rows})
    head = _HEAD.format(commits=", ".join(commits) or "no commit")
    args.page.parent.mkdir(parents=True, exist_ok=True)
    args.page.write_text(markdown(found, skipped, head))
    print(args.page)
    return 0 if all(verdict.is_right for verdict in found) else 1


if __name__ == "__main__":
    sys.exit(main())
