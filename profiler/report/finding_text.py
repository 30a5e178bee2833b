"""Makes sentences of findings: fills the templates of their rules, and writes the line that a finding suggests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import DevicePart
from profiler.analyse.model.finding import (
    Confidence,
    Finding,
    FindingChange,
    FindingState,
    Gain,
    GainMethod,
    NotJudged,
    Place,
)
from profiler.analyse.model.input import BETWEEN_BATCHES, MARKED_DATA, RECEIVE, THE_LOADER, InputPart
from profiler.analyse.model.ledger import Period
from profiler.core.units import ratio, seconds, share, significant
from profiler.diagnose.model import (
    BUSY_DEVICE,
    DEVICE_UNSEEN,
    NEARLY_ALL,
    RECORDED_COMPUTING,
    RUNS_TRAINING,
    WORTH_NAMING,
    RunVerdict,
    is_large_of_run,
    is_worth,
)
from profiler.report import text as words
from profiler.report.category_text import rest_title
from profiler.report.cure_text import changed_line, cure_of_place, cure_of_rest, fill, without_inner
from profiler.report.notices import describe
from profiler.report.rank_text import function_of_program
from profiler.run.model import Site


@dataclass(frozen=True, slots=True)
class FindingText:
    """A finding in words."""

    title: str
    place: str
    """The lines that cause it; empty: not known."""
    evidence: tuple[str, ...]
    fix: str
    code: str
    cure_site: Site | None = None
    """That of the finding, if the fix is about it."""


def finding_text(finding: Finding) -> FindingText:
    """Return the words of a finding, from the templates of its rule."""
    rule = finding.rule
    places = words.listed([*map(words.site_text, finding.sites)]) if finding.sites else ""
    if not finding.has_cure:
        cure = cure_of_rest(finding)
        lines = tuple(words.shortened(site.source, _MOST_CODE) for site in finding.sites[:1] if site.source)
        changed = finding.cure_site if cure else None
        evidence = finding_sentence(finding), *lines, *_change_sentence(changed)
        return FindingText(title(finding).removesuffix(","), places, evidence, cure, "", changed)
    code = fill(rule.code, finding.values)
    shows = (fill(template, finding.values) for template in rule.evidence)
    *own, general = (fill(template, finding.values) for template in (*rule.fixes, rule.fix))
    cure = cure_of_place(finding) if rule.is_of_code else ""
    # the code of a rule is that of its general fix, or of one for what it recognized, but of a line's cure
    cure = cure or (finding.values.get("part_cure", "") if rule.is_of_code else "")
    is_known = bool(finding.values.get("cure")) or (bool(cure) and not any(own))
    changed = finding.cure_site if is_known else None
    if cure and is_known and changed is None and finding.places and finding.sites:
        first = finding.places[0].site  # the cure is about the line with most time
        changed = first if first.place != finding.sites[0].place else None
    return FindingText(
        title(finding),
        places,
        (*filter(None, shows), *_place_sentences(finding), *_change_sentence(changed)),
        next(filter(None, (*own, cure, general)), ""),
        (changed_line(finding) or code) if code and not is_known else "",
        changed,
    )


def _change_sentence(site: Site | None) -> Iterator[str]:
    """`The line to change is train.py:31: run.watch(model).`"""
    if site is not None:
        code = words.shortened(site.source, _MOST_CODE)
        yield f"The line to change is{words.at(site).removeprefix(' at')}{f': `{code}`' if code else ''}."


def _place_sentences(finding: Finding) -> Iterator[str]:
    """`39% of it is at train.py:29, in augkit.boxes.clip(): image, boxes = self.augment(picture)`, for each line."""
    for place in finding.places:
        code = words.shortened(place.site.source, _MOST_CODE)
        part = place.share / finding.share if finding.share else 1.0
        how_much = "All" if part >= _ALL else share(part)
        yield f"{how_much} of it is {_place_name(place)}{f': `{code}`' if code else ''}."


_ALL: Final = 0.995
"""Share of a finding's time from which a percentage would be shown as 100%."""
_MOST_CODE: Final = 120
"""Characters of a line's code in a sentence."""


def title(finding: Finding) -> str:
    """Return the cause, as a sentence without its full stop; of time that no rule explains, what it is."""
    if finding.has_cure:
        return fill(finding.rule.title, finding.values) or finding.rule.name
    loader, is_rest = finding.values.get("loader"), finding.values.get("is_rest")
    text = _input_title(loader) if loader and not is_rest else rest_title(finding.rule.name, finding.values)
    return f"The rest of {text if text.startswith('Python') else text[0].lower() + text[1:]}" if is_rest else text


def _input_title(part: InputPart) -> str:
    """`Waiting for data, which the workers make mostly in collating,`: what a loader spends most time on."""
    if part.name == RECEIVE:
        return "Receiving batches from the workers"
    if part.name == "loader start":
        return "Starting the loader and waiting for its data"
    name = _PARTS.get(part.name, "") if part.context == "loader" else ""
    work = "" if part.name in _UNNAMED_PARTS else f"mostly in {name or words.input_part(part)}{_part_place(part.site)}"
    if part.where == "worker":
        return f"Waiting for data, which the workers make{work and f' {work}'},"
    return f"Making data{work and f', {work},'}"


_UNNAMED_PARTS: Final = (THE_LOADER, MARKED_DATA, BETWEEN_BATCHES)
"""Parts of data loading that say nothing about its work."""
_PARTS: Final[Mapping[str, str]] = {"dataset": "the dataset", "collate": "collating", "send": "sending batches"}
"""Part of a loader's time -> its name in a sentence."""


def _part_place(site: Site | None) -> str:
    """` (Data.__getitem__(), which begins at data.py:12)`: its hook knows no other line. The slow one may differ."""
    function = function_of_program(site) if site is not None else ""
    return f" ({function}, which begins{words.at(site)})" if function else words.at(site)


FINDING_COLUMNS: Final = (
    *("rule", "title", "lines", "seconds", "share", "low", "high", "confidence"),
    *("gain", "gain_low", "gain_high", "method", "overlaps", "fix", "code"),
)
"""Columns of a table of findings."""


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return a finding as a row of a table: its cost, its most certain gain, and its words."""
    text, gain = finding_text(finding), finding.gains[0] if finding.gains else None
    cost = finding.seconds, finding.share, finding.low, finding.high, finding.confidence.value
    gained = (gain.factor, gain.low, gain.high, gain.method.value) if gain else (None, None, None, "")
    values = finding.rule.name, text.title, text.place, *cost, *gained, finding.overlaps, text.fix, text.code
    return dict(zip(FINDING_COLUMNS, values, strict=True))


def not_judged_text(not_judged: NotJudged) -> str:
    """`rule: reason`"""
    return f"{not_judged.rule.name}: {describe(not_judged.reason)}"


def gain_text(finding: Finding, after: str = "") -> str:
    """`about 1.6×`, or `about 1.6× (1.9× by replay)` where two ways differ; empty without a prediction.

    What `try` measured stands alone: `1.6× (measured)`.

    :param after: what follows the factor, such as ` as fast`.
    """
    if not finding.gains:
        return ""
    first, *others = finding.gains
    factor = factor_text(first) + after
    if first.method is GainMethod.KNOCK_OUT:
        return f"{factor} (measured)"
    different = [gain for gain in others if abs(gain.factor / first.factor - 1.0) > _DIFFERENT]
    beside = f" ({', '.join(f'{ratio(gain.factor)} {_WAYS[gain.method]}' for gain in different)})" if different else ""
    return f"{factor}{beside}"


def factor_text(gain: Gain) -> str:
    """`about 1.64×`; `at least 1.64×` where the cure may give more; `up to about 1.64×` where some work is needed.

    What `try` measured is `1.64×`, and a prediction of more than MOST_FACTOR `more than 100×`.
    """
    is_figure = gain.method is GainMethod.KNOCK_OUT or gain.factor <= MOST_FACTOR
    return f"{how_sure(gain)}{ratio(gain.factor)}" if is_figure else f"more than {MOST_FACTOR}×"


def how_sure(gain: Gain) -> str:
    """`at least `, `up to about `, `about `; empty where it was measured"""
    if gain.is_least:
        return "at least "
    if gain.is_most:
        return "up to about "
    return "" if gain.method is GainMethod.KNOCK_OUT else "about "


MOST_FACTOR: Final = 100
"""Largest gain that is predicted as a figure: what remains of the step is too little to be known."""

_WHY_LEAST: Final = ("the cure makes the rest of the step faster too", "files were written to memory, not to the disk")
"""Why the cure may give more than what was predicted, and than what was measured."""
_DIFFERENT: Final = 0.05
"""Relative difference of two predictions from which both are shown."""
_WAYS: Final = {
    GainMethod.BOUND: "by Amdahl's law",
    GainMethod.ESTIMATE: "by Amdahl's law",
    GainMethod.REPLAY: "by replay",
    GainMethod.KNOCK_OUT: "measured",
}


def prediction_texts(finding: Finding) -> tuple[str, ...]:
    """`about 1.6× (1.5 to 1.7×): predicted by replay.`, for each prediction."""
    texts = []
    for gain in finding.gains:
        is_figure = gain.low != gain.high and gain.factor <= MOST_FACTOR
        interval = f" ({significant(gain.low, 3)} to {ratio(gain.high)})" if is_figure else ""
        how = _METHODS[gain.method]
        how += f"; {_WHY_LEAST[gain.method is GainMethod.KNOCK_OUT]}" if gain.is_least else ""
        how += "; this assumes that all of this work is left out" if gain.is_most else ""
        texts.append(f"{factor_text(gain)}{interval}: {how}.")
    return tuple(texts)


def left_out_text(finding: Finding) -> str:
    """Tell what the shares of a report are shares of, where that differs visibly from the recorded step; else empty."""
    if finding.share - finding.recorded_share < VISIBLE:
        return ""
    took = share(finding.left_out)
    return f"Shares are of the program's own time: other programs and recording took {took} of each step."


VISIBLE: Final = 0.05
"""Difference of two shares of a step from which a reader sees that they are not the same."""
AS_FAST: Final = " as fast without it"
"""Follows the factor of a gain in a sentence."""


_METHODS: Final[Mapping[str, str]] = {
    GainMethod.BOUND: "predicted by taking this time out of the recorded step",
    GainMethod.ESTIMATE: "predicted by taking an estimate of this time out of the recorded step",
    GainMethod.REPLAY: "predicted by simulating the recorded steps with the cure",
    GainMethod.KNOCK_OUT: "measured by `try`, which ran the program without this cause",
}
"""Method of a prediction -> how it was made."""
NO_GAIN: Final = 1.05
"""Gain below which nothing is left to measure: single runs on a shared machine differ by some 5% in throughput."""


def told(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that a verdict tells, the one that it is about first."""
    return tuple(islice((each for each in findings if each.is_told), MOST_TOLD))


MOST_TOLD: Final = 5
"""Findings that a verdict has room for."""


def lead_finding(analysis: Analysis) -> Finding | None:
    """Return the finding that a report is about.

    None where nothing of a step is known, where a rank makes the others wait for a reason that no rule explains, where
    a device is busy and no finding is worth it, and where a trace lacks what the device did.
    """
    first = next((each for each in analysis.findings if each.is_told or is_large_of_run(each)), None)
    late = analysis.ranks.late if analysis.ranks else None
    if first is None or (late is not None and first.values.get("rank") != late):
        return None
    is_busy = analysis.outcome in BUSY_DEVICE and not is_worth(first)
    return None if is_busy or analysis.outcome == RunVerdict.DEVICE_UNRECORDED else first


def of_whole_run(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings about the run as a whole that cost so much of it that a verdict tells them in any case."""
    return tuple(
        each
        for each in findings
        if each.is_of_run
        and each.has_cure
        and each.seconds
        and (each.share >= WORTH_NAMING or not each.share)  # the length of the run may not be known
        and each.confidence is not Confidence.LOW
    )


def whole_text(finding: Finding, step: str = "each step") -> str:
    """Tell what the share of a finding is a share of: work in every 25th step only is no part of `step`."""
    if finding.is_growth:
        return "the steps' time, and more in a longer run"
    if finding.is_of_run:
        return "the run"
    return "the time of all steps" if finding.is_periodic else step


EVALUATION: Final = "frequent-evaluation"
"""The rule about evaluation, which runs between some of the steps."""


def finding_sentence(finding: Finding, whole: str = "", *, is_brief: bool = False) -> str:
    """`The model computes in float64 at train.py:20: 39% of each step, about 1.6× as fast without it.`

    Of time that no rule explains: `Computing takes 72% of each step (28% at model.py:8, in forward()).`

    :param whole: what the share is a share of.
    :param is_brief: leave the lines of such time out.
    """
    text, amount = title(finding), share_text(finding.share, finding.low, finding.high)
    whole = whole or f"of {whole_text(finding)}"
    if finding.is_part_of_run:
        place = f" {_place_name(finding.places[0])}" if finding.places else ""
        place += "," * ("," in place)
        when = _WHEN.get(finding.period, "") if finding.period else ""
        return f"{text}{place} took {seconds(finding.seconds)}{when}, {share(finding.share)} of the run."
    if not finding.has_cure:
        verb = "take" if finding.rule.name == RECORDED_COMPUTING and not finding.values.get("is_rest") else "takes"
        if once := finding.values.get("once"):
            amount = f"{seconds(once)}, {amount}"
        return f"{text} {verb} {amount} {whole}{'' if is_brief else places_text(finding)}."
    place = first_place_text(finding)
    if finding.is_growth:
        return f"{text}{place}: {share(finding.of_steps)} {whole}."
    if finding.is_of_run:
        return f"{text}{place}: {amount} of the run." if finding.share else f"{text}{place}."
    is_gain = finding.gains and (finding.gain >= NO_GAIN or finding.gains[0].method is GainMethod.KNOCK_OUT)
    gain = f", {gain_text(finding, AS_FAST)}" if is_gain else ""
    return f"{text}{place}: {amount} {whole}{gain}."


_WHEN: Final = {Period.BEFORE: " before the first step", Period.AFTER: " after the last step"}


def first_place_text(finding: Finding) -> str:
    """` at train.py:8`, ` at train.py:8, in fitkit.save()`: the first line, and what takes its time in a library."""
    if not finding.sites:
        return ""
    first = next((place for place in finding.places if place.site.place == finding.sites[0].place), None)
    return f" {_place_name(first)}" if first is not None and first.package else words.at(finding.sites[0])


def places_text(finding: Finding) -> str:
    """`, at train.py:8, in clean()`; where that is not nearly all, ` (28% at train.py:8, in clean(); 12% at ...)`. Of
    idle time what the host did, of copies their kinds."""
    if parts := finding.values.get("parts"):
        kinds = words.listed([f"{share(part.exposed)} {_copied(part)}" for part in parts if part.kind in _COPIES])
        return f" ({kinds})" if kinds else ""
    if rows := finding.values.get("rows"):
        return (
            f" ({'; '.join(f'{share(row.share_of_wall)} {words.host_state(row)}{words.at(row.site)}' for row in rows)})"
        )
    if finding.places and finding.places[0].share >= NEARLY_ALL * finding.share:
        return f", {_place_name(finding.places[0])}"
    places = "; ".join(f"{share(place.share)} {_place_name(place)}" for place in finding.places)
    return f" ({places})" if places else ""


_COPIES: Final[Mapping[str, str]] = {
    "h2d": "from the host",
    "d2h": "to the host",
    "d2d": "within the device or between devices",
}


def _copied(part: DevicePart) -> str:
    return _COPIES[part.kind] + (f"'s {part.memory} memory" if part.memory else "")


def where_text(finding: Finding) -> str:
    """`It is at train.py:46 (31%), in main(), and at train.py:49 (29%).`; empty where no line is known."""
    if not finding.places:
        return ""
    if finding.places[0].share >= NEARLY_ALL * finding.share:
        return f"It is {_place_name(finding.places[0])}."
    return f"It is {words.listed([f'{_place_name(place)} ({share(place.share)})' for place in finding.places])}."


def _place_name(place: Place) -> str:
    """`at train.py:8, in clean()`, `at train.py:8, mostly in rl.Model.learn()`, which another library may call, or
    which may be a hook: `at train.py:8, mostly in rl.watch(), in a hook registered at train.py:3`"""
    site, inside = place.site, without_inner(place.inside)
    own = words.function_name(site) if site.function and site.function != "<module>" else ""
    parts = [
        f"mostly in {inside}()" if inside else f"mostly in {place.package}" if place.package else own and f"in {own}"
    ]
    if place.called_by and place.package and place.package not in RUNS_TRAINING:
        parts.append(f"called by {without_inner(place.called_by)}()")
    if place.registered_at is not None:
        parts.append(f"in a hook registered{words.at(place.registered_at)}")
    return ", ".join(filter(None, (words.at(site).strip(), *parts)))


def doubt_text(finding: Finding) -> str:
    """Tell why a finding is not sure; empty where it is."""
    if finding.confidence is not Confidence.LOW:
        return ""
    if DEVICE_UNSEEN in finding.values:
        return "whether the device was busy meanwhile was not recorded"
    return "too few stack samples to be sure"


def share_text(part: float, low: float | None, high: float | None) -> str:
    """`39%`, with its interval where that is wide."""
    interval = f" ({100 * (low or 0.0):.0f} to {share(high or 0.0)})" if is_wide(low, high) else ""
    return share(part) + interval


def is_wide(low: float | None, high: float | None) -> bool:
    """Tell whether an interval is so wide that the share alone would claim too much."""
    return low is not None and high is not None and high - low > WIDE


WIDE: Final = 0.1
"""Width of an interval from which a share is shown with it."""


_STATES: Final[Mapping[FindingState, str]] = {
    FindingState.NEW: "new",
    FindingState.GREW: "costs more",
    FindingState.REMAINS: "remains",
    FindingState.SHRANK: "costs less",
    FindingState.CURED: "cured",
    FindingState.UNKNOWN: "cannot tell",
}


def state_text(change: FindingChange) -> str:
    """Tell what became of a cause from one run to another: `new`, `cured`."""
    if change.state is FindingState.UNKNOWN and change.after is not None:
        return "not named before"
    return _STATES[change.state]


def change_sentence(change: FindingChange) -> str:
    """`The training process makes its batches itself at train.py:20 (no-workers): new, 2.1 ms of each step.`"""
    finding = change.finding
    place = words.at(finding.sites[0]) if finding.sites else ""
    costs = [seconds(each.seconds) for each in (change.before, change.after) if each is not None]
    return (
        f"{title(finding)}{place} ({finding.rule.name}): {state_text(change)}, {' and then '.join(costs)} of each step."
    )
