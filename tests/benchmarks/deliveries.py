"""Sends signals to programs, bare and recorded, as people, schedulers and CI runners do, and counts what arrives.

`python -m tests.benchmarks.deliveries --write docs/reliability.md` replaces the table of that page. WAYS limits it to
some ways. The program counts the signals that reach it, writes its checkpoint for SAVING_S after the first one, and
exits with 42. A second signal in that time is counted too.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import pexpect

from profiler.core.procfs import descendants
from tests.fakes.programs import ROOT

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HANDLED: Final = (*SIGNALS, signal.SIGUSR1)
SAVING_S: Final = 1.0
Argv = list[str]
_BEGIN, _END = "<!-- deliveries: begin -->", "<!-- deliveries: end -->"

PROGRAM: Final = f"""
import os, pathlib, signal, sys, time
from profiler import marks
rank, got = os.environ.get("RANK", "0"), []
for number in {[int(number) for number in HANDLED]}:
    signal.signal(number, lambda number, _: got.append(number))
pathlib.Path("ready-" + rank).touch()
while not got:
    time.sleep(0.01)
    marks.step()
end = time.monotonic() + {SAVING_S}
while time.monotonic() < end:
    time.sleep(0.01)
pathlib.Path("checkpoint-" + rank).write_text(str(len(got)))
sys.exit(42)
"""
LAUNCHER: Final = f"""
import os, signal, subprocess, sys
for number in {[int(number) for number in SIGNALS]}:
    signal.signal(number, lambda *_: None)
ranks = [subprocess.Popen([sys.executable, "train.py"], env={{**os.environ, "RANK": str(rank)}}) for rank in (0, 1)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@dataclass(frozen=True)
class Outcome:
    """What a program had when everything was over."""

    checkpoints: tuple[int, ...]
    """Signals that each rank had counted when its checkpoint was complete."""
    code: int | None
    """As a shell has it; None where the shell had gone."""

    def __str__(self) -> str:
        counts = "none" if not self.checkpoints else " and ".join(map(str, self.checkpoints))
        return counts if self.code is None else f"{counts}, exit code {self.code}"


def start(argv: Argv, folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(
            argv,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PS1": "$ "}


def until_ready(folder: Path, ranks: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(folder.glob("ready-*"))) < ranks:
        assert time.monotonic() < deadline, (folder / "log").read_text(errors="replace")
        time.sleep(0.02)


def outcome(folder: Path, code: int | None) -> Outcome:
    counts = tuple(int(path.read_text()) for path in sorted(folder.glob("checkpoint-*")))
    return Outcome(counts, code if code is None or code >= 0 else 128 - code)


def sent(argv: Argv, folder: Path, send: Callable[[subprocess.Popen[bytes]], object], ranks: int = 1) -> Outcome:
    """Start a program in a session of its own, send it a signal once it is ready, and wait for it."""
    process = start(argv, folder)
    until_ready(folder, ranks)
    send(process)
    return outcome(folder, process.wait(120))


def in_terminal(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    """Run it in the foreground of an interactive shell: Ctrl-C, a kill of the job, or a terminal that is closed."""
    shell = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], cwd=str(folder), env=environment(), timeout=120)
    shell.sendline(f"{shlex.join(argv)} >log 2>&1; echo $? >code.new; mv code.new code")
    until_ready(folder, 1)
    if number == signal.SIGINT:
        shell.sendintr()
    elif number == signal.SIGTERM:
        os.killpg(os.tcgetpgrp(shell.child_fd), number)
    else:
        shell.close(force=False)
    done = folder / ("checkpoint-0" if number == signal.SIGHUP else "code")
    deadline = time.monotonic() + 60
    while not (done.exists() and done.read_text()):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    code = int((folder / "code").read_text()) if (folder / "code").exists() else None
    shell.close(force=True)
    return outcome(folder, code)


def child_of(process: subprocess.Popen[bytes]) -> int:
    """The first process that `process` has started."""
    return descendants(process.pid)[0]


def group(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return sent(argv, folder, lambda process: os.killpg(process.pid, number))


def alone(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return sent(argv, folder, lambda process: process.send_signal(number))


def ignored(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return alone(["sh", "-c", f"trap '' {int(number)}; exec \"$@\"", "sh", *argv], folder, number)


def each(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return sent(
        argv, folder, lambda process: [os.kill(pid, number) for pid in (process.pid, *descendants(process.pid))]
    )


def by_name(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return sent(argv, folder, lambda _: subprocess.run(["pkill", f"-{int(number)}", "-f", folder.name], check=True))


def timeout(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    command = ["timeout", "-s", str(int(number)), "600", *argv]
    return sent(command, folder, lambda process: process.send_signal(number))


def setsid(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return sent(["setsid", "--wait", *argv], folder, lambda process: os.killpg(child_of(process), number))


def nohup(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return sent(["nohup", *argv], folder, lambda process: os.killpg(process.pid, number))


def two_ranks(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    return sent(argv, folder, lambda process: os.killpg(process.pid, number), ranks=2)


def first_run(argv: Argv, folder: Path, number: signal.Signals) -> Outcome:
    """The exit code of the program instead of the command's, which has codes of its own."""
    result = group(argv, folder, number)
    runs = sorted(folder.glob("**/run.json"))
    return outcome(folder, json.loads(runs[0].read_text())["exit_code"]) if runs else result


Way = Callable[[Argv, Path, signal.Signals], Outcome]


@dataclass(frozen=True)
class Case:
    name: str
    way: Way
    script: str = "train.py"
    launcher: tuple[str, ...] = ()
    """Words before the script's name."""
    signals: tuple[signal.Signals, ...] = SIGNALS
    varying: tuple[signal.Signals, ...] = ()
    """Signals that two senders send, so that one or two arrive, also bare."""
    command: tuple[str, ...] = ("run", "--out", "run", "--", "*")
    """What records it: `*` stands for the words of the program, CMD for all of them as one."""


CASES: Final = {
    "group": Case("the process group (`kill -- -PGID`, CI runners, Slurm's warning SIGUSR1)", group, signals=HANDLED),
    "alone": Case("the first process alone (`kill PID`, `docker stop`)", alone, signals=HANDLED),
    "ignored": Case("the first process alone, where signals are ignored at the start (`nohup`, `&`)", ignored),
    "each": Case("each process of the job (systemd, Slurm)", each),
    "name": Case("by name (`pkill -f train.py`)", by_name),
    "timeout": Case("`timeout`", timeout),
    "setsid": Case("`setsid`, its group", setsid),
    "nohup": Case("`nohup`, its group", nohup),
    "terminal": Case("terminal: Ctrl-C, `kill` of the job, closed window", in_terminal, varying=(signal.SIGHUP,)),
    "torchrun": Case(
        "`torchrun` with two ranks, its group",
        two_ranks,
        launcher=("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"),
    ),
    "launcher": Case("a launcher with two ranks, its group", two_ranks, script="launch.py"),
    "compare": Case("`compare`, its group", first_run, command=("compare", "--before", "CMD", "--after", "CMD")),
    "try": Case("`try` while it records, its group", first_run, command=("try", "--yes", "--", "*")),
}


def delivery(case: Case, number: signal.Signals, *, recorded: bool) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="deliveries-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM)
        (folder / "launch.py").write_text(LAUNCHER)
        argv = [sys.executable, *case.launcher, str(folder / case.script)]
        if recorded:
            words = (argv if word == "*" else [shlex.join(argv) if word == "CMD" else word] for word in case.command)
            argv = [sys.executable, "-m", "profiler", *chain.from_iterable(words)]
        return case.way(argv, folder, number)


def table(cases: list[Case]) -> tuple[list[str], int]:
    """Return a row for the signals of each way that had the same outcome, and how many deliveries differ from bare."""
    rows = ["| sent to | signals | bare | recorded |", "|---|---|---|---|"]
    wrong = 0
    for case in cases:
        outcomes: dict[tuple[str, str], list[str]] = {}
        for number in case.signals:
            bare, recorded = (delivery(case, number, recorded=recorded) for recorded in (False, True))
            is_equal = (
                bool(bare.checkpoints) == bool(recorded.checkpoints) if number in case.varying else bare == recorded
            )
            wrong += not is_equal
            outcomes.setdefault((str(bare), str(recorded)), []).append(number.name)
            print(case.name, number.name, bare, recorded, sep=" | ", file=sys.stderr, flush=True)
        rows += [f"| {case.name} | {', '.join(names)} | {' | '.join(each)} |" for each, names in outcomes.items()]
    return rows, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAYS", help=", ".join(CASES))
    parser.add_argument("--write", type=Path, metavar="PAGE")
    args = parser.parse_args()
    cases = [CASES[way] for way in args.ways or CASES]
    rows, wrong = table(cases)
    summary = f"{2 * sum(len(case.signals) for case in cases)} deliveries, {wrong} differ from bare."
    if args.write:
        page = args.write.read_text(encoding="utf-8")
        head, _, rest = page.partition(_BEGIN)
        tail = rest.partition(_END)[2]
        args.write.write_text("\n".join((head + _BEGIN, "", *rows, "", summary, "", _END + tail)), encoding="utf-8")
    else:
        print(*rows, "", summary, sep="\n")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
