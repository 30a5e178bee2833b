"""Makes sentences of the verdict on a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from profiler.analyse.finding import Finding
from profiler.analyse.ledger.cells import Owner
from profiler.analyse.model import (
    AFTER_OPTIMIZER,
    BETWEEN_BATCHES,
    COMMUNICATING,
    COPYING,
    CORELESS_CATEGORIES,
    INTERRUPTIONS,
    MARKED_DATA,
    MIN_SAMPLES,
    RECEIVE,
    THE_LOADER,
    UNATTRIBUTED,
    UPDATE,
    Analysis,
    Cause,
    HostState,
    IdleBlame,
    InputPart,
    Location,
    LocationKind,
    SpikeLine,
    Spikes,
    Stage,
    ThreadActivity,
)
from profiler.core.units import nth, seconds, share, significant
from profiler.diagnose.model import (
    NAMED,
    WORTH_NAMING,
    RunDiagnosis,
    RunPart,
    RunVerdict,
    UnknownShare,
)
from profiler.report.category_text import CATEGORIES, category_label
from profiler.report.finding_text import (
    WIDE,
    finding_sentence,
    gain_text,
    is_wide,
    leading,
    left_out_text,
    minor,
    of_whole_run,
    share_text,
)
from profiler.report.rank_text import (
    balance_sentence,
    collective_sentences,
    function_of_program,
    straggler_sentence,
)
from profiler.report.text import (
    THREAD_STATES,
    at,
    capitalized,
    describe,
    file_name,
    function_name,
    host_state,
    input_part,
    listed,
    part_of_time,
    plural,
    too_few,
)
from profiler.run.model import Site

_PLACELESS: Final = (*CORELESS_CATEGORIES, UNATTRIBUTED)
"""Categories that no line of the program causes."""
_PHASES: Final = (UPDATE, AFTER_OPTIMIZER, *INTERRUPTIONS)
"""Causes that are phases of a step: their time is also time of categories."""
_UNNAMED_PARTS: Final = (THE_LOADER, MARKED_DATA, BETWEEN_BATCHES)
"""Parts of data loading that say nothing about its work."""
_PARTS: Final[Mapping[str, str]] = {"dataset": "the dataset", "collate": "collating", "send": "sending batches"}
"""Part of a loader's time -> its name in a sentence."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A verdict: its headline, and further sentences."""

    headline: str
    details: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it in one line."""
        return " ".join(filter(None, (self.headline, *self.details)))


def with_verdict(analysis: Analysis, diagnosis: RunDiagnosis) -> Analysis:
    """`analysis` with its verdict as sentences, and the causes of its diagnosis."""
    statement = run_statement(diagnosis)
    return replace(
        analysis,
        verdict=statement.text,
        headline=statement.headline,
        details=statement.details,
        unknown_reason=_unknown_sentence(diagnosis.unknown) if diagnosis.unknown else "",
        outcome=diagnosis.verdict.value,
        outcome_share=_outcome_share(diagnosis),
        causes=diagnosis.causes,
    )


def _outcome_share(diagnosis: RunDiagnosis) -> float:
    """What the outcome is of a step: where most of it is unknown, that part."""
    if diagnosis.unknown and (diagnosis.verdict is RunVerdict.UNKNOWN_STEP or not diagnosis.share):
        return diagnosis.unknown.share
    return diagnosis.share


def run_statement(diagnosis: RunDiagnosis) -> Statement:
    """Why the run is slow, or that it is not: the findings that lead, then where the rest of a step goes, then smaller
    findings where none leads. First of all comes which rank makes the others wait."""
    leaders, ranks = leading(diagnosis.findings), diagnosis.ranks
    # of a busy device, the sentence that the host is not the limit is enough
    apart = of_whole_run(diagnosis.findings)
    others = () if leaders or diagnosis.verdict is RunVerdict.DEVICE_BUSY else minor(diagnosis.findings)
    others = tuple(each for each in others if each not in apart)
    rest = _without(diagnosis, (*leaders, *others))
    late = [each for each in leaders if ranks and ranks.straggler and each.values.get("rank") == ranks.straggler.rank]
    told = [each for each in leaders if each not in late]
    first, *further = [*map(finding_sentence, told), *_RUN[diagnosis.verdict](rest)] or [""]
    sentences = [first, *outside_sentences(diagnosis), *map(finding_sentence, apart), *further]
    sentences += map(finding_sentence, others)
    sentences += [*filter(None, map(left_out_text, (*told, *others)))][:1]
    sentences = [*filter(None, sentences)]
    if ranks is not None:
        straggler, balance = straggler_sentence(ranks), balance_sentence(ranks)
        if straggler:
            gain = f"With equal work on each rank: {gain_text(late[0], ' as fast')}." if late else ""
            sentences = [straggler, gain, balance, f"On rank {ranks.analysed}: {sentences[0]}", *sentences[1:]]
            sentences += collective_sentences(ranks)
        else:
            sentences += [*collective_sentences(ranks), balance]
    headline, *details = filter(None, sentences)
    return Statement(headline, tuple(details))


def _without(run: RunDiagnosis, findings: Sequence[Finding]) -> RunDiagnosis:
    """The diagnosis without the causes and the long steps that these findings explain."""
    sites = {site for finding in findings for site in finding.sites}
    explained: dict[str, float] = {}
    for finding in findings:
        for name, cost in finding.costs.items():
            explained[name] = explained.get(name, 0.0) + cost / finding.seconds * finding.recorded_share

    def is_explained(cause: Cause) -> bool:
        if cause.category in _PHASES:
            return cause.location is not None and cause.location.site in sites
        share = explained.get(cause.category, 0.0)
        return share > 0 and (share >= _MOSTLY * cause.share or cause.share - share < NAMED)

    spikes = run.spikes
    if spikes and any(line.site in sites for line in spikes.lines):
        spikes = None
    causes = tuple(cause for cause in run.causes if not is_explained(cause))
    return replace(run, causes=causes, spikes=spikes, findings=tuple(findings))


def _unseen(run: RunDiagnosis) -> Iterable[str]:
    """`No training step was seen.` `Importing torch at train.py:2 took 2.1 s, 62% of the run.`"""
    yield "No training step was seen."
    imported = set[str]()
    for part in run.parts:
        yield _part(part, again=part.package in imported)
        imported.add(part.package if part.owner is Owner.IMPORT else "")


def _part(part: RunPart, *, again: bool = False) -> str:
    """`Code of scipy at train.py:2 (scipy.stats.ks_2samp) took 2.1 s, 62% of the run.`"""
    if part.owner is Owner.IMPORT:
        what = f"Importing {'more of ' * again}{part.package}"
    elif part.kind:
        what = capitalized(category_label(part.kind))
    else:
        what = f"Code of {part.package}" if part.package else _CODE[part.owner]
    inside = f" ({part.function})" if part.function else ""
    return f"{what}{at(part.site)}{inside} took {seconds(part.seconds)}, {share(part.share)} of the run."


_CODE: Final = {
    Owner.USER: "The program's own code",
    Owner.TORCH: "Code of torch",
    Owner.PYTHON: "Code of Python's standard library",
}


def outside_sentences(run: RunDiagnosis) -> Iterable[str]:
    """What took most of a run of which the measured steps are a small part."""
    if run.verdict is not RunVerdict.NO_STEP and run.parts:
        yield f"The measured steps are {share(run.steps_share)} of the run. {_part(run.parts[0])}"


_SAME_SHARE: Final = 0.95
"""If the share at the line is at least this part of the share of the state, only one number is shown."""


def _thread_state(thread: ThreadActivity | None) -> str:
    assert thread is not None
    at_site = thread.share_at_site
    here = f", {share(at_site)}" if at_site < _SAME_SHARE * thread.share else ""
    return (
        f"{thread.process} was {THREAD_STATES[thread.state]} {share(thread.share)} of the time{here}{at(thread.site)}"
    )


def _idle_cause(cause: Cause) -> str:
    """`33% of the time it was idle in copy calls (20% in the d2h call at train.py:61).`"""
    if cause.category in (COMMUNICATING, COPYING):
        return _busy_cause(cause)
    idle = f"{share(cause.share)} of the time it was idle"
    notice = IDLE_NOTICES[cause.notice.code] if cause.notice else ""
    meanwhile = notice or CATEGORIES[cause.category].idle
    if cause.places:
        places = (f"{share(row.share_of_wall)} {host_state(row)}{at(row.site)}" for row in cause.places)
        unknown = any(map(_waits_for_unrecorded_work, cause.places))
        return f"{idle} {meanwhile} ({', '.join(places)}).{' The trace does not hold what it waited for.' * unknown}"
    if notice or cause.blame is None or cause.blame.share_of_wall <= _MOSTLY * cause.share:
        return f"{idle} {meanwhile}{_in_parentheses(cause)}."
    row = f"{host_state(cause.blame)}{at(cause.blame.site)}"
    if share(cause.blame.share_of_wall) == share(cause.share):
        return f"{idle} {row}."
    return f"{idle} {meanwhile} ({share(cause.blame.share_of_wall)} {row})."


LONG_WAIT_S: Final = 0.01
"""A call that waits for so long while the device does nothing waits for something that is not in the trace: the call
itself ends some 10 µs after the device."""


def _waits_for_unrecorded_work(row: IdleBlame) -> bool:
    return row.state is HostState.BLOCKED_IN_CALL and row.seconds_per_step >= LONG_WAIT_S * max(1.0, row.gaps_per_step)


IDLE_NOTICES: Final[Mapping[str, str]] = {
    "between-operators": "while the host ran no operator and made no call: in Python code, or waiting",
    "setup-calls": "while the host was in calls that allocate or free memory or set the device up",
}
"""Notices of causes of idle time -> what the host did meanwhile."""


def _busy_cause(cause: Cause) -> str:
    """`66% of the time it communicated while no kernel computed.`"""
    if cause.category == COMMUNICATING:
        return f"{share(cause.share)} of the time it communicated while no kernel computed."
    kinds = [
        f"{share(part.exposed)} {_COPIES[part.kind]}" + (f"'s {part.memory} memory" if part.memory else "")
        for part in cause.parts
    ]
    copied = f"{share(cause.share)} of the time it copied while no kernel computed"
    is_pageable = any(part.memory == "pageable" for part in cause.parts)
    waits = " The host waits for copies of pageable memory." if is_pageable else ""
    return f"{copied}{f' ({listed(kinds)})' if kinds else ''}.{waits}"


_COPIES: Final[Mapping[str, str]] = {
    "h2d": "from the host",
    "d2h": "to the host",
    "d2d": "within the device or between devices",
}


def _in_parentheses(cause: Cause) -> str:
    location = cause.location
    return f" ({share(location.share * cause.share)}{at(location.site)})" if location else ""


def _idle_device(run: RunDiagnosis) -> Iterable[str]:
    was_idle = "had no recorded activity" if run.earlier else "was idle"
    yield f"The {run.device} {was_idle} {share(run.share)} of the time."
    yield from map(_idle_cause, run.causes)
    if run.earlier:
        yield (
            f"{share(run.earlier)} of the time lies before its first activity, with work already submitted or the host "
            "waiting for it: it may have run work from before the trace began."
        )
    if run.reason:
        yield f"There is no cause to name for its idle time: {describe(run.reason)}."
    elif not run.causes and not run.findings:
        yield f"There is no cause to name{' beside it' * bool(run.earlier)}: none takes as much as 5% of the time."


def _busy_device(run: RunDiagnosis) -> Iterable[str]:
    busy = f"The {run.device} was busy {part_of_time(run.share, run.peak_share)}"
    if run.computing is None:
        yield f"{busy}: the host is not what limits this run."
    elif not run.computing:
        yield f"{busy}, but no kernel computed."
    elif run.computing < MUCH_COMPUTING * run.share:
        yield f"{busy}, but kernels computed only {share(run.computing)} of the time."
    else:
        yield f"{busy}, and kernels computed {share(run.computing)} of the time: the host is not what limits this run."
    yield from map(_idle_cause, run.causes)
    if not run.causes and not run.findings and run.computing is not None:
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
    yield from (_cause(cause, "of each step ") for cause in run.causes)


def _step(run: RunDiagnosis) -> Iterable[str]:
    """The largest part of the step, then the others; what is not known comes first where it is larger than these."""
    leads = run.verdict is RunVerdict.COMPUTING
    step = "of the trace" if run.is_whole_trace else "of each step"
    known, *notes = _overlaps(run)
    parts = [
        _cause(cause, f"{step} " * (not leads and not number), note)
        for number, (cause, note) in enumerate(zip(run.causes, notes, strict=True))
    ]
    is_sampled = not (run.unknown and run.unknown.is_whole)
    amount = share_text(run.share, run.low, run.high)
    computing = f"{'Computing takes' if is_sampled else 'Backward passes and updates take'} {amount}"
    place = _place(run.operators) if run.operators and not run.driver else ""
    if leads:
        nothing = f"; no other part takes {WORTH_NAMING:.0%} of it"
        if not run.is_rest_small or (run.low is not None and run.share - run.low > WIDE):
            nothing = "; the stack samples are too few to tell what takes the rest"
        yield f"{computing} {step}{place}{nothing if not (parts or run.unknown or run.findings) else ''}."
    unknown = _unknown(run.unknown, step) if run.unknown else ""
    if run.verdict is RunVerdict.UNKNOWN_STEP:
        yield unknown
        if run.unknown and run.unknown.in_trace and not parts and not run.findings:
            yield "There is no cause to name."
    yield from parts
    has_computing = leads or any(cause.category == "compute" for cause in run.causes)
    if run.share >= WORTH_NAMING and not has_computing:
        whole = f" {step}" if not parts or (not known and is_wide(run.low, run.high)) else ""
        yield f"{computing}{whole}{known if parts else ''}{place}."
    if run.verdict is not RunVerdict.UNKNOWN_STEP:
        yield unknown
    if run.driver:
        yield _driver(run.driver)
    if run.spikes:
        yield spikes_sentence(run.spikes)


_ROUNDING: Final = 0.005


def _overlaps(run: RunDiagnosis) -> list[str]:
    """What to add to the sentence on computing, then to that of each cause, because it is time of another part too.

    Waits for a core are time of the optimizer and of stages. What runs after the optimizer is time of the categories.
    """
    categories = [cause.category for cause in run.causes]
    phased = any(name in (UPDATE, *INTERRUPTIONS) for name in categories)
    after = categories.index(AFTER_OPTIMIZER) if AFTER_OPTIMIZER in categories else len(categories)
    leads = run.verdict is RunVerdict.COMPUTING
    total, notes = run.share if leads else 0.0, []
    for number, cause in enumerate(run.causes):
        if cause.category in CORELESS_CATEGORIES:
            overlaps = phased and cause.category == "core" and cause.notice is None
            notes.append(", which overlaps the other parts" if overlaps else "")
            continue
        total += cause.share
        exceeds = number > after and total > 1 + _ROUNDING and cause.category not in (UPDATE, *INTERRUPTIONS)
        notes.append(_PARTLY_AFTER if exceeds else "")
    exceeds = not leads and after < len(categories) and total + run.share > 1 + _ROUNDING
    return [_PARTLY_AFTER if exceeds else "", *notes]


_PARTLY_AFTER: Final = ", partly after optimizer.step()"


def _unknown(unknown: UnknownShare, step: str) -> str:
    state = "uncertain" if unknown.site else CATEGORIES[UNATTRIBUTED].label
    return f"What ran in {share(unknown.share)} {step} is {state}: {_why_unknown(unknown)}."


def _unknown_sentence(unknown: UnknownShare) -> str:
    """`No stack sample lies within the measured steps; record for longer.`"""
    return f"{capitalized(_why_unknown(unknown))}."


def _why_unknown(unknown: UnknownShare) -> str:
    if unknown.in_trace:
        why = "the trace has no event of the main thread then"
    elif unknown.samples >= MIN_SAMPLES:
        hint = f"{_largest_part(unknown)}, but " if unknown.site else ""
        why = f"{hint}stack samples do not show whether Python ran or waited for the device"
    elif unknown.site:
        why = f"by only {plural(unknown.samples, 'stack sample')}, {_largest_part(unknown)}; record for longer"
    elif unknown.samples:
        why = f"{too_few(unknown.samples)} to tell; record for longer"
    elif unknown.has_samples_outside:
        why = "no stack sample lies within the measured steps; record for longer"
    else:
        why = "there are no stack samples"
    return why


def _largest_part(unknown: UnknownShare) -> str:
    """`the largest part is at train.py:9 (31%)`"""
    part = "nearly all of it" if unknown.site_share >= _NEARLY_ALL * unknown.share else "the largest part"
    return f"{part} is{at(unknown.site)} ({share(unknown.site_share)})"


def _cause(cause: Cause, whole: str = "", note: str = "") -> str:
    """`61% of each step is waiting for data at train.py:44.`

    :param whole: what follows the share in the first sentence.
    :param note: what ends the sentence.
    """
    return f"{share_text(cause.share, cause.low, cause.high)} {whole}{_clause(cause)}{note}."


def cause_text(cause: Cause) -> str:
    """`39% of every step is spent in Python code`: a cause without its place."""
    return f"{share(cause.share)} of every step {_clause(replace(cause, location=None, further=()))}"


def _clause(cause: Cause) -> str:
    """What follows `12% of each step`: how the time of a cause is spent, and where."""
    place = "" if cause.category in _PLACELESS else _place(cause)
    if cause.notice is not None:
        values = dict(cause.notice.values)
        if "cores" in values:
            values["cores"] = plural(values["cores"], "core")
        return _with_place(CAUSE_NOTICES[cause.notice.code], place, **values)
    if cause.category == "input":
        return _input(cause, place)
    if cause.category == AFTER_OPTIMIZER:
        return f"runs after optimizer.step(){',' if place.startswith(' probably') else ''}{place}"
    if cause.category == UPDATE:
        return f"is spent in optimizer.step(){place}, with all that runs in it"
    if cause.category in INTERRUPTIONS:
        return f"is {_STAGES[cause.category]}{place}, with all that runs in it"
    if cause.category == "waiting" and not place:
        return f"{CATEGORIES['waiting'].step}, for an unknown reason"
    return _with_place(CATEGORIES[cause.category].step, place)


def _with_place(text: str, place: str, **values: Any) -> str:
    return (text if "{place}" in text else text + "{place}").format(place=place, **values)


CAUSE_NOTICES: Final[Mapping[str, str]] = {
    "between-operators": "is spent between operators, in Python code or waiting",
    "float64": (
        "is spent on computing, with {share:.0%} of the parameters in float64, which usually takes twice as long as "
        "float32"
    ),
    "update-with-closure": "is spent in optimizer.step(){place}, without the closure that it calls",
    "python-or-device-wait": "is spent in Python, or waiting for the device in it",
    "more-threads-than-cores": "is spent waiting for a core: torch may use {threads} threads on {cores}",
    "threads-spin": (
        "is spent waiting for a core; with OMP_WAIT_POLICY=active torch's threads stay on cores also while they wait"
    ),
    "more-threads-than-quota": (
        "is lost to throttling: torch may use {threads} threads, and the CPU quota of their group is {quota:g} cores"
    ),
    "waits-for-workers": "is spent waiting for its worker processes, whose stacks show what they do",
}
"""Notices of causes -> what follows a share of the step."""


_NEARLY_ALL: Final = 0.9
"""Share of a category's time, or of the extra time of long steps, from which the remainder is not worth mentioning."""
_MOSTLY: Final = 0.5


def _place(cause: Cause) -> str:
    """` at train.py:8, in clean()`; where that is not nearly all, ` (28% at train.py:8, in clean(), 12% at ...)`."""
    first = cause.location
    if first is not None and first.share >= _NEARLY_ALL:
        return f" {'probably ' * (first.low <= _MOSTLY)}{_place_name(first)}"
    places = [
        f"{share(place.share * cause.share)} {_place_name(place)}"
        for place in (first, *cause.further)
        if place is not None
    ]
    return f" ({'; '.join(places)})" if places else ""


def _place_name(location: Location) -> str:
    site = location.site
    if location.kind is LocationKind.CALL_PATH:
        names = (function_name(part) for part in location.path if part.function != "<module>")
        return f"in {' -> '.join(names)} ({at(site).strip().removeprefix('at ')})"
    if location.kind is LocationKind.FUNCTION:
        return f"in {function_name(site)} of {file_name(site)}"
    called = f", which calls {location.calls}()" if location.calls else ""
    if location.library:
        return f"in {location.library[-1][0]}(), called{at(site)}"
    inside = f", in {function_name(site)}" if site.function and site.function != "<module>" else ""
    return f"{at(site).strip()}{called or inside}"


def _driver(driver: Location) -> str:
    """`99% of each step runs below train.py:5: 85% in rl.algo.collect_rollouts().`"""
    functions = ", ".join(f"{share(part)} in {name}()" for name, part in driver.library[-2:])
    return f"{share(driver.share)} of each step runs below{at(driver.site).removeprefix(' at')}: {functions}."


def _input(cause: Cause, place: str) -> str:
    """A wait for loader workers, or input that the training process makes itself."""
    part = cause.loader
    if part is None:
        return f"{CATEGORIES['input'].step}{place}"
    if part.name == RECEIVE:
        return f"is spent receiving batches from the workers{place}"
    if part.name == "loader start":
        return f"is spent on starting the loader and waiting for its data{place}"
    work = "" if part.name in _UNNAMED_PARTS else f"{_part_name(part)}{_part_place(part.site)}"
    if part.where == "worker":
        return f"is spent waiting for data, which the workers make{work and f' mostly in {work}'}"
    return f"is spent on making data{place or (work and f', mostly in {work}')}"


def _part_place(site: Site | None) -> str:
    """` (Data.__getitem__(), which begins at data.py:12)`: its hook knows no other line. The slow one may differ."""
    function = function_of_program(site) if site is not None else ""
    return f" ({function}, which begins{at(site)})" if function else at(site)


def _part_name(part: InputPart) -> str:
    name = _PARTS.get(part.name, "") if part.context == "loader" else ""
    return name or input_part(part)


_RUN: Final[Mapping[RunVerdict, Callable[[RunDiagnosis], Iterable[str]]]] = {
    RunVerdict.NOTHING_MEASURED: lambda run: [f"Nothing was measured: {describe(run.reason)}."],
    RunVerdict.THREADS_ONLY: lambda run: [f"No step was seen; {_thread_state(run.thread)}."],
    RunVerdict.NO_STEP: _unseen,
    RunVerdict.DEVICE_IDLE: _idle_device,
    RunVerdict.DEVICE_IDLE_UNEXPLAINED: lambda run: [
        f"The {run.device} was idle {share(run.share)} of the time.",
        f"The reason was not measured: {describe(run.reason)}.",
    ],
    RunVerdict.DEVICE_BUSY: _busy_device,
    RunVerdict.DEVICE_BUSY_SAMPLED: _busy_by_nvml,
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


_STAGES: Final[Mapping[str, str]] = {
    Stage.EVALUATION: "evaluation",
    Stage.ROLLOUT: "the roll-out",
    Stage.NO_GRADIENTS: "work without gradients",
    Stage.COMPILE: "compilation by torch.compile",
    Stage.CHECKPOINT: "writing checkpoints",
    "loader start": "the start of a loader",
    "garbage collection": "garbage collection",
}
"""Stage of the program, or region, that recorded times show -> its name in a sentence."""


def _extra_time(spikes: Spikes) -> str:
    extra = f"the extra time ({share(spikes.share)} of all)"
    if spikes.stage:
        mostly = "" if spikes.stage_share >= _NEARLY_ALL else "mostly "
        where = _at_line(spikes.lines[0]) if spikes.lines else ""
        return f"{extra} is {mostly}{_STAGES[spikes.stage]}{where}"
    if not spikes.enough:
        few = too_few(spikes.samples) if spikes.samples else "no stack sample"
        return f"{few} {'to tell' if spikes.samples else 'tells'} at which lines {extra} is"
    if not spikes.lines:
        return f"{extra} is at no line in particular: the machine was slow, or these steps had more of the same work"
    if spikes.lines[0].share >= _NEARLY_ALL:
        return f"{extra} is{_at_line(spikes.lines[0])}"
    return f"of {extra}, {listed([f'{share(line.share)} is{_at_line(line)}' for line in spikes.lines])}"


def _at_line(line: SpikeLine) -> str:
    if line.calls:
        return f"{at(line.site)}, which calls {line.calls}()"
    module = line.site.function in ("", "<module>")
    return at(line.site) + ("" if module else f", in {function_name(line.site)}")
