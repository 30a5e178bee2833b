"""Records cases, and keeps recordings and results: each by the hashes of the case and of the tool.

A recording is made again where the recorder or the program changed. It is judged again where the analysis or the truth
changed. So an interrupted call goes on where it ended. Archives hold recordings of an earlier version for good: with
them, versions of the analysis can be compared without noise.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from tests.clinic.case import Case
from tests.clinic.conditions import STOPPED, STOPPED_AFTER_S, Watch, make_condition
from tests.clinic.judge import Judged, judge
from tests.clinic.program import ROOT, Ended, environment, placed, start
from tests.clinic.told import LINT, Told, read_breakdown, read_told
from tests.clinic.unharmed import harm

REPORTS: Final = ROOT / "reports" / "clinic"
RESULTS: Final = REPORTS / "results.jsonl"
RECORDINGS: Final = ROOT / "build" / "clinic"
ARCHIVES: Final = REPORTS / "archives"
BEFORE: Final = ARCHIVES / "before.jsonl"
"""What the version that made the archives told about them."""
_BESIDE: Final = "clinic.json"
"""In a run directory: how the program ended, what it printed, and what was measured beside the recording."""
_PROJECT: Final = "/home/someone/project"
"""Where archives have the project."""
_OF_ENTRY: Final = ("title", "advice", "lines", "gain", "is_limit", "is_least", "leads")
_TEXTS: Final = (".json", ".jsonl", ".log", ".txt")
_ANALYSIS: Final = ("analyse", "check", "diagnose", "knockout", "mcp", "report")
"""Rooms of the profiler on which no recording depends."""
_RECORDER: Final = ("profiler/**/*.py", "tests/clinic/program.py", "tests/clinic/conditions.py", "tests/clinic/data.py")
_TOOL: Final = ("profiler/**/*.py", "tests/clinic/*.py")


def hash_of(patterns: Iterable[str], without: Iterable[str] = ()) -> str:
    """A hash of the project's files of these patterns, without those of some rooms of the profiler."""
    digest = hashlib.sha256()
    left_out = tuple(ROOT / "profiler" / room for room in without)
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        if any(path.is_relative_to(room) for room in left_out):
            continue
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def hash_of_case(case: Case, *, with_truth: bool) -> str:
    """A hash of a case's program and of how it is started; with its truth too."""
    fields = case.model_dump(exclude=set() if with_truth else {"truth", "kinds", "counts", "figure", "source"})
    judged_by = (case.truth.style is not None, case.truth.parts is not None)  # what is kept beside a recording
    digest = hashlib.sha256(repr((fields, judged_by)).encode())
    for path in sorted(case.folder.rglob("*")):
        if path.suffix in (".py", ".txt", ".csv") or (with_truth and path == case.measured_path):
            digest.update(path.relative_to(case.folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def try_case(case: Case, condition: str, done: dict[str, Any] | None) -> dict[str, Any]:
    """The row of a case under a condition: the one that is there if nothing changed, else recorded or judged anew."""
    state = {"tool": hash_of(_TOOL), "truth": hash_of_case(case, with_truth=True)}
    if done and "crash" not in done and {name: done.get(name) for name in state} == state:
        return done
    case = under(case, condition)
    run = recording(case, condition)
    row: dict[str, Any] = {"case": case.name, "condition": condition, "kinds": list(case.kinds), **state}
    if not run.exists():
        ended = record(case, condition, run)
        if not run.exists():
            return row | {"crash": ended.errors[-2000:]}
    told = complete(case, condition, run)
    return row | told_row(judge(case, told), told)


def under(case: Case, condition: str) -> Case:
    """The case as it is tried under a condition."""
    return case.model_copy(update={"stop_after": STOPPED_AFTER_S}) if condition == STOPPED else case


def recording(case: Case, condition: str) -> Path:
    """The run directory of this case and this recorder; it may not be there yet."""
    program = hash_of_case(case, with_truth=False)
    return RECORDINGS / f"{case.name}-{condition}-{hash_of(_RECORDER, _ANALYSIS)}-{program}"


def archive_path(case: Case, condition: str) -> Path:
    """The archive of a recording."""
    return ARCHIVES / f"{case.name.replace('/', '.')}-{condition}.zip"


def archive(case: Case, condition: str, row: dict[str, Any]) -> Path | None:
    """Keep a recording, and what is told about it today; None where it was not recorded."""
    run = recording(under(case, condition), condition)
    if not run.exists() or "crash" in row:
        return None
    path = archive_path(case, condition)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        copy = shutil.copytree(run, Path(name) / "run")
        for file in copy.rglob("*"):
            if file.suffix in _TEXTS:
                file.write_text(
                    portable(file.read_text(encoding="utf-8", errors="surrogateescape")), "utf-8", "surrogateescape"
                )
        shutil.make_archive(str(path.with_suffix("")), "zip", copy)
    kept = {name: row[name] for name in ("case", "condition", "verdict", "marks", "false", "screen")}
    rows = {(each["case"], each["condition"]): each for each in read_rows(BEFORE)} | {(case.name, condition): kept}
    write_rows(rows.values(), BEFORE)
    return path


def portable(text: str) -> str:
    """A text without the folders of this machine."""
    for folder, name in ((str(ROOT), _PROJECT), (sys.base_prefix, "/usr")):
        text = text.replace(folder, name)
    return text


def judge_archive(case: Case, condition: str) -> dict[str, Any]:
    """What this version tells about an archived recording."""
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        shutil.unpack_archive(archive_path(case, condition), run)
        told = complete(under(case, condition), condition, run)
    return told_row(judge(under(case, condition), told), told)


def complete(case: Case, condition: str, run: Path) -> Told:
    """What is told about a recording, with what was kept beside it and what only some cases are judged by."""
    told = replace(read_told(run), condition=condition)
    if (run / _BESIDE).is_file():
        kept = json.loads((run / _BESIDE).read_text(encoding="utf-8"))
        waited = {int(rank): share for rank, share in kept["waited"].items()}
        ended = Ended(**kept["ended"])
        told = replace(told, exit_code=ended.exit_code, output=ended.output, waited=waited)
        if case.truth.style:
            told = replace(told, harm=tuple(read_harm(case, run)))
    return replace(told, breakdown=read_breakdown(run)) if case.truth.parts else told


def told_row(judged: Judged, told: Told) -> dict[str, Any]:
    """The marks, and what a reader needs to see why."""
    return {
        "verdict": str(judged.verdict),
        "marks": {name: str(mark) for name, mark in judged.marks.items()},
        "false": list(judged.false),
        "missing": list(judged.missing),
        "screen": portable(told.screen),
        "steps": sum(told.steps.values()),
        "counts": dict(told.counts),
        "entries": [
            {
                name: getattr(each, name)
                for name in ("title", "advice", "lines", "gain", "is_limit", "is_least", "leads")
            }
            for each in told.entries
        ],
    }


def record(case: Case, condition: str, run: Path) -> Ended:
    """Record a case under a condition into the folder `run`, which is not there where nothing was recorded.

    A second process runs a case of the kind `style` at the same time without the profiler.
    """
    with (
        tempfile.TemporaryDirectory() as name, placed(case) as folder, make_condition(condition) as prefix,
        Watch(case, condition) as watch, ThreadPoolExecutor() as threads,
    ):  # fmt: skip
        out = Path(name) / "run"
        options = ("--level", case.level, *(("--virtual-cuda",) if case.is_cuda else ()), "--out", str(out))
        profile = (sys.executable, "-P", "-m", "profiler", "run", *options, "--")
        bare = threads.submit(start, case, folder) if case.truth.style else None
        ended = start(case, folder, before=(*prefix, *profile))
        if case.is_cuda and out.exists():
            (out / LINT).write_text(lint(case, folder), encoding="utf-8")
        if (out / "run.json").exists():
            waited = _waited(out, watch) if case.truth.parts else {}
            kept = {"ended": asdict(ended), "bare": asdict(bare.result()) if bare else None, "waited": waited}
            (out / _BESIDE).write_text(json.dumps(kept), encoding="utf-8")
            run.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(out, run)
    return ended


def lint(case: Case, folder: Path) -> str:
    """What `lint` prints of a CUDA program as JSON; empty where it refuses the program."""
    command = (sys.executable, "-m", "profiler", "lint", "--format", "json", *case.command)
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment(case, folder), capture_output=True, text=True
    )
    return done.stdout if done.returncode in (0, 1) else ""


def read_harm(case: Case, run: Path) -> Iterator[str]:
    """What the recording of a case of the kind `style` changed, and what it lacks."""
    kept = json.loads((run / _BESIDE).read_text(encoding="utf-8"))
    yield from harm(case, run, *(Ended(**kept[name]) for name in ("ended", "bare")))


def _waited(run: Path, watch: Watch) -> dict[int, float]:
    """By rank: the share of its steps in which its main thread was runnable without a core."""
    from profiler import load

    steps, found = load(run).steps, {}
    for pid in set(steps["pid"].tolist()):
        mine = steps[steps["pid"] == pid]
        share = watch.runnable(pid, int(mine["begin"].min()), int(mine["end"].max()))
        if share is not None:
            found[int(mine["rank"][0])] = share
    return found


def read_rows(path: Path = RESULTS) -> list[dict[str, Any]]:
    """The results so far; empty where there are none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def write_rows(rows: Iterable[dict[str, Any]], path: Path = RESULTS) -> None:
    """Write all results, sorted by case, and by condition or tool."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(rows, key=lambda row: (row["case"], row.get("condition") or row["tool"]))
    path.write_text("".join(json.dumps(row) + "\n" for row in ordered), encoding="utf-8")
