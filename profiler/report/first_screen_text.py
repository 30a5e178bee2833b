"""Makes the sentences of the first screen of a run: its headline, why, and its chips."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Final

from profiler.analyse.model.analysis import DAMAGE, LOADED_MACHINE, Analysis
from profiler.analyse.model.finding import Confidence, Finding, GainMethod
from profiler.analyse.model.host import Stage
from profiler.analyse.model.measures import CORELESS_CATEGORIES, MIN_SAMPLES, UNATTRIBUTED, USUAL_STEPS
from profiler.analyse.model.ranks import RankActivity
from profiler.core.facts import is_plain_python
from profiler.core.metrics import RATES
from profiler.core.units import rate, ratio, seconds, share
from profiler.diagnose.model import NAMED, NEARLY_ALL, WORTH_LEADING, WORTH_NAMING, RunVerdict, busy_thread, is_worth
from profiler.report import text as words
from profiler.report.blocks import Chip, Headline
from profiler.report.category_text import phase_label
from profiler.report.finding_text import (
    AS_FAST,
    EVALUATION,
    MOST_FACTOR,
    NO_GAIN,
    VISIBLE,
    factor_text,
    finding_sentence,
    finding_text,
    first_place_text,
    how_sure,
    lead_finding,
    left_out_text,
    of_whole_run,
    share_text,
    title,
    told,
    where_text,
    whole_text,
)
from profiler.report.model import (
    ReportSide,
    ended_early,
    exit_status,
    group_warnings,
    has_no_steps,
    load_warnings,
    loaded_machine,
)
from profiler.report.rank_text import other_ranks
from profiler.run.model import Site, StepKind

_NO_STEP: Final = "No step was seen, so nothing can be said about the speed of its training."
WHY: Final = 2
"""Sentences below a headline, beside what its share leaves out."""


# ---------------------------------------------------------------- headline


def run_headline(analysis: Analysis, devices: str) -> Headline:
    """`Training waits for data 39% of every step: about 1.64× as fast without it`"""
    if has_no_steps(analysis) and (status := exit_status(analysis.info)):
        return Headline(f"The program {status}", judged="bad")
    if lead := lead_finding(analysis):
        gain = gain_to_get(lead)
        if is_of_input(lead):
            who = "The device" if analysis.outcome in _OF_DEVICE else "Training"
            waits = _wait_for_data(lead, analysis)
            if waits - lead.share >= VISIBLE:  # the gain is not that of all of them
                gain = gain.replace(AS_FAST, " as fast after the first change")
            return Headline(f"{who} waits for data {share(waits)} of every step{': ' if gain else ''}", gain)
        part = share(_evaluation(lead, analysis) or (lead.of_steps if lead.is_growth else lead.share))
        is_whole = analysis.step is not None and analysis.step.kind is StepKind.WHOLE_TRACE
        whole = whole_text(lead, "the trace" if is_whole else "every step")
        if not lead.has_cure:
            if lead.rule.name == UNATTRIBUTED:
                is_hinted = any(line.unrecorded for line in analysis.lines)
                return Headline(f"What ran in {part} of {whole} is {'uncertain' if is_hinted else 'unknown'}")
            return Headline(finding_sentence(lead, f"of {whole}", is_brief=True).removesuffix("."))
        return Headline(f"{title(lead)}: {part} of {whole}{', ' if gain else ''}", gain)
    ledger = analysis.ranks
    if ledger is not None and ledger.straggler is not None:
        late = ledger.straggler
        others = other_ranks(len(ledger.ranks))
        return Headline(f"Rank {late.rank} makes {others} wait {seconds(late.lead)} of every step")
    return Headline(_outcome(analysis, devices))


_OF_DEVICE: Final = (RunVerdict.DEVICE_IDLE, RunVerdict.DEVICE_BUSY)


def _wait_for_data(finding: Finding, analysis: Analysis) -> float:
    """The share of a step that is a wait for data, as in its strip; of a device with a queue, the time in which that
    waits. Where findings leave much out of a step, so does this share."""
    if analysis.outcome in _OF_DEVICE:
        return finding.share
    left_out = finding.left_out if leaves_much_out(finding, analysis) else 0.0
    phase = next((phase.share for phase in analysis.phases if phase.name == "data"), None)
    if phase is not None and not left_out and finding.share - phase < VISIBLE:
        return phase
    part, step = analysis.breakdown.get("input"), (analysis.value("step_time") or 0.0) * (1.0 - left_out)
    return max(finding.share, part.value / step) if part is not None and part.value and step else finding.share


def leaves_much_out(finding: Finding, analysis: Analysis) -> bool:
    """Tell whether shares of findings and those of phases differ visibly, since phases contain waits for a core."""
    return waits_for_cores(analysis) or bool(left_out_text(finding))


def waits_for_cores(analysis: Analysis) -> bool:
    """Tell whether waits for a core take so much of a step that they are worth a part of its strip."""
    return analysis.core_wait >= NAMED * (analysis.value("step_time") or math.inf)


def _evaluation(finding: Finding, analysis: Analysis) -> float:
    """Return the share of a step that is evaluation, as in its strip, where a finding is about that; else 0."""
    phases = analysis.phases if finding.rule.name == EVALUATION and not leaves_much_out(finding, analysis) else ()
    return next((phase.share for phase in phases if phase.name == Stage.EVALUATION), 0.0)


def is_of_input(finding: Finding) -> bool:
    """Tell whether nearly all of what it costs is time in which the training has no batch."""
    total = sum(finding.costs.values())
    is_other = finding.is_of_run or finding.rule.name == EVALUATION  # that is an input of its own
    return not is_other and total > 0 and finding.costs.get("input", 0.0) > NEARLY_ALL * total


def gain_to_get(finding: Finding) -> str:
    """`about 1.64× as fast without it`, `1.64× as fast without it, as measured`; empty where nothing is predicted."""
    if not finding.gains or finding.gain < NO_GAIN:
        return ""
    gain = finding.gains[0]
    measured = ", as measured" if gain.method is GainMethod.KNOCK_OUT else ""
    return f"{factor_text(gain)}{AS_FAST}{measured}"


def _outcome(analysis: Analysis, devices: str) -> str:
    """Tell what the run is limited by where no finding leads."""
    part = share(analysis.outcome_share)
    match analysis.outcome:
        case RunVerdict.DEVICE_IDLE | RunVerdict.DEVICE_IDLE_UNEXPLAINED:
            return f"The {devices} is idle {part} of the time"
        case RunVerdict.DEVICE_BUSY | RunVerdict.DEVICE_BUSY_SAMPLED:
            return f"The {devices} is busy {words.part_of_time(analysis.outcome_share, analysis.value('peak_share'))}"
        case RunVerdict.DEVICE_UNRECORDED:
            return analysis.headline.removesuffix(".")
        case RunVerdict.NO_STEP:
            return "No training step was seen"
        case RunVerdict.THREADS_ONLY:
            if thread := busy_thread(analysis):
                who = words.capitalized(words.the_process(thread.process))
                return f"{who} was {words.THREAD_STATES[thread.state]} {share(thread.share)} of the time"
    if not analysis.outcome and (verdict := analysis.headline or analysis.verdict):
        return verdict
    if step := analysis.value("step_time"):
        return f"A step takes {seconds(step)}; where it goes was not recorded"
    return "Nothing was measured"


def _is_much_unknown(analysis: Analysis) -> bool:
    return (analysis.unattributed_share or 0.0) >= NAMED


# ---------------------------------------------------------------- why


def run_why(analysis: Analysis) -> tuple[str, ...]:
    """Tell what costs the time, and what the rest of a step is; then what the share and the gain leave out."""
    if has_no_steps(analysis) and exit_status(analysis.info):
        parts = analysis.details[:WHY] if analysis.outcome == RunVerdict.NO_STEP else ()
        return (_NO_STEP, *parts)
    lead = lead_finding(analysis)
    if lead is None:
        if analysis.outcome == RunVerdict.THREADS_ONLY:
            return (_NO_STEP,)
        if analysis.outcome == RunVerdict.NO_STEP:
            return analysis.details[:WHY]
        if analysis.outcome == RunVerdict.UNKNOWN:  # its details say what its headline says
            return tuple(_gain_or_why_none(analysis))
        shown = tuple(islice(filter(None, analysis.details), WHY))
        return tuple(dict.fromkeys((*shown, *_gain_or_why_none(analysis))))
    of_run = tuple(each for each in of_whole_run(analysis.findings) if each is not lead)
    larger = [each for each in of_run if analysis.findings.index(each) < analysis.findings.index(lead)]
    if not lead.has_cure:
        told_first = [each for each in of_run if each in larger or each.is_growth]  # an action may be about growth
        reason = (analysis.unknown_reason,) if lead.rule.name == UNATTRIBUTED else ()
        where = "" if reason or lead.is_part_of_run else where_text(lead)
        base = left_out_text(lead)
        details = (each for each in analysis.details if each != base)
        shown = tuple(islice(filter(None, (*reason, where, *map(finding_sentence, told_first), *details)), WHY))
        return tuple(filter(None, dict.fromkeys((*shown, *_gain_or_why_none(analysis), base))))
    text = finding_text(lead)
    is_input, is_evaluation = is_of_input(lead), _evaluation(lead, analysis) > 0
    first = f"{text.title}{first_place_text(lead)}." if is_input else ""
    others = [
        each
        for each in told(analysis.findings)
        if each is not lead and is_worth(each) and (each.gains or not each.has_cure)
    ]
    left_out, of_lead = left_out_text(lead), Stage.EVALUATION if is_evaluation else "data"
    has_rest = (is_input or is_evaluation) and not leaves_much_out(lead, analysis)
    phases = [each for each in sorted(analysis.phases, key=lambda phase: -phase.share) if each.name != of_lead][:2]
    named = [f"{phase_label(each.name)} ({share(each.share)})" for each in phases if each.share >= WORTH_NAMING]
    rest = f"The rest is mostly {words.listed(named)}." if named and has_rest else ""
    second = finding_sentence(others[0], is_brief=True) if others else rest
    # how long a part of a step takes is in its strip
    evidence = ("", "") if is_input else (*(text.evidence[1:2] if is_evaluation else text.evidence[:2]), "", "")
    why = tuple(islice(filter(None, dict.fromkeys((first, evidence[0], second, evidence[1]))), WHY))
    none = () if lead.gain >= NO_GAIN else _gain_or_why_none(analysis)
    smaller = [each for each in of_run if each not in larger]
    sentences = (*map(finding_sentence, larger), *why, *none, *map(finding_sentence, smaller), left_out)
    return tuple(filter(None, dict.fromkeys(sentences)))


def _gain_or_why_none(analysis: Analysis) -> Iterator[str]:
    """Yield the first gain that a verdict tells, else why none is predicted; nothing where nothing was measured."""
    if has_no_steps(analysis) or not analysis.outcome:
        return
    sure = told(analysis.findings)
    if gains := [each for each in sure if each.gain >= NO_GAIN]:
        yield finding_sentence(gains[0])
        return
    if any(each.rule.code and not each.gains for each in sure) or any(
        each.known_cure and is_worth(each) for each in sure
    ):
        reason = "a recording does not tell how much such a change gives"
    elif any(each.is_growth for each in of_whole_run(analysis.findings)):
        reason = "a recording does not tell how far the growth goes"
    elif any(each.has_cure and not each.gains and not each.costs.keys() <= set(CORELESS_CATEGORIES) for each in sure):
        reason = "a recording does not tell what such a change gives"
    elif analysis.info.level == "light" and not analysis.is_trace:
        reason = "level light does not record where the time goes"
    elif not_sampled(analysis):
        reason = "without stack samples, no cause can be told"
    elif not analysis.is_trace and is_too_short(analysis):
        reason = "stack samples of usual steps are too few to tell a cause"
    elif any(each.gains for each in sure):
        reason = f"no rule found a cause whose removal would make the program {NO_GAIN - 1:.0%} faster"
    else:
        reason = "no rule found a cause that can be removed"
    unsure = [each for each in analysis.findings if each.has_cure and each.confidence is Confidence.LOW]
    if perhaps := next((each for each in unsure if each.gain >= WORTH_LEADING and not each.overlaps), None):
        amount = f"{share_text(perhaps.share, perhaps.low, perhaps.high)} of {whole_text(perhaps)}"
        yield f"Perhaps this is a cause: {title(perhaps)}{first_place_text(perhaps)}, {amount}."
        reason = "samples are too few to be sure of a cause"
    yield f"No gain is predicted: {reason}."


def not_sampled(analysis: Analysis) -> str:
    """Tell why no stack could be sampled, such as that py-spy is not installed; empty where one could."""
    status = analysis.info.collector("stacks")
    is_refused = status is not None and status.state == "unavailable" and not analysis.samples
    return status.reason if status and is_refused else ""


def is_too_short(analysis: Analysis) -> bool:
    """Tell whether a longer recording of the same kind would tell more."""
    return _is_much_unknown(analysis) or 0 < analysis.samples < MIN_SAMPLES


def times_too_short(analysis: Analysis) -> int | None:
    """How many times as long a recording has enough stack samples; None if that is not known: there is none, or much
    time is unknown, which more samples need not explain."""
    samples = analysis.samples
    if not 0 < samples < MIN_SAMPLES or _is_much_unknown(analysis):
        return None
    return next(times for times in (2, 5, 10, 20, MIN_SAMPLES) if times * samples >= MIN_SAMPLES)


def run_context(analysis: Analysis, devices: str, name: str, time: str) -> tuple[str, ...]:
    """`train`, `119 steps of AdamW`, `CPU, 2 cores`, `2026-11-22 11:03 UTC`"""
    cores = analysis.info.host.get("cores")
    where = f"{devices}, {words.plural(cores, 'core')}" if isinstance(cores, int) else devices
    ranks = f"{analysis.job_size} ranks" if analysis.job_size > 1 else ""
    is_whole = analysis.ranks is not None and len(analysis.ranks.ranks) == analysis.job_size
    is_plain = is_plain_python(analysis.info.argv) and not analysis.info.label  # recordings of single ranks have one
    if ranks and analysis.info.state != "attached" and is_whole and is_plain:
        ranks += f", which {name} starts itself"  # so that its command needs no launcher
    step, steps = analysis.measures.get("step_time"), ""
    if step is not None and step.value is not None and analysis.step is not None:
        kind = analysis.step.kind
        steps = words.plural(step.n, "step")
        if kind in (StepKind.WHOLE_RUN, StepKind.WHOLE_TRACE):
            steps = analysis.step.label
        elif kind in (StepKind.OPTIMIZER, StepKind.LOADER, StepKind.BACKWARD):
            steps = f"{step.n:,} {analysis.step.label}"
    return tuple(filter(None, (name, steps, where, ranks, time)))


def strip_label(side: ReportSide, seconds_per_step: float, *, compared: bool) -> str:
    """`A step now, on average: 28.4 ms`, `A step of rank 1 now, ...`; of a side, how much recording slows it."""
    analysis = side.detailed
    ledger = analysis.ranks
    of = f" of {side.label}" if compared else f" of rank {ledger.analysed}" if ledger and analysis.job_size > 1 else ""
    slowdown = side.slowdown.value if side.slowdown else None
    slowed = f", {ratio(slowdown)} as long as without recording" if compared and slowdown and slowdown > 1 else ""
    return f"A step{of}{' now' * (not compared)}, on average: {seconds(seconds_per_step)}{slowed}"


def waiting_label(rank: RankActivity, late: RankActivity) -> str:
    """`A step of rank 0, which waits for rank 1, on average: 95.6 ms`"""
    step = seconds(sum(rank.categories.values()))
    return f"A step of rank {rank.rank}, which waits for rank {late.rank}, on average: {step}"


def strip_change(finding: Finding, after: float) -> str:
    """`after the first change: about 17.3 ms`"""
    gain = finding.gains[0]
    how = "at most" if gain.is_least else "at least about" if gain.is_most else "about"
    text = f"{how} {seconds(after)}"
    if gain.method is GainMethod.KNOCK_OUT and not gain.is_least:
        text = f"{seconds(after)}, as measured"
    return f"after the first change: {text}"


def place_text(site: Site, lines: Sequence[int]) -> str:
    """`train.py:14 in Images.__getitem__()`, `decode.py:46-58 in DecodeTokens.token()`"""
    where = words.site_text(site)
    if len(lines) > 1:
        where = f"{words.file_name(site)}:{min(lines)}-{max(lines)}"
    return where if site.function in ("", "<module>") else f"{where} in {words.function_name(site)}"


NO_LINES_IN_TRACE: Final = "the trace has no calls of Python functions"
IDLE_SHARES: Final = "Shares show how long the device is idle there, whatever the cause"
WITH_STACK: Final = f"{IDLE_SHARES}. torch.profiler records calls of Python functions with with_stack=True."
ONLY_HOST_LINES: Final = "the device is busy, and the lines of a trace are those of the host"


def trace_has_lines(analysis: Analysis) -> bool:
    """Tell whether a trace tells lines: it does where it was recorded with the calls of Python functions."""
    return bool(analysis.call_sites) or any(row.site is not None for row in analysis.idle)


# ---------------------------------------------------------------- chips


def run_chips(analysis: Analysis) -> tuple[Chip, ...]:
    """Tell the speed now and after the first change, doubts, and how much was recorded."""
    return tuple(filter(None, (_speed(analysis), *_doubts(analysis), _observed(analysis))))


def _speed(analysis: Analysis) -> Chip | None:
    measure = next((each for name in RATES if (each := analysis.measures.get(name)) and each.value), None)
    if measure is None or measure.value is None or has_no_steps(analysis):
        return None
    now = rate(measure.value, measure.unit)
    lead = lead_finding(analysis)
    if lead is None or not NO_GAIN <= lead.gain <= MOST_FACTOR:
        return Chip(now)
    number, _, unit = now.rpartition(" ")
    best = rate(measure.value * lead.gains[0].factor, unit)
    return Chip(f"{number} → {how_sure(lead.gains[0])}{best}", "good")


def _observed(analysis: Analysis) -> Chip | None:
    step = analysis.measures.get("step_time")
    samples = analysis.samples
    if step is None or step.value is None:
        return None
    steps = words.plural(step.n, "step") if not has_no_steps(analysis) else ""
    if steps and step.n < USUAL_STEPS:
        why = f"{USUAL_STEPS} measured steps are needed to tell what recurs in each step."
        return Chip(f"only {steps}: recurrence unknown", "warning", why)
    if 0 < samples < MIN_SAMPLES:
        few = f"Shares of lines need {MIN_SAMPLES} stack samples: record for longer."
        return Chip(f"only {words.plural(samples, 'stack sample')}", "warning", few)
    seen = ", ".join(filter(None, (steps, words.plural(samples, "stack sample") if samples else "")))
    return Chip(seen) if seen else None


def _doubts(analysis: Analysis) -> Iterator[Chip]:
    if early := ended_early(analysis):
        yield Chip("ended early", "warning", early)
    if damage := [warning for warning in analysis.warnings if warning.code in DAMAGE]:
        file = PurePath(str(damage[0].values.get("file", ""))).name
        name = "the run never ended" if damage[0].code == DAMAGE[0] else f"damaged: {file or 'a part of the run'}"
        yield Chip(name, "warning", f"{'; '.join(group_warnings(damage)[:2])}. All figures are of the rest.")
    if load := loaded_machine(load_warnings(analysis.warnings)):
        other = any(notice.code == LOADED_MACHINE[0] for notice in analysis.warnings)
        name = "other programs took CPU" if other else "shared machine"
        yield Chip(name, "warning", load)
