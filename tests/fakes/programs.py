"""Small programs to record, and the ways of recording them: as a call, and as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from profiler.core.errors import Notice
from profiler.core.procfs import is_alive
from profiler.run.model import Run, RunSpec

ROOT = Path(__file__).parents[2]

MARKED = """
import sys, time
from profiler import marks

def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

marks.describe(device="cpu", step="round")
marks.open_step()
for round in range(int(sys.argv[1])):
    with marks.region("tokenize"):
        busy(0.004)
    with marks.region("log"):
        busy(0.002)
    marks.count("syncs", 2)
    marks.gauge("loss", 1 / (round + 1))
    marks.step(tokens=10)
    print("round", round, flush=True)
"""
"""Takes its number of rounds; prints a line a round."""

FORKING = """
import os, sys
from profiler import marks

marks.open_step()
child = os.fork()
for _ in range(3 if child else 2):
    marks.step(tokens=1)
if child:
    os.waitpid(child, 0)
"""


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "profiler", *map(str, arguments)]


def start(*arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """`python -m profiler ...` in a session of its own: no terminal is there to send Ctrl-C to the target as well."""
    return subprocess.Popen(
        command_line(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=env,
        start_new_session=True,
        # whoever starts the tests in the background may ignore SIGINT, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


@contextmanager
def waiting_python() -> Iterator[subprocess.Popen[str]]:
    """A Python that waits for a line or the end of its standard input, as long as the block lasts."""
    words = [sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.readline()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # the kernel shows its own command line from here on
        yield process
        process.kill()


def read_rounds(process: subprocess.Popen[str], rounds: int) -> None:
    """Wait until MARKED has printed so many rounds: it is well under way."""
    for _ in range(rounds):
        line = process.stdout.readline()
        assert line.startswith("round"), f"{line!r}; {process.stderr.read() if process.stderr else ''}"


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until `what` returns something, and return that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if said := what():
            return said
        time.sleep(0.01)
    raise AssertionError(f"{what} said nothing within {seconds} s")


def gone(pid: int, seconds: float = 60) -> bool:
    """Whether the process `pid` ends within so many seconds. A zombie has: in some containers nobody reaps orphans."""
    end = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def damage(run: Run) -> list[Notice]:
    """The problems of the run of a program that ended soon; it need not have a stack sample."""
    return [problem for problem in run.problems if problem.values.get("name") != "stacks"]


def codes(run: Run) -> set[str]:
    """Codes of what is wrong with the run."""
    return {problem.code for problem in run.problems}


def spec(folder: Path, *argv: str | Path, **fields: Any) -> RunSpec:
    """Specify a quiet recording into `folder`/run with one quick collector."""
    words = tuple(map(str, argv))
    return RunSpec(**{"argv": words, "out": folder / "run", "quiet": True, "collectors": ("environment",), **fields})


def output(folder: Path) -> str:
    """The output of the program of the run below `folder`."""
    return (folder / "run" / "output.log").read_text()


def finished(
    command: Sequence[str | Path], *, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, and what it printed."""
    words = [*map(str, command)]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
