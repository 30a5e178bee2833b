"""Records one run from start to end: the directory, the target, the collectors, and the manifest that closes it."""

from __future__ import annotations

import dataclasses
import json
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError
from profiler.record.collector import Context
from profiler.record.crew import Crew
from profiler.record.target import Target, find_program
from profiler.run import store, tables
from profiler.run.model import HOOKS, CollectorStatus, RunInfo, RunSpec

_NO_PYTHON: Final = "no Python was started, or one that ignores PYTHONPATH (python -I, -E or -S, a frozen program)"


def record(
    spec: RunSpec,
    *,
    watch: Callable[[], None] | None = None,
    enough: Callable[[], bool] | None = None,
    executable: str | None = None,
) -> RunInfo:
    """Run `spec.argv` under its collectors and leave the run in `spec.out`.

    Ctrl-C, SIGTERM and SIGHUP are passed on to the target while it runs, and the run is finished as interrupted.
    SIGUSR1, SIGUSR2, SIGQUIT and SIGWINCH are passed on, and the run goes on.

    :param enough: asked as often; once it says so the target is stopped, and its run is complete.
    :param executable: the file to run, where the program's name is not to be looked up.
    :param watch: called about ten times a second while the target runs (a progress display).
    :returns: the manifest as it was written. A target that fails is a recorded run, not an error.
    :raises ProfilerError: the target cannot be started, or the run directory cannot be made; then nothing is left.
    """
    program = executable or find_program(spec.argv)
    spec = dataclasses.replace(spec, out=spec.out.absolute())
    crew = Crew(spec)
    existed = spec.out.exists()
    store.create(spec.out)
    writer = store.RunWriter(spec.out)
    with Target(spec) as target:
        try:
            info = opened(spec, crew.describe())
            store.write_manifest(spec.out, info)
            target.start(program)
        except OSError as error:
            _remove(spec.out, keep_folder=existed)
            raise ProfilerError(f"cannot start {spec.argv[0]}: {error.strerror}") from error
        try:
            crew.start(Context(spec, target.pid, writer))
            target.wait(watch, enough)
        finally:
            target.kill()  # only a fault of ours or of `watch` leaves it running
            end = time.monotonic_ns()
            crew.stop()
            writer.close()
            target.note_signals()
            info = _closed(info, target, end, (*crew.statuses, *hook_statuses(spec), *writer_status(writer)))
            write_last(spec.out, info)
    return info


def opened(spec: RunSpec, described: dict[str, Any]) -> RunInfo:
    """The manifest of a run that begins now."""
    return RunInfo(
        schema=tables.SCHEMA,
        run_id=secrets.token_hex(6),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        argv=spec.argv,
        label=spec.label or store.program_name(spec.argv),
        level=spec.level,
        begin=time.monotonic_ns(),
        **described,
    )


def _closed(info: RunInfo, target: Target, end: int, statuses: tuple[CollectorStatus, ...]) -> RunInfo:
    code = target.exit_code
    state = "interrupted" if target.stopped else "complete" if code == 0 else "failed"
    if target.enough:
        state, code = "complete", 0  # the signal that ended it was ours
    return dataclasses.replace(info, state=state, exit_code=code, end=end, collectors=statuses)


def writer_status(writer: store.RunWriter) -> list[CollectorStatus]:
    """The recorder itself among the collectors when it could not write everything."""
    if not writer.problem:
        return []
    return [CollectorStatus("recorder", "failed", f"recording stopped: {writer.problem}", dropped=writer.dropped)]


def hook_statuses(spec: RunSpec) -> list[CollectorStatus]:
    """Whether our hooks came into the target, and each of them that failed."""
    if not spec.hooks:
        return [CollectorStatus(HOOKS, "off", "not asked for: only what the program marks is recorded")]
    try:
        lines = (spec.out / tables.HOOKED).read_text(encoding="ascii", errors="replace").split("\n")
    except OSError:
        flag = _isolating_flag(spec.argv)
        likely = f"python -{flag} keeps them out" if flag else _NO_PYTHON
        reason, values = f"hooks did not come in: {likely}", {"flag": flag} if flag else {}
        return [CollectorStatus(HOOKS, "unavailable", reason, code="hooks-not-loaded", values=values)]
    count = Counter(line.partition(" ")[0] for line in lines)
    reason = f"{count['torch']} of {count['python']} Python processes imported torch"
    numbers = {"python": count["python"], "torch": count["torch"]}
    return [CollectorStatus(HOOKS, "ok", reason, code="hooks-loaded", values=numbers), *_failed_hooks(spec.out)]


def _failed_hooks(out: Path) -> list[CollectorStatus]:
    failed: dict[str, str] = {}
    for file in sorted(out.glob(f"source-*/{tables.SOURCE_META}")):
        with suppress(OSError, ValueError, AttributeError):  # what is damaged is reported when the run is loaded
            hooks = json.loads(file.read_text(encoding="utf-8")).get("hooks", {})
            failed.update({name: reason for name, reason in hooks.items() if reason})
    return [CollectorStatus(f"hook {name}", "failed", reason) for name, reason in sorted(failed.items())]


def _isolating_flag(argv: tuple[str, ...]) -> str:
    """The letter of an option of Python that ignores PYTHONPATH or skips sitecustomize; '' where there is none."""
    if Path(argv[0]).name.startswith("python"):
        for word in argv[1:]:
            if not word.startswith("-") or word.startswith("--") or word in {"-c", "-m"}:
                break
            for flag in ("I", "E", "S"):
                if flag in word.partition("=")[0]:
                    return flag
    return ""


def write_last(path: Path, info: RunInfo) -> None:
    try:
        store.write_manifest(path, info)
    except OSError as error:
        print(f"profiler: cannot close the run {path}: {error.strerror}; what is there still loads", file=sys.stderr)


def _remove(path: Path, *, keep_folder: bool) -> None:
    """Take back what `store.create` made: the target never started."""
    if not keep_folder:
        shutil.rmtree(path)
        return
    for entry in path.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
