"""Makes the actions of the first screen of a run: what to do now, and the command that proves it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final

from profiler.analyse.finding import Finding, GainMethod
from profiler.analyse.model import Analysis
from profiler.core.facts import program as started_program
from profiler.core.masking import MASK, masked_word
from profiler.core.terminal import called_as
from profiler.diagnose.model import NAMED, WORTH_LEADING, WORTH_NAMING, RunVerdict, is_worth
from profiler.report.blocks import Action
from profiler.report.finding_text import finding_text, lead_finding, prediction_texts, told
from profiler.report.first_screen_text import is_too_short, not_sampled, times_too_short
from profiler.report.model import exit_status, has_no_steps
from profiler.report.text import listed, relative_path, site_text
from profiler.run.model import RunInfo

ACTIONS: Final = 3
_CURES: Final = 2
_TRIAL: Final = "Without --yes it asks first. It runs the program without this cause, and changes no file of yours."


def run_actions(analysis: Analysis, most: int | None = ACTIONS) -> tuple[Action, ...]:
    """What to write, and the command that proves it; where no rule found a cause, the next useful command.

    :param most: how many of them; None: all.
    """
    repair: tuple[Action, ...] = ()
    if analysis.info.state == "failed":
        repair = (Action("Repair the error, then record the program again", command=_run(analysis.info)),)
    lead, fixes = lead_finding(analysis), dict[str, Finding]()  # the same cure may help against two of them
    mentioned = told(analysis.findings)
    for finding in (each for each in analysis.findings if each in mentioned or each is lead or _is_much_growth(each)):
        if (finding is lead or _is_worth(finding)) and (fix := finding_text(finding).fix):
            fixes.setdefault(fix, finding)
    worth = [*fixes.values()]
    first = next((each for each in worth if not each.is_growth), worth[0] if worth else None)
    cures = [_cure(each, is_lead=each is lead) for each in worth[:_CURES]]
    proofs = () if repair and has_no_steps(analysis) else _proofs(analysis, first)
    actions = (*repair, *cures, *proofs)[:most]
    fill_in = f"write what was not recorded in place of {MASK}"
    return tuple(replace(each, title=f"{each.title}: {fill_in}") if MASK in each.command else each for each in actions)


def _is_worth(finding: Finding) -> bool:
    """Whether a change is worth to be written down: for its gain, or because a rule knows what to write instead."""
    if not finding.has_cure:
        return is_worth(finding) or "part_cure" in finding.values
    is_written = bool(finding.rule.code) and not finding.gains and finding.share >= NAMED
    return finding.gain >= WORTH_LEADING or finding.is_growth or is_written


def _is_much_growth(finding: Finding) -> bool:
    return finding.is_growth and (finding.share >= WORTH_NAMING or not finding.share)  # the run may not have ended


def _cure(finding: Finding, *, is_lead: bool) -> Action:
    text = finding_text(finding)
    sites = [text.cure_site] if text.cure_site else finding.sites[:1]
    place = listed([*map(site_text, sites)]) if sites else ""
    cause = "" if is_lead else text.title
    note = " ".join(prediction_texts(finding)[:1])
    lines = tuple(f"{site.file}:{site.line}" for site in ([text.cure_site] if text.cure_site else finding.sites))
    return Action(text.fix.removesuffix("."), cause, text.code, note=note, place=place, lines=lines)


def _proofs(analysis: Analysis, first: Finding | None) -> Iterator[Action]:
    """The commands that measure what a change gives, or that record more.

    :param first: the finding to try: the first action that is no growth, if any.
    """
    info = analysis.info
    program = command_text(info)
    if analysis.is_trace or not program:
        if analysis.outcome in (RunVerdict.DEVICE_IDLE, RunVerdict.DEVICE_BUSY):
            change = next((f"{name}=0" for name in first.costs if name in _CHANGED), "") if first else ""
            trace = shlex.quote(relative_path(analysis.path)) if analysis.is_trace and analysis.path else "RUN"
            predict = f"{called_as()} diagnose {trace} --what-if {change or 'sync=0,launch=0.5'}"
            yield Action("Predict what a change gives before you make it", command=predict)
        if analysis.outcome == RunVerdict.DEVICE_UNRECORDED:
            activities = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
            yield Action("Record a trace that has the activities of the device", code=activities)
            return
        yield Action(
            "Record a trace after your change, and compare both", command=f"{called_as()} compare BEFORE AFTER"
        )
        return
    if analysis.outcome in (RunVerdict.NOTHING_MEASURED, RunVerdict.NO_STEP):
        mark = "If the program trains in a loop, call profiler.step() at the end of each step, and record it again"
        yield Action(mark, code="profiler.step()", command=_run(info))
        return
    record = () if info.state == "failed" else tuple(_recording(analysis))
    if analysis.outcome == RunVerdict.THREADS_ONLY:
        yield from record
        return
    if first is None:
        yield from record
    elif first.can_be_tried and not any(gain.method is GainMethod.KNOCK_OUT for gain in first.gains):
        asking, command = trial_commands(analysis)
        yield Action("Measure the gain before you change the code", command=command, asking=asking, note=_TRIAL)
    if first is not None:
        yield from record
    is_elsewhere = any(each.is_of_run and each.share >= NAMED for each in analysis.findings)
    is_busy = analysis.outcome in (RunVerdict.COMPUTING, RunVerdict.DEVICE_BUSY)
    is_well = is_busy and not is_elsewhere and not exit_status(info)
    if first is not None or not (record or is_well):
        yield _comparison(info)
    if first is None and is_well:
        yield keep_action("it", program)


def keep_action(name: str, program: str) -> Action:
    """The baseline that keeps a program as fast as it is, and what `check` does with it."""
    check = f"{called_as()} check --baseline counters.json --update -- {program}"
    note = "In CI, run it without --update: it fails if a step calls, copies or waits more often than now."
    return Action(f"Keep {name} as fast as it is", command=check, note=note)


def _comparison(info: RunInfo) -> Action:
    """`compare` of the program with a changed copy of it; of one that is no script, with the last commit."""
    program = _typed(info)
    before, script = command_text(info), next((part for part in program if part.endswith(_SCRIPT)), "")
    if script:
        copy = f"{script.removesuffix(_SCRIPT)}_changed{_SCRIPT}"
        after = shlex.join(copy if part == script else part for part in program)
        title = f"Measure what the change gives in a copy of {PurePath(script).name}"
    elif info.git_commit and not _is_typed(info):
        title = "Measure what the change gives: compare all uncommitted changes with the last commit"
        return Action(title, command=f"{called_as()} check --against HEAD -- {before}")
    else:
        title, after = "Measure what the change gives in a copy of the program", "COMMAND_OF_COPY"
    return Action(title, command=f"{called_as()} compare --before {_quoted(before)} --after {_quoted(after)}")


def _quoted(command: str) -> str:
    """Quote a command as one word of a shell, in double quotes where it has single ones and nothing forbids that."""
    return f'"{command}"' if "'" in command and not set('"$`\\!') & set(command) else shlex.quote(command)


def _is_typed(info: RunInfo) -> bool:
    """Whether the command itself has the code, as that of `python -c`: in each checkout it runs the same."""
    return PurePath(info.argv[0]).name.startswith("python") and not started_program(info.argv)


def _recording(analysis: Analysis) -> Iterator[Action]:
    """The recording that tells more, where this one leaves much open."""
    info = analysis.info
    if analysis.outcome == RunVerdict.THREADS_ONLY:
        yield Action("Record the program from its start, and for longer", command=_run(info))
    elif info.level == "light":
        yield Action("Record where the time goes", command=_run(info))
    elif reason := not_sampled(analysis):
        yield Action("Let stacks be sampled, and record the program again", text=reason, command=_run(info))
    elif is_too_short(analysis):
        yield _longer_recording(analysis)


def _longer_recording(analysis: Analysis) -> Action:
    """The command with the one option that makes the program run longer, or how much longer it is to run."""
    info, times = analysis.info, times_too_short(analysis)
    if times is None:
        return Action("Let the program run for longer, and record it again", command=_run(info))
    longer = list(_with_longer_option(info.argv, times))
    if len(longer) != 1:
        title = f"Record the program again, with about {times} times as many steps or epochs"
        return Action(title, command=_run(info))
    title = f"Let the program run about {times} times as long, and record it again"
    return Action(title, command=_run(replace(info, argv=longer[0])))


def _with_longer_option(program: tuple[str, ...], times: int) -> Iterator[tuple[str, ...]]:
    for index, part in enumerate(program):
        name, equals, value = part.partition("=")
        at_value = index if equals else index + 1
        value = value if equals else "".join(program[at_value : at_value + 1])
        if name.lstrip("-").replace("_", "-") in _LENGTHS and name.startswith("-") and value.isdecimal():
            longer = f"{name}={times * int(value)}" if equals else str(times * int(value))
            yield (*program[:at_value], longer, *program[at_value + 1 :])


_LENGTHS: Final = frozenset(
    f"{prefix}{unit}"
    for prefix in ("", "max-", "num-", "n-", "num-train-")
    for unit in ("steps", "epochs", "iters", "iterations", "batches", "seconds")
)
"""Options by which programs commonly take how long they run."""


_CHANGED: Final = ("input", "log", "checkpoint", "python", "sync", "launch")
"""Categories that `--what-if` changes, and of which a finding may remove all."""
_SCRIPT: Final = ".py"


def command_text(info: RunInfo) -> str:
    """The recorded command as one would type it; empty for none."""
    return shlex.join(_typed(info))


def _typed(info: RunInfo) -> tuple[str, ...]:
    """The recorded command with the name of its program, or with its path where the name does not find that file."""
    if not info.argv:
        return ()
    path, name = info.argv[0], PurePath(info.argv[0]).name
    file, found = Path(info.cwd, path), shutil.which(name)
    # a Python of an environment is a link to another one, so only the folders are resolved
    is_found = found is not None and Path(found).parent.resolve() == file.parent.resolve()
    return (path if os.access(file, os.X_OK) and not is_found else name, *info.argv[1:])


def trial_commands(analysis: Analysis) -> tuple[str, str]:
    """The command that tries the findings of a run, as it asks first, and as it runs without a terminal."""
    path, info = analysis.path, analysis.info
    if path is None or path.suffix == ".zip" or not info.end:
        what = f"-- {command_text(info)}"
    else:
        what = shlex.quote(relative_path(path))
        if masked_word(info.argv):  # the program cannot be started without what was not recorded
            what += f" -- {command_text(info)}"
    return f"{called_as()} try {what}", f"{called_as()} try --yes {what}"


def _run(info: RunInfo) -> str:
    return f"{called_as()} run -- {command_text(info)}"
