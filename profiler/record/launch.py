"""Records one run from start to end: the directory, the target, the collectors, and the manifest that closes it.

A job that already runs is recorded from outside: nothing is started, stopped or put into it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError
from profiler.core.facts import program_name
from profiler.core.masking import PRIVATE, Privacy, recorded_arguments
from profiler.core.procfs import is_alive, is_python, process_tree, read_arguments, read_environment, wait_exit
from profiler.record.collectors import CollectorSet, Context
from profiler.record.collectors.host import git_commit
from profiler.record.kernel import missing_permission
from profiler.record.target import Target, find_program, handled_signals
from profiler.run import store, tables
from profiler.run.model import HOOKS, CollectorStatus, RunInfo, RunSpec
from profiler.run.source_text import ProgramFiles, write_source_text

# ---------------------------------------------------------------- a program that is started


_NO_PYTHON: Final = (
    "no Python process was started, or only one that ignores PYTHONPATH (python -I, -E or -S, a frozen program)"
)

_TAIL_BYTES: Final = 16384
_TRACEBACK: Final = "Traceback (most recent call last)"
_FRAME: Final = re.compile(r'File "(.+)", line (\d+)(?:, in (.+))?')  # a syntax error has no function
_MAX_LINE: Final = 300
"""Characters of the target's last line that are quoted."""


def record(
    spec: RunSpec,
    *,
    watch: Callable[[], None] | None = None,
    enough: Callable[[], bool] | None = None,
    executable: str | None = None,
    answer: Callable[[RunInfo], None] | None = None,
) -> RunInfo:
    """Run `spec.argv` under its collectors and leave the run in `spec.out`.

    Ctrl-C, SIGTERM and SIGHUP are passed on to the target while it runs, and the run is finished as interrupted. The
    target has all the time that it needs to end.
    SIGUSR1, SIGUSR2, SIGQUIT, SIGXCPU and SIGWINCH are passed on, and the run goes on.

    :param watch: called about ten times a second while the target runs (a progress display).
    :param enough: called as often; once it returns True the target is stopped, and its run is complete.
    :param executable: the file to execute instead of looking up the program's name.
    :param answer: called once with the closed run when there is enough of it; the target goes on then, unrecorded.
    :returns: the manifest as it was written. A target that fails is a recorded run, not an error.
    :raises ProfilerError: the target cannot be started, or the run directory cannot be made; then nothing is left.
    """
    program = executable or find_program(spec.argv)
    spec = replace(spec, out=spec.out.absolute())
    collectors = CollectorSet(spec)
    existed, ignored = spec.out.exists(), (spec.out / store.IGNORE).exists()
    store.create(spec.out, shared=spec.privacy.shared)
    _tell_missing_stacks(spec, collectors)
    writer = store.RunWriter(spec.out)
    with Target(spec) as target:
        try:
            info = new_manifest(spec, {"cwd": str(spec.cwd or Path.cwd()), **collectors.describe()})
            store.write_manifest(spec.out, info)
            target.start(program)
        except OSError as error:
            _remove(spec.out, keep_folder=existed, keep_ignore=ignored)
            raise ProfilerError(f"cannot start {spec.argv[0]}: {error.strerror}") from error
        goes_on = False
        try:
            collectors.start(Context(spec, target.pid, writer))
            goes_on = target.wait(watch, enough, stops=answer is None)
            if goes_on:
                with suppress(OSError):  # the run was removed
                    (spec.out / tables.RELEASED).touch()
        finally:
            if not goes_on:
                target.kill()  # the target still runs only if this function or `watch` failed
            end = time.monotonic_ns()
            collectors.stop()
            writer.close()
            target.note_signals()
            state, code = ("complete", 0) if goes_on else _outcome(target)
            statuses = all_statuses(spec, collectors, writer)
            info = close_run(spec, replace(info, state=state, exit_code=code, end=end, collectors=statuses))
        if goes_on and answer is not None:
            _answer(answer, info, target)
            info = replace(info, exit_code=target.exit_code)
    return info


def _answer(answer: Callable[[RunInfo], None], info: RunInfo, target: Target) -> None:
    """Answer beside the program, and wait until both have ended."""

    def work() -> None:
        try:
            answer(info)
        except Exception as error:  # noqa: BLE001 - the edge of a thread beside a program that goes on, and it reports
            with suppress(OSError):
                print(f"profiler: there is no answer: {type(error).__name__}: {error}", file=sys.stderr)

    answering = threading.Thread(target=work, daemon=True)
    answering.start()
    target.wait()  # here, so that its signals are passed on at once
    answering.join()


def _tell_missing_stacks(spec: RunSpec, collectors: CollectorSet) -> None:
    """Say before the start that the run will have no stacks: at its end it would have to be recorded again."""
    for status in collectors.statuses:
        missing = status.name == "stacks" and status.state == "unavailable"
        if missing and not spec.quiet and sys.stderr is not None:
            with suppress(OSError):  # its terminal is gone
                print(f"profiler: this run will have no stacks: {status.reason}", file=sys.stderr, flush=True)


def _outcome(target: Target) -> tuple[str, int | None]:
    """State and exit code for the manifest."""
    if target.enough:
        return "complete", 0  # the signal that ended it was ours
    code = target.exit_code
    return ("interrupted" if target.stopped else "complete" if code == 0 else "failed"), code


# ---------------------------------------------------------------- the manifest


def new_manifest(spec: RunSpec, fields: dict[str, Any]) -> RunInfo:
    """Return the manifest of a run that begins now; `fields` come from the collectors."""
    return RunInfo(
        schema=tables.SCHEMA,
        run_id=secrets.token_hex(6),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        argv=recorded_arguments(spec.argv, arguments=spec.privacy.arguments),
        label=spec.label or program_name(spec.argv),
        level=spec.level,
        begin=time.monotonic_ns(),
        **fields,
    )


def close_run(spec: RunSpec, info: RunInfo, files: ProgramFiles | None = None) -> RunInfo:
    """Write the final manifest, which is returned, and the text of the lines that the run names.

    A write error is printed on stderr and not raised, so that the caller still returns the target's exit code.

    :param files: where the target's files are; by default the files that it had when the run began.
    """
    if files is None:
        started = time.time() - (time.monotonic_ns() - info.begin) / 1e9
        files = ProgramFiles(started, info.cwd or str(spec.cwd or ""))
    info = replace(info, project=files.project(info.argv))
    try:
        store.write_manifest(spec.out, info)
    except OSError as error:
        print(
            f"profiler: cannot close the run {spec.out}: {error.strerror}; what was recorded can still be loaded",
            file=sys.stderr,
        )
        return info
    if spec.privacy.source:
        try:
            write_source_text(spec.out, files)
        except (OSError, ProfilerError) as error:
            print(f"profiler: cannot add the text of source lines to {spec.out}: {error}", file=sys.stderr)
    return info


def all_statuses(spec: RunSpec, collectors: CollectorSet, writer: store.RunWriter) -> tuple[CollectorStatus, ...]:
    """Return the final status of each collector and hook, and of the recorder if it could not write everything."""
    statuses = [*collectors.statuses, *hook_statuses(spec)]
    if writer.problem:
        reason = f"recording stopped: {writer.problem}"
        statuses.append(CollectorStatus("recorder", "failed", reason, dropped=writer.dropped))
    return tuple(statuses)


def hook_statuses(spec: RunSpec) -> list[CollectorStatus]:
    """Tell whether the hooks were loaded in the target, and each hook that failed."""
    if not spec.hooks:
        return [CollectorStatus(HOOKS, "off", "not requested: only what the program marks is recorded")]
    try:
        lines = (spec.out / tables.HOOKED).read_text(encoding="ascii", errors="replace").split("\n")
    except OSError:
        flag = _isolating_flag(spec.argv)
        likely = f"python -{flag} prevents loading them" if flag else _NO_PYTHON
        reason, values = f"the hooks were not loaded: {likely}", {"flag": flag} if flag else {}
        return [CollectorStatus(HOOKS, "unavailable", reason, code="hooks-not-loaded", values=values)]
    count = Counter(line.partition(" ")[0] for line in lines)
    reason = f"{count['torch']} of {count['python']} Python processes imported torch"
    numbers = {"python": count["python"], "torch": count["torch"]}
    failures: dict[str, str] = {}
    for file in sorted(spec.out.glob(f"source-*/{tables.SOURCE_META}")):
        with suppress(OSError, ValueError, AttributeError):  # what is damaged is reported when the run is loaded
            hooks = json.loads(file.read_text(encoding="utf-8")).get("hooks", {})
            failures.update({name: error for name, error in hooks.items() if error})
    return [
        CollectorStatus(HOOKS, "ok", reason, code="hooks-loaded", values=numbers),
        *(CollectorStatus(f"hook {name}", "failed", error) for name, error in sorted(failures.items())),
    ]


def _isolating_flag(argv: tuple[str, ...]) -> str:
    """Return the letter of an option of Python that ignores PYTHONPATH or skips sitecustomize; '' where there is
    none."""
    if Path(argv[0]).name.startswith("python"):
        for word in argv[1:]:
            if not word.startswith("-") or word.startswith("--") or word in {"-c", "-m"}:
                break
            for flag in ("I", "E", "S"):
                if flag in word.partition("=")[0]:
                    return flag
    return ""


def last_output_line(path: Path) -> str:
    """Return the last line that the target of the run in `path` printed, safe to print; '' where there is none."""
    lines = _last_lines(path)
    return _printable(lines[-1]) if lines else ""


def last_frame(path: Path, folder: Path) -> str:
    """`train.py:12 in load`: the innermost frame of the last traceback that the target printed, of a file below
    `folder` where there is one; '' where it printed none."""
    frames: list[re.Match[str]] = []
    for line in _last_lines(path):
        if line.startswith(_TRACEBACK):
            frames = []
        frames += filter(None, [_FRAME.fullmatch(line)])
    roots = folder.absolute(), folder.resolve()
    own = [
        frame
        for frame in frames
        if (file := folder / frame[1]).is_relative_to(roots[0]) or file.is_relative_to(roots[1])
        if "site-packages" not in file.parts
    ]
    if not frames:
        return ""
    name, line, function = (own or frames)[-1].groups()
    for root in roots:
        name = name.removeprefix(f"{root}/")
    return _printable(f"{name}:{line}" + (f" in {function}" if function not in (None, "<module>") else ""))


def _last_lines(path: Path) -> list[str]:
    log = path / store.OUTPUT_LOG
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def _printable(text: str) -> str:
    line = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + "..."


def _remove(path: Path, *, keep_folder: bool, keep_ignore: bool) -> None:
    """Remove what `store.create` made: the target never started.

    :param keep_ignore: the folder had a .gitignore before, which may be the user's.
    """
    if not keep_folder:
        shutil.rmtree(path)
        return
    for entry in path.iterdir():
        if entry.name != store.IGNORE or not keep_ignore:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


# ---------------------------------------------------------------- a job that runs already


ATTACHED: Final = "attached"
"""State of such a run: it began and ended while the program ran."""
LEVEL: Final = "standard"
_WAKE_S: Final = 0.1
_MAX_WORD: Final = 40
"""Number of characters shown of a word of a command line: some words contain whole settings as JSON."""
_MAX_COMMAND: Final = 120
_RANK_VARIABLES: Final = ("RANK", "LOCAL_RANK")


def check_attachable(pid: int) -> None:
    """:raises ProfilerError: there is no process `pid`, it has ended, or neither it nor a child of it is Python."""
    if not Path(f"/proc/{pid}").exists():
        raise ProfilerError(f"there is no process {pid} here; a container shows only its own processes")
    if not is_alive(pid):
        raise ProfilerError(f"process {pid} has ended: it is a zombie, for which its parent has not waited yet")
    if pid == os.getpid():
        raise ProfilerError(f"process {pid} is this profiler itself")
    if not any(map(is_python, process_tree(pid))) and not missing_permission(pid):
        raise ProfilerError(f"process {pid} ({command(pid)}) is no Python, and nothing that it started is")


def attach_spec(pid: int, out: Path, privacy: Privacy = PRIVATE) -> RunSpec:
    """Specify the recording of `pid` into `out`."""
    argv = read_arguments(pid) or (f"process-{pid}",)
    label = f"{program_name(argv)} ({pid})"
    return RunSpec(argv=argv, out=out.absolute(), level=LEVEL, label=label, hooks=False, privacy=privacy)


def attach(pid: int, spec: RunSpec, seconds: float, *, watch: Callable[[], None] | None = None) -> RunInfo:
    """Record process `pid` and what it started for `seconds`, or until it ends, or Ctrl-C; the run is in `spec.out`.

    Without the permission to read its stacks, the samples of host and GPU are recorded all the same.

    :param watch: called about ten times a second meanwhile.
    :raises ProfilerError: there is no such process (see `check_attachable`), or the run directory cannot be made.
    """
    check_attachable(pid)
    refusal = missing_permission(pid)
    chosen = ("environment", "gpu", "host") if refusal else ("environment", "gpu", "host", "stacks")
    collectors = CollectorSet(replace(spec, collectors=chosen))
    files = ProgramFiles.of_process(pid)
    store.create(spec.out, shared=spec.privacy.shared)
    fields = collectors.describe()
    fields |= {"versions": {}, "git_commit": git_commit(Path(f"/proc/{pid}/cwd"))}  # of the job, not of the recorder
    info = new_manifest(spec, fields)
    store.write_manifest(spec.out, info)
    writer = store.RunWriter(spec.out)
    members = JobMembers(pid, arguments=spec.privacy.arguments)
    signals: list[int] = []  # they end the recording, and what is recorded is kept
    with handled_signals(lambda number, _: signals.append(number)):
        collectors.start(Context(spec, pid, writer))
        until = time.monotonic() + seconds
        try:
            members.update()
            while not signals and (remaining := until - time.monotonic()) > 0 and is_alive(pid):
                _wait(pid, min(_WAKE_S, remaining))
                if watch:
                    watch()
                members.update()
        finally:
            end = time.monotonic_ns()
            collectors.stop()
            writer.close()
            facts: dict[str, Any] = {"attached": pid, "processes": members.rows()}
            if not info.devices:
                facts["device"] = "cpu"
            statuses = tuple(
                replace(status, state="unavailable", reason=refusal, code="ptrace-forbidden")
                if refusal and status.name == "stacks"
                else status
                for status in collectors.statuses
            )
            info = replace(info, state=ATTACHED, end=end, collectors=statuses, facts=facts)
            close_run(spec, info, files)
    return info


class JobMembers:
    """The processes of a job, by generation; those of this profiler are left out."""

    def __init__(self, root: int, *, arguments: bool = True) -> None:
        self._root = root
        self._arguments = arguments
        self._members: dict[int, dict[str, Any]] = {}

    def update(self) -> None:
        """Add new processes.

        The kernel has no command line of a process for a moment while that becomes another program: those are read
        again.
        """
        tree = process_tree(self._root)
        ours = set(process_tree(os.getpid())) if os.getpid() in tree else set()
        for pid in tree:
            if pid not in ours and not self._members.get(pid, {}).get("command"):
                name = "main process" if pid == self._root else "child"
                number = rank(pid) if is_python(pid) else None
                said = command(pid, arguments=self._arguments)
                self._members[pid] = {"pid": pid, "name": name, "rank": number, "command": said}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each process, for the manifest."""
        return [{**member, "command": member["command"] or "no command line"} for member in self._members.values()]


def rank(pid: int) -> int | None:
    """Return the rank of a process of a distributed job, from its environment; None where it has or shows none."""
    environment = read_environment(pid)
    return next((int(text) for name in _RANK_VARIABLES if (text := environment.get(name, "")).isdecimal()), None)


def command(pid: int, *, arguments: bool = True) -> str:
    """Return the command line of `pid`, shortened and safe to print; '' when it has none.

    :param arguments: False: only the words that start its program.
    """
    all_words = recorded_arguments(read_arguments(pid), arguments=arguments)
    words = (word if len(word) <= _MAX_WORD else f"{word[:_MAX_WORD]}..." for word in all_words)
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(words))[:_MAX_COMMAND]


def _wait(pid: int, seconds: float) -> None:
    try:
        wait_exit(pid, seconds)
    except ChildProcessError:  # a system without pidfd can wait for its own children only
        time.sleep(seconds)
