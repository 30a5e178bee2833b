"""Tries the findings of a run: which of them can be tried, with what change, for how long."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from profiler.analyse.finding import MUCH, Confidence, Finding, GainMethod, KnockOut
from profiler.analyse.model import Analysis
from profiler.check.model import Round
from profiler.core.errors import Exit, ProfilerError
from profiler.core.masking import MASK, masked, masked_word, recorded_arguments, shown_command
from profiler.core.notice import Notice
from profiler.core.procfs import available_memory
from profiler.core.terminal import called_as
from profiler.core.units import size
from profiler.knockout.isolation import CHANGES_SHARE
from profiler.knockout.plan import Plan, plan_trial
from profiler.knockout.trial import Recorded, measure
from profiler.run.trials import Trial, write_trials

FINDINGS: Final = 3
"""Findings that are tried by default."""
TIMES_RECORDED: Final = 3.0
"""How long a trial may take by default, as a multiple of the recorded time."""
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
    """How long each trial may take."""
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
        while next_plans:
            plan = next_plans.pop(0)
            rule = plan.finding.rule.name
            trial = measure(
                plan, self.program, folder / f"{len(done) + 1}-{rule}", self.seconds, partial(on_round, rule)
            )
            done.append(trial)
            write_trials(self.run, done)
            yield trial
            if rule in self.alternatives and not _gains(trial):
                next_plans.insert(0, self.alternatives[rule])


def _gains(trial: Trial) -> bool:
    """Whether a program is faster without the cause, by an amount that matters and more than by chance."""
    return trial.factor is not None and trial.low is not None and trial.low > 1.0 and trial.factor >= 1.0 + MUCH


def prepare(
    run: Path,
    analysis: Analysis,
    *,
    command: tuple[str, ...] | None = None,
    findings: int = FINDINGS,
    seconds: float | None = None,
) -> Session:
    """Plan the trials of the first findings of a run that can be tried.

    :param command: the command of the run with what was not recorded of it; None: the recorded one.
    :param seconds: for each trial; None: TIMES_RECORDED.
    :raises ProfilerError: the run has no program of this machine, or never ended and `seconds` is missing, or two
        copies of the program do not fit into the memory.
    """
    info = analysis.info
    if not run.is_dir() or not info.argv:
        raise ProfilerError(f"{run} is not a run directory with a recorded command: record the program with `run`")
    argv = _complete_command(run, info.argv, command)
    cwd = Path(info.cwd or Path.cwd())
    if not cwd.is_dir():
        raise ProfilerError(f"the folder {cwd}, in which the program was recorded, does not exist: record it again")
    recorded_s = (info.end - info.begin) / 1e9 if info.end else 0.0
    if not (seconds or recorded_s):
        raise ProfilerError("the run never ended, so that no time limit follows from it: name one with --seconds")
    _check_memory(analysis)
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
    alternatives = _alternatives(plans, ordered, folders, recorded_at)
    environment = {name: str(value) for name, value in info.host.get("environment", {}).items()}
    program = Recorded(argv, cwd, environment, int(analysis.value("steps") or 0))
    seconds = seconds or TIMES_RECORDED * recorded_s
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


def _alternatives(
    plans: Sequence[Plan], others: Iterable[Finding], folders: Sequence[Path], recorded_at: float
) -> dict[str, Plan]:
    """The plans of other findings, each by the rule that claimed most of the same time, or by the one before it."""
    latest = {plan.finding.rule.name: plan.finding.rule.name for plan in plans}
    alternatives: dict[str, Plan] = {}
    for finding in others:
        before = latest.get(finding.overlaps)
        if before is None:
            continue
        plan = plan_trial(finding, folders, recorded_at)
        if isinstance(plan, Plan):
            alternatives[before] = plan
            latest[finding.overlaps] = finding.rule.name
    return alternatives


def _worth_trying(findings: Sequence[Finding]) -> list[Finding]:
    """The largest gain first; those that may be chance behind the others, those without a prediction at the end."""
    predicted = [
        replace(each, gains=tuple(gain for gain in each.gains if gain.method is not GainMethod.KNOCK_OUT))
        for each in findings
    ]
    return sorted(
        predicted,
        key=lambda each: (not each.gains, bool(each.overlaps), each.confidence is Confidence.LOW, -each.gain),
    )


def _check_memory(analysis: Analysis) -> None:
    needed, free = analysis.value("peak_memory"), available_memory()
    if needed is None or free is None:
        return
    changes = 2 * CHANGES_SHARE * free
    if 2 * needed + changes > free:
        raise ProfilerError(
            f"two copies of the program take {size(2 * needed)} of memory, and up to {size(changes)} for what they "
            f"write; {size(free)} are free: nothing can be tried; record a smaller model",
            Exit.NOT_COMPARABLE,
        )
