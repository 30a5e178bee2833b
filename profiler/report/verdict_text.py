"""Makes sentences of the verdict on a run, and of what limits a running program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import HostState
from profiler.analyse.model.finding import Finding
from profiler.analyse.model.host import Driver, SpikeLine, Spikes, ThreadActivity
from profiler.analyse.model.measures import MIN_SAMPLES, UNATTRIBUTED
from profiler.core.units import nth, seconds, share, significant
from profiler.diagnose.model import (
    BUSY_DEVICE,
    NEARLY_ALL,
    WORTH_NAMING,
    RunDiagnosis,
    RunVerdict,
    UnknownShare,
    is_large_of_run,
    is_worth,
)
from profiler.report import text as words
from profiler.report.category_text import CATEGORIES, STAGES
from profiler.report.finding_text import finding_sentence, gain_text, left_out_text, of_whole_run, told
from profiler.report.notices import describe
from profiler.report.rank_text import at_function, rank_sentences


@dataclass(frozen=True, slots=True)
class Statement:
    """A verdict: its headline, and further sentences."""

    headline: str
    details: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(filter(None, (self.headline, *self.details)))


def with_verdict(analysis: Analysis, diagnosis: RunDiagnosis) -> Analysis:
    """`analysis` with its verdict as sentences."""
    statement = run_statement(diagnosis)
    return replace(
        analysis,
        verdict=statement.text,
        headline=statement.headline,
        details=statement.details,
        unknown_reason=f"{words.capitalized(_why_unknown(diagnosis.unknown))}." if diagnosis.unknown else "",
        outcome=diagnosis.verdict.value,
        outcome_share=diagnosis.share,
    )


def run_statement(run: RunDiagnosis) -> Statement:
    """Why the run is slow, or that it is not: first which rank makes the others wait, then the findings, and what is
    known of the run as a whole."""
    findings, ranks = told(run.findings), run.ranks
    late = [each for each in findings if ranks and ranks.late is not None and each.values.get("rank") == ranks.late]
    named = [each for each in findings if each not in late]
    shown = [_sentence(each, run) for each in named]
    state, *notes = [*_RUN[run.verdict](run)] or [""]
    of_run = map(finding_sentence, of_whole_run(run.findings))
    # of a device the finding says what it costs, and the next sentence how busy the device was
    is_busy = run.verdict in BUSY_DEVICE and findings and not is_worth(findings[0])
    if is_busy or run.verdict is RunVerdict.DEVICE_UNRECORDED:
        shown = ["", *shown]
    steps, outside = _outside(run)
    is_outside = any(each.is_part_of_run and is_large_of_run(each) for each in run.findings[:1])
    if is_outside:
        sentences = [outside, steps, *shown[:1], state, *of_run, *shown[1:], *notes]
    else:
        sentences = [*shown[:1], state, *of_run, " ".join(filter(None, (steps, outside))), *shown[1:], *notes]
    sentences += [*filter(None, map(left_out_text, named))][:1]
    sentences = [*filter(None, sentences)]
    if ranks is not None and ranks.straggler:
        if sentences:
            sentences[0] = f"On rank {ranks.analysed}: {sentences[0]}"
        sentences = rank_sentences(ranks, _late_gain(late[0]) if late else "", sentences)
    elif ranks is not None:
        sentences += rank_sentences(ranks)
    headline, *details = filter(None, sentences)
    return Statement(headline, tuple(details))


def _late_gain(finding: Finding) -> str:
    """`With equal work on each rank: about 1.2× as fast.`; of what only that rank does, the gain of leaving it out."""
    if not finding.gains:
        return ""
    cured = "Without that work" if finding.gains[0].is_most else "With equal work on each rank"
    return f"{cured}: {gain_text(finding, ' as fast')}."


def _sentence(finding: Finding, run: RunDiagnosis) -> str:
    """Return a finding in a sentence; of time of which nothing is known, the reason too."""
    if finding.rule.name == UNATTRIBUTED and run.unknown:
        return _unknown(run.unknown)
    step = "of the trace" if run.is_whole_trace else ""
    return finding_sentence(finding, step)


def _outside(run: RunDiagnosis) -> tuple[str, str]:
    """Tell how much of the run its steps are, and what took most of the rest; both are empty where that is little."""
    part = next((each for each in run.findings if each.is_part_of_run), None)
    if run.verdict is RunVerdict.NO_STEP or part is None:
        return "", ""
    return f"The measured steps take {share(run.steps_share)} of the run.", finding_sentence(part)


_SAME_SHARE: Final = 0.95
"""If the share at the line is at least this part of the share of the state, only one number is shown."""


def _thread_state(thread: ThreadActivity | None) -> str:
    assert thread is not None
    at_site = thread.share_at_site
    here = f", {share(at_site)}" if at_site < _SAME_SHARE * thread.share else ""
    was = f"{thread.process} was {words.THREAD_STATES[thread.state]}"
    return f"{was} {share(thread.share)} of the time{here}{words.at(thread.site)}"


def _idle_device(run: RunDiagnosis) -> Iterable[str]:
    was_idle = "had no recorded activity" if run.earlier else "was idle"
    yield f"The {run.device} {was_idle} {share(run.share)} of the time."
    if any(
        (row.state is HostState.BLOCKED_IN_CALL and row.seconds_per_step >= LONG_WAIT_S * row.gaps_per_step > 0)
        for each in told(run.findings)
        for row in each.values.get("rows", ())
    ):
        yield "The trace does not hold what the host waited for."
    if run.earlier:
        yield (
            f"{share(run.earlier)} of the time passed before its first activity, while work was submitted or the host "
            "waited for it. It may have run work from before the trace began."
        )
    if run.reason:
        yield f"There is no cause to name for its idle time: {describe(run.reason)}."
    elif not told(run.findings):
        yield f"There is no cause to name{' beside it' * bool(run.earlier)}: none takes as much as 5% of the time."


LONG_WAIT_S: Final = 0.01
"""A call that waits for so long while the device does nothing waits for something that is not in the trace: the call
itself ends some 10 µs after the device."""


def _busy_device(run: RunDiagnosis) -> Iterable[str]:
    busy = f"The {run.device} was busy {words.part_of_time(run.share, run.peak_share)}"
    if run.computing is None:
        yield f"{busy}: the host is not what limits this run."
    elif not run.computing:
        yield f"{busy}, but no kernel computed."
    elif run.computing < MUCH_COMPUTING * run.share:
        yield f"{busy}, but kernels computed only {share(run.computing)} of the time."
    else:
        yield f"{busy}, and kernels computed {share(run.computing)} of the time: the host is not what limits this run."
    if not told(run.findings) and run.computing is not None:
        yield "There is no cause to name."


MUCH_COMPUTING: Final = 0.8
"""Share of a device's busy time from which it mostly computes."""


def _busy_by_nvml(run: RunDiagnosis) -> Iterable[str]:
    yield (
        f"The {run.device} was busy {share(run.share)} of the time according to NVML, which does not see short gaps: "
        "the host is not what limits this run."
    )
    if run.peak_share is not None:
        yield f"Its arithmetic takes {share(run.peak_share)} of the card's peak."


def _step(run: RunDiagnosis) -> Iterable[str]:
    """Tell what else is known of a step: how much is unknown, whether the rest is small, and what long steps do."""
    findings = told(run.findings)
    # where there is a finding, it says what the step is spent on
    yield "" if findings or run.unknown else "The stack samples are too few to tell what takes the time of a step."
    is_unknown = any(each.rule.name == UNATTRIBUTED for each in findings)
    if run.unknown and not is_unknown:
        yield _unknown(run.unknown)
    elif run.unknown and run.unknown.in_trace and len(findings) == 1:
        yield "There is no cause to name."
    elif len(findings) == 1 and not run.unknown and run.verdict is RunVerdict.COMPUTING:
        is_sure = all(each in findings or each.is_of_run for each in run.findings)
        few = "The stack samples are too few to tell what takes the rest."
        yield f"No other part takes {WORTH_NAMING:.0%} of it." if is_sure else few
    if run.driver:
        yield _driver(run.driver)
    sites = {site for finding in findings for site in finding.sites}
    if run.spikes and not any(line.site in sites for line in run.spikes.lines):
        yield spikes_sentence(run.spikes)


def _unknown(unknown: UnknownShare) -> str:
    state = "uncertain" if unknown.site else CATEGORIES[UNATTRIBUTED].label
    step = "the trace" if unknown.in_trace else "each step"
    return f"What ran in {share(unknown.share)} of {step} is {state}: {_why_unknown(unknown)}."


def _why_unknown(unknown: UnknownShare) -> str:
    if unknown.in_trace:
        return "the trace has no event of the main thread then"
    if unknown.samples >= MIN_SAMPLES:
        hint = f"{_largest_part(unknown)}, but " if unknown.site else ""
        return f"{hint}stack samples do not show whether Python ran or waited for the device"
    if unknown.site:
        return f"by only {words.plural(unknown.samples, 'stack sample')}, {_largest_part(unknown)}; record for longer"
    if unknown.samples:
        return f"{words.too_few(unknown.samples)} to tell; record for longer"
    if unknown.has_samples_outside:
        return "no stack sample lies within the measured steps; record for longer"
    return "there are no stack samples"


def _largest_part(unknown: UnknownShare) -> str:
    """`the largest part is at train.py:9 (31%)`"""
    part = "nearly all of it" if unknown.site_share >= NEARLY_ALL * unknown.share else "the largest part"
    return f"{part} is{words.at(unknown.site)} ({share(unknown.site_share)})"


def _driver(driver: Driver) -> str:
    """`99% of each step runs below train.py:5: 85% in rl.algo.collect_rollouts().`"""
    functions = ", ".join(f"{share(part)} in {name}()" for name, part in driver.functions[-2:])
    return f"{share(driver.share)} of each step runs below{words.at(driver.site).removeprefix(' at')}: {functions}."


_RUN: Final[Mapping[RunVerdict, Callable[[RunDiagnosis], Iterable[str]]]] = {
    RunVerdict.NOTHING_MEASURED: lambda run: [f"Nothing was measured: {describe(run.reason)}."],
    RunVerdict.THREADS_ONLY: lambda run: [f"No step was seen; {_thread_state(run.thread)}."],
    RunVerdict.NO_STEP: lambda run: [
        "No training step was seen.",
        *(finding_sentence(each) for each in run.findings if each.is_part_of_run),
    ],
    RunVerdict.DEVICE_IDLE: _idle_device,
    RunVerdict.DEVICE_IDLE_UNEXPLAINED: lambda run: [
        f"The {run.device} was idle {share(run.share)} of the time.",
        f"The reason was not measured: {describe(run.reason)}.",
    ],
    RunVerdict.DEVICE_BUSY: _busy_device,
    RunVerdict.DEVICE_BUSY_SAMPLED: _busy_by_nvml,
    RunVerdict.DEVICE_UNRECORDED: lambda run: [
        f"{words.capitalized(describe(run.reason))}.",
        "So it does not tell whether the host or the device limits the steps.",
    ],
    RunVerdict.COMPUTING: _step,
    RunVerdict.CAUSE: _step,
    RunVerdict.UNKNOWN_STEP: _step,
    RunVerdict.STEP_TIME_ONLY: lambda run: [
        f"A step takes {seconds(run.seconds)} on average; record with --level standard to see where it goes."
    ],
    RunVerdict.UNKNOWN: lambda run: [
        f"How busy the device was is not known: {describe(run.reason)}.",
        "Where the host's time went was not recorded.",
    ],
}


# ---------------------------------------------------------------- long steps


_WHOLE_TIMES: Final = 10
"""Factors from this size on are shown without decimals."""


def spikes_sentence(spikes: Spikes) -> str:
    """`Every 10th step takes about 26 times as long; the extra time (72% of all) is at train.py:36, in evaluate().`"""
    often = f"Every {nth(spikes.every)} step" if spikes.every else f"{spikes.count:,} of {spikes.steps:,} steps"
    take = "take" if not spikes.every and spikes.count > 1 else "takes"
    times = f"{spikes.times:,.0f}" if spikes.times >= _WHOLE_TIMES else significant(spikes.times, 2)
    return f"{often} {take} about {times} times as long; {_extra_time(spikes)}."


def _extra_time(spikes: Spikes) -> str:
    extra = f"the extra time ({share(spikes.share)} of all)"
    if spikes.stage:
        mostly = "" if spikes.stage_share >= NEARLY_ALL else "mostly "
        where = _at_line(spikes.lines[0]) if spikes.lines else ""
        return f"{extra} is {mostly}{STAGES[spikes.stage]}{where}"
    if not spikes.enough:
        few = words.too_few(spikes.samples) if spikes.samples else "no stack sample"
        return f"{few} {'to tell' if spikes.samples else 'tells'} at which lines {extra} is"
    if not spikes.lines:
        return f"{extra} is at no line in particular: the machine was slow, or these steps had more of the same work"
    if spikes.lines[0].share >= NEARLY_ALL:
        return f"{extra} is{_at_line(spikes.lines[0])}"
    return f"of {extra}, {words.listed([f'{share(line.share)} is{_at_line(line)}' for line in spikes.lines])}"


def _at_line(line: SpikeLine) -> str:
    if line.calls:
        return f"{words.at(line.site)}, which calls {line.calls}()"
    return at_function(line.site)
