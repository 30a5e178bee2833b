"""Checks the cases of the clinic, and measures their cures.

python -m tests.clinic check [CASE or KIND ...]
python -m tests.clinic gain [CASE or KIND ...] [--pairs 5]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.clinic import gain
from tests.clinic.case import Case, select
from tests.clinic.program import placed, start

_VIRTUAL = (sys.executable, "-m", "profiler", "run", "--virtual-cuda", "--out", "../run", "--")


def problems(case: Case) -> list[str]:
    """What is wrong with the programs of a case: both are run once."""
    found = []
    for is_cured in (False, True) if case.is_curable else (False,):
        name = "cured" if is_cured else "program"
        with placed(case, is_cured=is_cured) as folder:
            ended = start(case, folder, before=_VIRTUAL if case.is_cuda else (), is_cured=is_cured)
            expected = case.exit_code if not is_cured else 0
            if ended.exit_code not in (expected, case.exit_code):
                found.append(f"{name}: exit code {ended.exit_code}\n{ended.errors[-3000:]}")
            if ended.seconds is None and not case.is_cuda and not case.stop_after and not case.exit_code:
                found.append(f"{name}: prints no line `trained in ... s, ... s of CPU`")
            print(f"{case.name}: {name}: {ended.seconds}", flush=True)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _programs(case))
    if lines > 120:
        found.append(f"{lines} lines; a case has about 60, at most 120")
    return found


def _programs(case: Case) -> list[Path]:
    return [path for path in case.folder.rglob("*.py") if "__pycache__" not in path.parts]


def main() -> int:
    """Do what the command says; the exit code is 1 if a case is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.clinic", description=__doc__)
    parser.add_argument("action", choices=("check", "gain"))
    parser.add_argument("cases", nargs="*", help="names or kinds of cases (default: all)")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    try:
        cases = select(options.cases)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    failed = False
    for case in cases:
        if missing := case.missing():
            print(f"{case.name}: skipped: {', '.join(missing)} is not installed")
        elif options.action == "check":
            for problem in problems(case):
                failed = True
                print(f"{case.name}: {problem}")
        elif case.is_curable and not case.is_cuda:
            result = gain.write(case, options.pairs)
            print(f"{case.name}: {result['wall']} wall, {result['cpu']} CPU", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
