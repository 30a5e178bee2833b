"""Records one case under one condition and collects what is needed to judge it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.wild import data
from tests.wild.conditions import RankPinner, SchedulerWatch, make_conditions
from tests.wild.judge import Outcome
from tests.wild.manifest import HERE, SCRIPTS, Case

ROOT: Final = HERE.parent.parent
_OUTPUT_CHARACTERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Environment:
    """Where programs, their interpreter and the runs are."""

    sources: Path
    """WILD_DIR: a folder `owner+name` for each repository, and `data`."""
    python: Path
    """The interpreter of the programs, which has the packages of the manifest."""

    @classmethod
    def from_variables(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        sources = Path(variables.get("WILD_DIR", Path.home() / ".cache" / "training-profiler-wild"))
        return cls(sources, Path(variables.get("WILD_PYTHON", sys.executable)))

    def missing(self, case: Case) -> str:
        """Why the case cannot run here; empty: it can."""
        if case.source is not None:
            file = self.checkout(case) / case.source.file
            if not file.exists():
                return f"WILD_DIR has no checkout of {case.source.repository} at {case.source.revision[:12]}"
        for package in case.packages:
            name = package.replace("-", "_")
            command = [self.python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec('{name}') is None)"]
            if subprocess.run(command, check=False, capture_output=True).returncode:
                return f"the interpreter WILD_PYTHON has no package {package}"
        return ""

    def checkout(self, case: Case) -> Path:
        """The checkout of the case's repository."""
        assert case.source is not None
        return self.sources / case.source.repository.replace("/", "+")


def record_case(case: Case, condition: str, environment: Environment, keep: Path | None = None) -> Outcome:
    """Record the case once; `keep` is the folder that the run directory stays in.

    :raises NotPermittedError: the condition cannot be made on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="wild-", ignore_cleanup_errors=True) as scratch:
        run = (keep or Path(scratch)) / "run"
        return _record(case, condition, environment, Path(scratch), run)


def _record(case: Case, condition: str, environment: Environment, scratch: Path, run: Path) -> Outcome:
    places = {"python": environment.python, "scripts": SCRIPTS, "data": environment.sources / "data" / case.data}
    if case.source is not None:
        places["source"] = environment.checkout(case)
    folder = scratch / "work"
    for name in ("", *case.folders):
        (folder / name).mkdir()
    for name in case.links:
        (folder / name).symlink_to(places["source"] / name)
    if case.data:
        data.make(case.data, places["data"])
        (scratch / "data").symlink_to(places["data"])  # some programs read ../data
        for path in places["data"].iterdir():
            (folder / path.name).symlink_to(path)
    settings = {
        name: value.format(**{key: str(path) for key, path in places.items()}) for name, value in case.env.items()
    }
    search = os.pathsep.join(filter(None, (str(ROOT), settings.pop("PYTHONPATH", ""))))
    variables = {**os.environ, **settings, "PYTHONPATH": search}
    with make_conditions(condition) as conditions:
        recorder = [sys.executable, "-m", "profiler", "run", "--level", "standard", "--out", str(run)]
        command = [*recorder, "--timeout", str(case.timeout), "--", *conditions.prefix, *case.argv(places)]
        with open(scratch / "stdout", "wb") as output, open(scratch / "stderr", "wb") as screen:
            process = subprocess.Popen(
                conditions.in_group(command),
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=screen,
            )
            watch = SchedulerWatch(process.pid)
            watch.start()
            if conditions.slow_rank is not None:
                RankPinner(process.pid, conditions.slow_rank).start()
            try:
                code = process.wait(timeout=4 * case.timeout)
            except BaseException:  # also where this program is told to stop: nothing stays behind
                process.terminate()
                process.wait()
                raise
    stdout, stderr = ((scratch / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    facts = _facts(run)
    runnable = {}
    for row in facts.get("steps", ()):
        if (share := watch.runnable(row["pid"], row["begin"], row["end"])) is not None:
            runnable[str(row["pid"])] = share
    return Outcome(
        condition=condition,
        facts=facts,
        screen=stderr.partition("\nrecorded ")[2],
        output=(stdout + stderr)[-_OUTPUT_CHARACTERS:],
        exit_code=code,
        truth=[json.loads(line[6:]) for line in stdout.splitlines() if line.startswith("truth {")],
        runnable=runnable,
    )


def _facts(run: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.wild.facts", str(run)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        return {"error": done.stderr[-1000:]}
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def revision() -> str:
    """The commit of this checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def result_row(case: Case, outcome: Outcome, repeat: int, commit: str, seconds: float) -> dict[str, Any]:
    """A line of the results file."""
    return {
        "case": case.name,
        "repeat": repeat,
        "commit": commit,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 1),
        **asdict(outcome),
    }
