"""Tries the findings of a run: the program runs with and without a cause, in alternating blocks of steps."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from profiler.agent.hooks.trial_settings import VARIABLE as SETTINGS_VARIABLE
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import MUCH, Confidence, Finding, GainMethod, KnockOut
from profiler.check.model import BASE, CANDIDATE, MEASURE, Round
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.interleave import RoundRunner, await_quiet
from profiler.check.speed.rounds import MIN_STARTS, PLANNED, Gain, doubt, measured_gain, more_time, time_for_rounds
from profiler.core.errors import Exit, Notice, ProfilerError
from profiler.core.masking import MASK, masked, masked_word, recorded_arguments, shown_command
from profiler.core.procfs import available_memory
from profiler.core.terminal import called_as
from profiler.core.units import size
from profiler.knockout import isolation
from profiler.knockout.gate import REPORTS
from profiler.knockout.isolation import CHANGES_SHARE
from profiler.knockout.plan import LOADER_SETTINGS, Plan, plan_trial
from profiler.run import tables
from profiler.run.trials import Trial, write_trials

_PATIENCE_S: Final = 60.0
"""Least time after which a program is taken to hang: on a busy machine it may take long to its first step."""
_PROBE_S: Final = 20.0
_LEAST_S: Final = 5.0
"""Time below which a further finding is not tried: starting two programs alone takes as long."""
_FILES: Final = "files.json"
"""The changed source files. They are removed after the trial, since they may have secrets in them."""
_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The program of a run."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """Its recorded settings."""
    steps: int = 0
    """Steps that it took at least."""


def isolated(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv` in isolation."""
    return (sys.executable, "-I", "-S", isolation.__file__, *argv)


def check_isolation() -> None:
    """Refuse a machine on which a program cannot be isolated, and tell why."""
    with TemporaryDirectory(prefix="try-") as folder:
        environment = {**os.environ, tables.ENV_RUN: folder}
        command = isolated((sys.executable, "-I", "-S", "-c", "open('/tmp/probe', 'w')"))
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_PROBE_S, check=False
            )
            why = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
    if why:
        raise ProfilerError(
            f"nothing can be tried here, because a program cannot be kept from changing files: {why}. It needs Linux "
            "5.12 with user namespaces, or root; without them, take the cause out by hand and use `compare`",
            Exit.NOT_COMPARABLE,
        )


def measure(
    plan: Plan,
    program: Recorded,
    out: Path,
    seconds: float,
    on_round: Callable[[Sequence[Round]], None] = lambda _: None,
) -> Trial:
    """Try a plan within `seconds`.

    :param out: a folder for the runs, which is created.
    :param on_round: called before each round, with those that are done.
    """
    begin = time.monotonic()
    finding = plan.finding
    site = f"{finding.sites[0].file}:{finding.sites[0].line}" if finding.sites else ""
    rounds: list[Round] = []
    reason: Notice | None = None
    runner = RoundRunner(
        _programs(plan, program, out),
        out,
        patience=max(seconds, _PATIENCE_S),
        round_seconds=PLANNED * seconds / MIN_STARTS,
        program_steps=program.steps,
        may_end=True,
        is_alone=True,
    )
    try:
        for _ in time_for_rounds(begin, seconds, rounds, await_quiet):
            on_round(rounds)
            rounds.append(runner.run(len(rounds) + 1, MEASURE))
    except ProfilerError as error:
        reason = Notice("trial-failed", {"text": str(error)}) if not rounds else None
    finally:
        (out / _FILES).unlink(missing_ok=True)
    reports = _reports(out)
    left_out = reports["skipped"] | reports["stopped"]
    lines = tuple(line for number, line in enumerate(plan.lines) if number in left_out)
    gain = measured_gain(rounds)
    if reason is None and plan.lines and not plan.cause & left_out:
        line = plan.lines[max(plan.cause)]  # a function comes before the statement in it
        why = "loss" if plan.cause & reports["graph"] else "not-reached"
        why = "training" if plan.cause & reports["steps"] else why
        reason = Notice(why, {"file": line.file, "line": line.line})
    if reason is None and plan.settings.keys() & LOADER_SETTINGS and not _was_loader_changed(out):
        place = plan.settings.get("loader_at")
        reason = Notice("loader-not-found", {"file": place[0], "line": place[1]}) if place else Notice("no-loader")
    if reason is None and gain is None:
        reason = Notice("trial-too-short", {"seconds": seconds})
    if reason is None and gain is not None:
        reason = doubt(gain, rounds)
    if reason is None and gain is not None and _lacks_file_waits(finding, gain):
        reason = Notice("files-in-memory")
    trial = Trial(
        finding.rule.name, site, finding.gain if finding.gains else None,
        is_least="checkpoint" in finding.costs, skipped=lines, settings=plan.settings, reason=reason,
        pairs=gain.pairs if gain else 0, rounds=len(rounds), seconds=time.monotonic() - begin,
        more=more_time(gain, time.monotonic() - begin) if gain and (not reason or reason.code == "too-wide") else None,
    )  # fmt: skip
    if reason is not None or gain is None:
        return trial
    low, high = gain.interval()
    return replace(trial, factor=math.exp(gain.log), low=low, high=high)


def _programs(plan: Plan, program: Recorded, out: Path) -> dict[str, Program]:
    argv = isolated(program.argv)
    changed = dict(program.env)
    if plan.settings:
        changed[SETTINGS_VARIABLE] = json.dumps(dict(plan.settings))
        changed |= dict.fromkeys(_THREAD_VARIABLES, str(plan.settings["threads"])) if "threads" in plan.settings else {}
    if plan.texts:
        out.mkdir(parents=True, exist_ok=True)
        file = out / _FILES
        file.write_text(json.dumps(plan.texts), encoding="utf-8")
        changed[isolation.FILES_VARIABLE] = str(file.absolute())
    hint = "a trial has no network, and its changes of files go to memory"
    return {
        BASE: Program(BASE, argv, program.cwd, program.env, hint=hint),
        CANDIDATE: Program(CANDIDATE, argv, program.cwd, changed),
    }


def _reports(out: Path) -> dict[str, set[int]]:
    """Return what the programs without the cause reported, by event: the numbers of statements."""
    numbers: dict[str, set[int]] = {event: set() for event in ("skipped", "stopped", "steps", "graph")}
    for file in out.glob(f"*-{CANDIDATE}/{REPORTS}"):
        for line in file.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                event: dict[str, Any] = json.loads(line)
                for name, number in event.items():
                    numbers[name].add(int(number))
    return numbers


def _was_loader_changed(out: Path) -> bool:
    """Return whether a program without the cause made a DataLoader that the plan changes."""
    for file in out.glob(f"*-{CANDIDATE}/source-*/{tables.SOURCE_META}"):
        with suppress(OSError, ValueError, AttributeError):  # a program that was ended may have left half a file
            if json.loads(file.read_text(encoding="utf-8")).get("facts", {}).get(tables.CHANGED_LOADER):
                return True
    return False


def _lacks_file_waits(finding: Finding, gain: Gain) -> bool:
    """Return whether the unchanged program waits less for files in the trial than when it was recorded. Without the
    work of its loader it would else gain at least what leaving these waits out was predicted to give."""
    return bool(finding.values.get("files") and finding.gains and gain.interval()[1] < finding.gains[0].low)


# ---------------------------------------------------------------- which findings are tried

FINDINGS: Final = 3
"""Findings that are tried by default."""
SECONDS: Final = 300.0
"""How long all trials may take by default."""
_WHOLE_SECOND: Final = 1.0
"""The start of a run is stored in whole seconds, rounded down: a file that was written just before may seem newer."""
TRIALS_FOLDER: Final = "try"
"""Folder of the run directory with the programs of the last trials and their output."""


@dataclass(frozen=True, slots=True)
class Session:
    """The trials of one run."""

    run: Path
    program: Recorded
    plans: tuple[Plan, ...]
    not_tried: tuple[tuple[Finding, Notice], ...]
    """Findings that come before the last one that is tried, but cannot be tried, and why."""
    seconds: float
    """How long all trials may take."""
    alternatives: Mapping[str, Plan] = field(default_factory=dict)
    """By rule, the plan of the next finding about the same time: it is tried where the one of the rule gains
    nothing, because only one of them is the cause."""

    def trials(self, on_round: Callable[[str, Sequence[Round]], None] = lambda *_: None) -> Iterator[Trial]:
        """Measure the plans one after the other, and where one gains nothing, its alternative next; each result is
        written to the run directory at once.

        :param on_round: called before each round, with the rule and the rounds that are done.
        :raises ProfilerError: the results cannot be written.
        """
        folder = self.run / TRIALS_FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        done: list[Trial] = []
        next_plans = list(self.plans)
        end = time.monotonic() + self.seconds
        while next_plans:
            pending = sum(plan.finding.rule.name in self.alternatives for plan in next_plans)
            # what one does not need, the others have
            seconds = (end - time.monotonic()) / (len(next_plans) + pending)
            if seconds < _LEAST_S and done:
                return
            plan = next_plans.pop(0)
            rule = plan.finding.rule.name
            trial = measure(plan, self.program, folder / f"{len(done) + 1}-{rule}", seconds, partial(on_round, rule))
            done.append(trial)
            write_trials(self.run, done)
            yield trial
            if rule in self.alternatives and not _gains(trial):
                next_plans.insert(0, self.alternatives[rule])


def _gains(trial: Trial) -> bool:
    """Return whether a program is faster without the cause, by an amount that matters and more than by chance."""
    return trial.factor is not None and trial.low is not None and trial.low > 1.0 and trial.factor >= 1.0 + MUCH


def prepare(
    run: Path,
    analysis: Analysis,
    *,
    command: tuple[str, ...] | None = None,
    findings: int = FINDINGS,
    seconds: float = SECONDS,
) -> Session:
    """Plan the trials of the first findings of a run that can be tried.

    :param command: the command of the run with what was not recorded of it; None: the recorded one.
    :param seconds: for all trials.
    :raises ProfilerError: the run has no program of this machine, or two copies of the program do not fit into the
        memory.
    """
    info = analysis.info
    if not run.is_dir() or not info.argv:
        raise ProfilerError(f"{run} is not a run directory with a recorded command: record the program with `run`")
    argv = _complete_command(run, info.argv, command)
    cwd = Path(info.cwd or Path.cwd())
    if not cwd.is_dir():
        raise ProfilerError(f"the folder {cwd}, in which the program was recorded, does not exist: record it again")
    needed, free = analysis.value("peak_memory"), available_memory()
    changes = 2 * CHANGES_SHARE * (free or 0)
    if needed is not None and free is not None and 2 * needed + changes > free:
        raise ProfilerError(
            f"two copies of the program take {size(2 * needed)} of memory, and up to {size(changes)} for what they "
            f"write; {size(free)} are free: nothing can be tried; record a smaller model",
            Exit.NOT_COMPARABLE,
        )
    scripts = [Path(word).parent for word in argv if word.endswith(".py") and word.startswith("/")]
    folders = [Path(info.project or cwd), cwd, *scripts]
    recorded_at = datetime.fromisoformat(info.started_at).timestamp() + _WHOLE_SECOND
    plans: list[Plan] = []
    not_tried: list[tuple[Finding, Notice]] = []
    ordered = iter(_worth_trying(analysis.findings))
    owners: dict[tuple[str, int], str] = {}
    for finding in ordered:
        lines = [site.place for site in finding.sites]
        owner = owners.get(lines[0]) if lines and finding.rule.knock_out is not KnockOut.SETTINGS else None
        for line in lines:
            owners.setdefault(line, finding.rule.name)
        if owner is not None:  # the trial would measure that one
            not_tried.append((finding, Notice("line-of-other", {"rule": owner})))
            continue
        plan = plan_trial(finding, folders, recorded_at)
        if isinstance(plan, Notice):
            not_tried.append((finding, plan))
            continue
        plans.append(plan)
        if len(plans) == findings:
            break
    # plans of other findings, each by the rule that claimed most of the same time, or by the one before it
    latest = {plan.finding.rule.name: plan.finding.rule.name for plan in plans}
    alternatives: dict[str, Plan] = {}
    for finding in ordered:
        before = latest.get(finding.overlaps)
        if before is not None and isinstance(other := plan_trial(finding, folders, recorded_at), Plan):
            alternatives[before] = other
            latest[finding.overlaps] = finding.rule.name
    environment = {name: str(value) for name, value in info.host.get("environment", {}).items()}
    program = Recorded(argv, cwd, environment, int(analysis.value("steps") or 0))
    return Session(run, program, tuple(plans), tuple(not_tried), seconds, alternatives)


def _complete_command(run: Path, recorded: tuple[str, ...], command: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the command to start.

    :raises ProfilerError: a part of it was not recorded, or `command` is another one.
    """
    complete = command or recorded
    if word := masked_word(complete):
        asking = "" if sys.stdin.isatty() else "--yes "
        again = f"{called_as()} try {asking}{shlex.quote(str(run))} -- {shlex.join(recorded)}"
        raise ProfilerError(f"a part of the command was not recorded ({word}): write it in place of {MASK} in: {again}")
    if masked(recorded) not in [recorded_arguments(complete, arguments=kept) for kept in (True, False)]:
        raise ProfilerError(f"{run} was recorded with another command: {shown_command(recorded)}")
    return complete


def _worth_trying(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings, the largest gain first; those that may be chance behind the others, those without a prediction
    at the end."""
    predicted = [
        replace(each, gains=tuple(gain for gain in each.gains if gain.method is not GainMethod.KNOCK_OUT))
        for each in findings
    ]
    return sorted(
        predicted,
        key=lambda each: (not each.gains, bool(each.overlaps), each.confidence is Confidence.LOW, -each.gain),
    )
