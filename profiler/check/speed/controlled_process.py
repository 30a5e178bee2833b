"""Runs a program a requested number of steps at a time, and freezes it in between."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from profiler.check.model import PATIENCE_S, StepBlock
from profiler.check.speed.control import Rank, StepController, private_folder
from profiler.check.speed.processes import (
    ProcessTree,
    Watch,
    deferred_signals,
    die_with_parent,
    raise_deferred,
    watchdog_process,
)
from profiler.core.errors import ProfilerError
from profiler.core.masking import PRIVATE, Privacy
from profiler.record.launch import close_run, hook_statuses, last_frame, last_output_line, new_manifest
from profiler.record.target import find_program, target_environment
from profiler.run import store, tables
from profiler.run.model import RunInfo, RunSpec

SPANS_FILE: Final = "turns.json"
"""File of the run directory with begin and end (ns) of each measured block of steps; all other steps were warm-up."""
_PADDING: Final = "PROFILER_PADDING"
_MAX_PADDING: Final = 4096
"""Bytes. The size of the environment shifts the stack, which changes a program's speed by a few percent (Mytkowicz et
al., Producing Wrong Data Without Doing Anything Obviously Wrong, ASPLOS 2009). The sides' paths differ in length: a
random padding turns that bias into noise."""
_MISSING: Final = ("FileNotFoundError", "ModuleNotFoundError", "No such file")
"""Words in the last line of output of a program that misses a file."""
_POLL_S: Final = 0.1
_READY_POLL_S: Final = 0.02
_HANGS_FACTOR: Final = 50
"""A block that takes this many times as long as the steps before it, and longer than the patience, is taken to hang."""
_EXIT_S: Final = 10.0
"""How long a killed process may take to disappear."""
_OPEN_END: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Program:
    """One side of a comparison as something to start."""

    side: str
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that its environment has in addition to ours, or instead."""
    hooked: bool = True
    """Whether the recording hooks are installed in it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Machine, versions and commit, as fields of RunInfo."""
    hint: str = ""
    """Advice to add to the message if it fails for want of a file."""
    privacy: Privacy = PRIVATE
    """What its runs keep, and who may read them."""
    virtual_cuda: str = ""
    """Number and name of the virtual CUDA devices that it sees, as in `1:h100`; empty: none."""
    count: bool = False
    """Whether its operators and memory are counted."""

    def executable(self) -> str:
        """Return the file to execute.

        :raises ProfilerError: there is none.
        """
        name = self.argv[0] if self.argv else ""
        if os.sep in name and not os.path.isabs(name):  # noqa: PTH117
            name = str(self.cwd / name)
        if "PATH" in self.env and (path := shutil.which(name, path=self.env["PATH"])):
            return path
        return find_program((name, *self.argv[1:]) if name else ())


class ProcessEndedError(Exception):
    """A program ended, by itself or by a fault, before it finished its steps."""

    def __init__(self, process: ControlledProcess, exit_code: int) -> None:
        self.process = process
        self.exit_code = exit_code
        how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"exited with {exit_code}"
        frame = last_frame(process.folder, process.program.cwd)
        said = f"{process.last_output() or 'it printed nothing'}{frame and f', at {frame}'}"
        self.description = f"{how}: {said} (its output is in {process.folder})"
        """How it ended, and the last line of its output."""
        self.hint = process.program.hint if any(word in said for word in _MISSING) else ""
        super().__init__(f"{process.program.side} {self.description}")


class StepBoundaryChangedError(Exception):
    """The wrong event was taken for the end of a step: one of higher priority appeared. The program must be aligned
    again."""

    def __init__(self, process: ControlledProcess) -> None:
        super().__init__(f"{process.program.side}: another event ends its steps than was assumed")
        self.process = process


class ControlledProcess:
    """A program that is frozen except while it runs a requested number of steps.

    :param folder: its run directory, which is created.
    :param sockets: a private folder with a short name.
    :param patience: minimum number of seconds after which a block of steps may be taken to hang.
    :param watch: is called with each of its processes before it is frozen.
    """

    def __init__(
        self,
        program: Program,
        folder: Path,
        sockets: Path,
        *,
        level: str = "light",
        patience: float = PATIENCE_S,
        watch: Watch | None = None,
    ) -> None:
        executable = program.executable()
        self.program = program
        self.folder = folder
        self.spec = RunSpec(
            program.argv,
            folder.absolute(),
            level=level,
            label=program.side,
            hooks=program.hooked,
            privacy=program.privacy,
            cwd=program.cwd,
            virtual_cuda=program.virtual_cuda,
            count=program.count,
        )
        self.steps = 0
        """Steps driven so far."""
        self.kept_waiting = 0
        """For how many ns of the last block other programs kept the leader from a core, at least."""
        self._patience = patience
        self._spans: list[tuple[int, int]] = []
        self._step_s = 0.0
        self.controller = StepController(sockets / f"{program.side}-{folder.name[:8]}")
        store.create(self.spec.out, shared=self.spec.privacy.shared)
        self._info: RunInfo = new_manifest(self.spec, dict(program.facts))
        store.write_manifest(self.spec.out, self._info)
        self._process = self._start(executable)
        self.tree = ProcessTree(self._process.pid, watch)

    def _start(self, executable: str) -> subprocess.Popen[bytes]:
        program = self.program
        environment = target_environment(self.spec, {**os.environ, **program.env})
        environment[tables.ENV_CONTROL] = str(self.controller.server.path)
        environment[_PADDING] = "." * secrets.randbelow(_MAX_PADDING)
        try:
            with open(self.spec.out / store.OUTPUT_LOG, "wb") as log:
                return subprocess.Popen(
                    program.argv,
                    executable=executable,
                    cwd=program.cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - a single C call, resolved before the fork
                )
        except OSError as error:
            self.controller.close()
            shutil.rmtree(self.spec.out)
            raise ProfilerError(f"cannot start {program.argv[0]}: {error.strerror}") from error

    # ------------------------------------------------------------ drive

    def align(self) -> bool:
        """Process the messages that have arrived; True when all ranks wait at the end of the same step.

        :raises ProcessEndedError: the program has ended.
        """
        self.controller.poll(0.0)
        self._check_alive()
        return self.controller.align()

    def run_steps(self, steps: int, *, measured: bool = True) -> StepBlock:
        """Let it run `steps` steps, then freeze it again.

        :param measured: False for warm-up.
        :raises ProcessEndedError: it ended before that.
        :raises StepBoundaryChangedError: another event ends its steps; `align` it again and discard what was measured.
        :raises ProfilerError: it hangs.
        """
        # the span stays open until the last step, so that a program that ends earlier is counted over the steps that it
        # took
        if measured:
            self._spans.append((time.monotonic_ns(), _OPEN_END))
        self.controller.advance(steps)
        self.tree.thaw()
        reports = self._await_reports(steps)
        self.tree.freeze()
        return self._finish_block([reports[rank] for rank in self.controller.ranks], measured=measured)

    def discard_measured(self) -> None:
        """Treat all steps until now as warm-up."""
        self._spans.clear()

    def _await_reports(self, steps: int) -> dict[Rank, dict[str, Any]]:
        """Wait until every rank has reported the end of its last step."""
        begin = time.monotonic()
        limit_s = max(self._patience, _HANGS_FACTOR * steps * self._step_s)
        lost_at = 0.0
        reports: dict[Rank, dict[str, Any]] = {}
        while True:
            # all messages of one poll are answered before anything is raised: each rank waits for its answer
            reports.update(self.controller.poll(_POLL_S))
            if any("stamps" not in report for report in reports.values()):
                raise StepBoundaryChangedError(self)
            if len(reports) == len(self.controller.ranks):
                return reports
            self._check_alive()
            now = time.monotonic()
            if self.controller.lost_rank:
                lost_at = lost_at or now
                if now - lost_at > self._patience:
                    raise ProfilerError(
                        f"{self.program.side}: one of its processes no longer responds (its output is in {self.folder})"
                    )
            if now - begin > limit_s:
                raise ProfilerError(
                    f"{self.program.side}: {steps} steps did not end within {limit_s:.0f} s: give them more time "
                    f"(`patience`; its output is in {self.folder})"
                )

    def _finish_block(self, reports: Sequence[Mapping[str, Any]], *, measured: bool) -> StepBlock:
        """Return the leader's steps; the last one ends when all ranks have ended theirs."""
        stamps = [int(stamp) for stamp in reports[0]["stamps"]]
        stamps[-1] = max(int(report["stamps"][-1]) for report in reports)
        self.steps += len(stamps) - 1
        self.kept_waiting = int(reports[0].get("kept_waiting", 0))
        self._step_s = (stamps[-1] - stamps[0]) / (len(stamps) - 1) / 1e9
        if measured:
            self._spans[-1] = stamps[0], stamps[-1]
        tokens = sum(int(report["tokens"]) for report in reports)
        return StepBlock(self.program.side, stamps[0], tuple(end - begin for begin, end in pairwise(stamps)), tokens)

    def _check_alive(self) -> None:
        raise_deferred()
        exit_code = self._process.poll()
        if exit_code is not None:
            raise ProcessEndedError(self, exit_code)

    # ------------------------------------------------------------ freeze and end

    def freeze(self) -> None:
        """Stop it with all its descendants.

        :raises ProfilerError: a process that takes its steps is not one of its descendants and would keep running.
        """
        self.tree.find_orphans()
        for rank in self.controller.ranks:
            if not self.tree.contains(rank.socket.peer_pid):
                raise ProfilerError(
                    f"{self.program.side}: process {rank.socket.peer_pid} takes the steps but does not run below the "
                    f"command (a daemon, a container, a remote worker?), so it cannot be frozen between its steps"
                )
        self.tree.freeze()

    def end(self) -> None:
        """Kill it with all its descendants and complete its run directory. Further calls do nothing."""
        if self._info.state != "running":
            return
        self.tree.kill()
        # a process that hangs in a driver cannot be killed until the driver returns
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
        self.controller.close()
        exit_code = self._process.returncode
        succeeded = exit_code in (0, -9)
        self._info = dataclasses.replace(
            self._info,
            state="complete" if succeeded else "failed",
            exit_code=0 if succeeded else exit_code,
            end=time.monotonic_ns(),
            collectors=tuple(hook_statuses(self.spec)),
        )
        with suppress(OSError):
            (self.spec.out / SPANS_FILE).write_text(json.dumps(self._spans) + "\n", encoding="ascii")
        close_run(self.spec, self._info)

    # ------------------------------------------------------------ messages

    def last_output(self) -> str:
        """Return the last line of its output; empty if it printed nothing."""
        return last_output_line(self.spec.out)

    def not_aligned_message(self, seconds: float) -> str:
        """Return why it cannot be driven after it had `seconds` to reach the end of a step."""
        expected = self.controller.expected_ranks
        ranks = f"{self.controller.waiting_ranks} of {expected} ranks reached the end of a step"
        return (
            f"{ranks if expected > 1 else 'no step was seen'} within {seconds:.0f} s: mark its steps with "
            f"profiler.step(), or give it more time (`patience`; its output is in {self.folder})"
        )

    def no_step_message(self) -> str:
        """Return why it cannot be driven: it ended before it reached the end of a step."""
        return (
            f"it ended and no step of it was seen: mark its steps with profiler.step(), or let it run more of them "
            f"(its output is in {self.folder})"
        )


ProcessStarter = Callable[[Program, Path], ControlledProcess]


@contextmanager
def process_starter(*, level: str = "light", patience: float = PATIENCE_S) -> Iterator[ProcessStarter]:
    """Provide a function that starts controlled processes, all of which end with the block. Signals are deferred within
    it."""
    with deferred_signals(), ExitStack() as stack:
        watchdog = stack.enter_context(watchdog_process())
        sockets = Path(stack.enter_context(private_folder()))
        watchdog.watch_folder(str(sockets))

        def start(program: Program, folder: Path) -> ControlledProcess:
            process = ControlledProcess(program, folder, sockets, level=level, patience=patience, watch=watchdog.watch)
            stack.callback(process.end)
            return process

        yield start


def aligned(processes: Iterable[ControlledProcess], patience: float) -> Iterator[ControlledProcess]:
    """Yield each process as soon as it waits at the end of a step.

    :raises ProfilerError: one of them did not reach the end of a step within `patience` seconds.
    """
    pending, begin = list(processes), time.monotonic()
    while pending:
        for process in list(pending):
            if process.align():
                yield process
                pending.remove(process)
        if pending and time.monotonic() - begin > patience:
            raise ProfilerError(f"{pending[0].program.side}: {pending[0].not_aligned_message(patience)}")
        if pending:
            time.sleep(_READY_POLL_S)


def measured_spans(run: Path) -> list[tuple[int, int]] | None:
    """Return begin and end (ns) of the measured blocks of a run directory; None if `check` did not control this run, so
    that all of it counts."""
    try:
        return [(int(begin), int(end)) for begin, end in json.loads((run / SPANS_FILE).read_text(encoding="ascii"))]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ProfilerError(f"cannot read which steps of {run} count: {run / SPANS_FILE}: {error}") from error
