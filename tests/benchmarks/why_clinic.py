"""Measures how soon `why` answers in the clinic's programs, and whether it answers as a whole recording does.

    python -m tests.benchmarks.why_clinic [CASE or KIND ...] [--out FILE] [--busy]

Each program is started below `why --stop`. A row has the seconds from its first step to the first line of the answer,
and the first entry of that answer. Whole recordings of the same programs are the rows of reports/clinic/results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Final

from profiler import load
from tests.clinic.case import Case, select
from tests.clinic.conditions import BUSY, QUIET, make_condition
from tests.clinic.judge import judge
from tests.clinic.keep import read_rows
from tests.clinic.program import arguments, environment, placed
from tests.clinic.told import read_told

_ANSWER: Final = " · "
"""What the first line of an answer has between its parts."""
_TIMEOUT_S: Final = 600.0
_NUMBER: Final = re.compile(r"[\d.,]+( (s|ms|µs|min)\b)?")


def _read(stream: IO[str], begins: list[int]) -> None:
    for line in stream:
        if _ANSWER in line and not line.startswith("profiler:") and not begins:
            begins.append(time.monotonic_ns())


def answer(case: Case, condition: str) -> dict[str, Any]:
    """Start a program below `why --stop`, and return when and what it answered."""
    with tempfile.TemporaryDirectory() as name, placed(case) as folder, make_condition(condition):
        out, begins = Path(name) / "run", list[int]()
        why = (sys.executable, "-P", "-m", "profiler", "why", "--stop", "--out", str(out), "--")
        process = subprocess.Popen(
            [*why, sys.executable, *arguments(case)], cwd=folder, env=environment(case, folder), text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stderr is not None
        reader = threading.Thread(target=_read, args=(process.stderr, begins))
        reader.start()
        code = process.wait(_TIMEOUT_S)
        reader.join()
        steps = load(out).steps
        told = read_told(out)
        first = told.entries[0] if told.entries else None
        row: dict[str, Any] = {"case": case.name, "condition": condition, "exit_code": code, "steps": len(steps)}
        row["seconds"] = (begins[0] - int(steps["begin"].min())) / 1e9 if begins and len(steps) else None
        row["cause"] = str(judge(case, told).marks["cause"])
        return row | {"title": first.title if first else "", "lines": list(first.lines) if first else []}


def is_same(row: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether an answer begins as the whole recording does: with the same cause at one of the same lines."""
    if not whole["entries"]:
        return not row["title"]
    entry = whole["entries"][0]
    alike = _NUMBER.sub("", entry["title"]) == _NUMBER.sub("", row["title"])
    lines = {tuple(line) for line in row["lines"]} & {tuple(line) for line in entry["lines"]}
    return alike and bool(lines or not entry["lines"])


def main() -> int:
    """Measure the cases, keep each row at once, and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    condition = BUSY if options.busy else QUIET
    whole = {row["case"]: row for row in read_rows() if row["condition"] == condition and "entries" in row}
    rows = []
    for case in select(options.cases):
        if case.name not in whole or case.missing() or case.is_cuda or case.truth.style:
            continue
        try:
            row = answer(case, condition)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            row = {"case": case.name, "condition": condition, "failed": str(error)[-500:]}
        else:
            row["same"] = is_same(row, whole[case.name])
        rows.append(row)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    answered = [row for row in rows if row.get("seconds") is not None]
    if answered:
        median = statistics.median(row["seconds"] for row in answered)
        print(f"{len(rows)} programs, {len(answered)} with steps: median {median:.1f} s, same first entry in "
              f"{sum(row['same'] for row in answered)}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
