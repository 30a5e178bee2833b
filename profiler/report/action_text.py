"""Words what to do now, what `try` changes and measures, and what a change is predicted to give."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import MAX_WITHOUT_CORE, WITHOUT_CORE, Comparison
from profiler.analyse.model.finding import Cure, Finding, GainMethod, Prediction
from profiler.core.errors import Notice
from profiler.core.facts import program as started_program
from profiler.core.masking import MASK, masked_word
from profiler.core.terminal import called_as
from profiler.core.units import ratio, seconds, share
from profiler.diagnose.model import MOST_UNEXPLAINED, NAMED, WORTH_LEADING, WORTH_NAMING, RunVerdict, is_worth
from profiler.report.blocks import Action
from profiler.report.comparison_text import SAME, times_text
from profiler.report.finding_text import NO_GAIN, finding_text, lead_finding, prediction_texts, told
from profiler.report.first_screen_text import is_too_short, not_sampled, times_too_short
from profiler.report.model import ReportInput, ReportSide, exit_status, has_no_steps
from profiler.report.notices import describe
from profiler.report.text import at, kernel_name, listed, part_of_time, plural, relative_path, site_text
from profiler.run.model import RunInfo
from profiler.run.trials import SkippedLine, Trial

ACTIONS: Final = 3
_CURES: Final = 2
_BUSY: Final = 0.5
"""Share of the time for which a device works, from which its kernels are worth a look."""
_TRIAL: Final = "Without --yes it asks first. It runs the program without this cause, and changes no file of yours."


def run_actions(analysis: Analysis, most: int | None = ACTIONS) -> tuple[Action, ...]:
    """Tell what to write, and the command that proves it; where no rule found a cause, the next useful command.

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
    """Tell whether a change is worth writing down: for its gain, or because a rule knows what to write instead."""
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
    """Yield the commands that measure what a change gives, or that record more.

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
        yield keep_action("Keep it as fast as it is", program)


def keep_action(title: str, program: str) -> Action:
    """Offer the baseline that keeps a program as fast as it is, and tell what `check` does with it."""
    check = f"{called_as()} check --baseline counters.json --update -- {program}"
    note = "In CI, run it without --update: it fails if a step calls, copies or waits more often than now."
    return Action(title, command=check, note=note)


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
    """Tell whether the command itself has the code, as that of `python -c`: in each checkout it runs the same."""
    return PurePath(info.argv[0]).name.startswith("python") and not started_program(info.argv)


def _recording(analysis: Analysis) -> Iterator[Action]:
    """Yield the recording that tells more, where this one leaves much open."""
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
    """Return the command with the one option that makes the program run longer, or how much longer it is to run."""
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
    """Return the recorded command as one would type it; empty for none."""
    return shlex.join(_typed(info))


def _typed(info: RunInfo) -> tuple[str, ...]:
    """Return the recorded command with the name of its program, or with its path if the name does not find it."""
    if not info.argv:
        return ()
    path, name = info.argv[0], PurePath(info.argv[0]).name
    file, found = Path(info.cwd, path), shutil.which(name)
    # a Python of an environment is a link to another one, so only the folders are resolved
    is_found = found is not None and Path(found).parent.resolve() == file.parent.resolve()
    return (path if os.access(file, os.X_OK) and not is_found else name, *info.argv[1:])


def trial_commands(analysis: Analysis) -> tuple[str, str]:
    """Return the command that tries the findings of a run, as it asks first, and as it runs without a terminal."""
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


def comparison_actions(report_input: ReportInput, comparison: Comparison) -> tuple[Action, ...]:
    """Tell what the last side can still gain, and how to keep what was gained."""
    last = report_input.sides[-1]
    actions = [*_next_cure(last), *_bound_of_host(last)]
    fixes = next(filter(None, (each.next_command() for each in comparison.extensions.values())), "")
    if fixes:
        each_fix = Action("See what each fix gains by itself", command=f"{called_as()} {fixes}")
        return (*actions[: ACTIONS - 1], each_fix)
    if not _is_worth_keeping(report_input, comparison):
        record = Action(f"Record where the time of {last.label} goes", command=f"{called_as()} run -- {_command(last)}")
        return (*actions[:ACTIONS],) or (record,)
    return (*actions[: ACTIONS - 1], keep_action(f"Keep {last.label} as fast as it is", _command(last)))


def _command(side: ReportSide) -> str:
    return command_text(side.detailed.info) or "COMMAND"


def _is_worth_keeping(report_input: ReportInput, comparison: Comparison) -> bool:
    """Tell whether the last side ended well, can be compared with the first, and is not slower."""
    last = report_input.sides[-1]
    speed = report_input.ratio(last.label, report_input.rate)
    if not comparison.comparable or speed is None or speed.known is None:
        return False
    is_slower = speed.known <= 1 - SAME and (speed.different or speed.n <= 1)
    return not is_slower and not any(exit_status(run.info) for run in last.analyses())


def _next_cure(side: ReportSide) -> Iterator[Action]:
    worth = (each for each in told(side.detailed.findings) if each.has_cure and each.gain >= WORTH_LEADING)
    for finding in islice(worth, 1):
        text = finding_text(finding)
        note = " ".join(prediction_texts(finding)[:1])
        can_be_tried = finding.can_be_tried and side.detailed.info.argv
        asking, command = trial_commands(side.detailed) if can_be_tried else ("", "")
        place = at(finding.sites[0]) if finding.sites else ""
        cause = f"{text.fix.removesuffix('.')}. {text.title.removesuffix('.')}{place}."
        lines = tuple(f"{site.file}:{site.line}" for site in finding.sites)
        yield Action(f"Next in {side.label}", cause, text.code, command, asking, note, lines=lines)


def _bound_of_host(side: ReportSide) -> Iterator[Action]:
    """Tell how much more the host can give at most: the device has the same work to do."""
    busy = side.measure("device_utilization").value
    if not busy or busy < _BUSY or side.detailed.outcome == "":
        return
    works = f"The device of {side.label} works {part_of_time(busy, side.measure('peak_share').value)}"
    waited = (side.measure(WITHOUT_CORE).value or 0.0) > MAX_WITHOUT_CORE  # then the host was late for that reason too
    rest = (
        f". If it never waited for the host, steps would be at most {times_text(1 / busy)} as fast"
        if 1 / busy >= NO_GAIN and not waited
        else ""
    )
    first = next(iter(side.detailed.kernels), None)
    most = f" {kernel_name(first.name)} takes {share(first.share)} of the kernels' time." if first else ""
    yield Action("Look at the kernels", f"{works}{rest}.{most}")


# ---------------------------------------------------------------- what `try` changes and measures


def change_text(lines: tuple[SkippedLine, ...], settings: Mapping[str, Any], *, is_thread: bool) -> str:
    """`skips train.py:14: total += weight.item()`"""
    if lines:
        verb = "stops other threads at" if is_thread else "skips"
        return f"{verb} " + listed([f"{PurePath(line.file).name}:{line.line}: {_code(line.source)}" for line in lines])
    return f"changes settings: {listed(list(_settings(settings)))}"


def _code(source: str) -> str:
    return source.partition("  #")[0][:80]


def _settings(settings: Mapping[str, Any]) -> list[str]:
    words = []
    file, line = settings.get("loader_at") or ("", 0)
    place = f" at {PurePath(file).name}:{line}" if file else ""
    for name, value in settings.items():
        if name == "loader":
            words.append(f"DataLoader({', '.join(f'{key}={argument}' for key, argument in value.items())}){place}")
        elif name == "loader_at":
            continue
        elif name == "optimizer":
            words.append(f"optimizers with {', '.join(f'{key}={option}' for key, option in value.items())}")
        elif name == "replay":
            words.append(
                f"the loader{place} replays its first batches" if place else "loaders replay their first batches"
            )
        elif name == "threads":
            words.append(f"{value} threads")
        else:
            words.append(_SETTINGS.get(name, name))
    return words


_SETTINGS: Final = {
    "collect": "no garbage collection",
    "anomaly": "no anomaly detection",
    "set_to_none": "gradients are dropped, not filled with zeros",
}


def measured_text(trial: Trial) -> str:
    """`measured 2.90× (2.60× to 3.24×), predicted about 1.34×`, or why nothing was measured."""
    predicted = f"predicted {ratio(trial.predicted)}" if trial.predicted else "nothing was predicted"
    predicted += f"; {describe(trial.more)}" if trial.more else ""
    if trial.factor is None or trial.low is None or trial.high is None:
        return f"not measured: {_reason(trial.reason)}; {predicted}"
    bound = "at least " if trial.is_least else "up to " if trial.is_most else ""
    chance = "; the difference may be chance" if trial.low <= 1.0 <= trial.high else ""
    return f"measured {bound}{ratio(trial.factor)} ({ratio(trial.low)} to {ratio(trial.high)}), {predicted}{chance}"


def duration_text(trials: int, most: float) -> str:
    return f"{plural(trials, 'trial')} of at most {seconds(most)} in all"


def not_tried_text(rule: str, reason: Notice) -> str:
    """`float64: not tried: ...`"""
    return f"{rule}: not tried: {_reason(reason)}"


_WITH_ADVICE: Final = frozenset(("source-changed", "trial-failed", "trial-too-short", "too-wide", "wait-for-core"))
"""Reasons that tell themselves what to do."""


def _reason(reason: Notice | None) -> str:
    """Tell why a finding was not measured, and what to do instead."""
    text = describe(reason)
    if reason is None or reason.code in _WITH_ADVICE:
        return text
    return f"{text}; apply the fix by hand, and run `compare --before OLD --after NEW`"


def trials_json(trials: list[Trial], step: str) -> str:
    """Return the trials as a JSON document, with the reason in words as well.

    :param step: the next step of the run with these trials.
    """
    from dataclasses import asdict

    rows = [{**asdict(trial), "is_most": trial.is_most, "explanation": describe(trial.reason)} for trial in trials]
    return json.dumps({"schema": "trials/1", "next_step": step, "trials": rows}, indent=1)


# ---------------------------------------------------------------- what a change is predicted to give


WHAT_IF_SCHEMA: Final = "what-if/1"
_NEAR: Final = 0.03
"""Deviation of the unchanged replay from which it is not trusted."""


def what_if_text(cures: Sequence[Cure], prediction: Prediction) -> str:
    """`With sync=0, a step takes about 118 ms instead of 153 ms: 1.29× as fast, by a replay of the recorded steps.`"""
    changes = listed([str(cure) for cure in cures])
    times = f"{seconds(prediction.after)} instead of {seconds(prediction.before)}: {ratio(prediction.factor)} as fast"
    if prediction.method is GainMethod.BOUND:
        return (
            f"With {changes}, a step takes about {times}. No queue of a device was recorded, so this is the step "
            "without these parts of it: nothing else can run beside them."
        )
    sentences = [f"With {changes}, a step takes about {times}, by a replay of the recorded steps."]
    replayed = prediction.replayed or prediction.measured
    if abs(replayed / prediction.measured - 1) > _NEAR:
        sentences.append(
            f"Without any change, the replay of a step takes {seconds(replayed)} instead of the measured "
            f"{seconds(prediction.measured)}, so do not rely on it."
        )
    if prediction.unexplained > MOST_UNEXPLAINED:
        sentences.append(
            f"In {share(prediction.unexplained)} of the time, the device began later than the recording explains, "
            "so do not rely on it."
        )
    if prediction.before > (1 + _NEAR) * replayed:
        sentences.append(
            f"The host's own steps took {seconds(prediction.measured)}, because it was ahead of the device."
        )
    return " ".join(sentences)


def what_if_json(cures: Sequence[Cure], prediction: Prediction, step: str) -> Mapping[str, Any]:
    """Return the document of `diagnose --what-if --format json`.

    :param step: the next step.
    """
    return {
        "schema": WHAT_IF_SCHEMA,
        "changes": {cure.name: cure.word or cure.factor for cure in cures},
        "method": prediction.method.value,
        "step_seconds": prediction.before,
        "predicted_step_seconds": prediction.after,
        "factor": prediction.factor if prediction.after > 0 else None,
        "measured_step_seconds": prediction.measured,
        "replayed_step_seconds": prediction.replayed,
        "unexplained": prediction.unexplained,
        "text": what_if_text(cures, prediction),
        "next_step": step,
    }
