"""Makes sentences of findings: fills the templates of their rules, and writes the line that a finding suggests."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from string import Formatter
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
from profiler.analyse.model.ledger import Owner, Period
from profiler.core.syntax import called_functions, parsed_line
from profiler.core.units import nth, ratio, seconds, share, significant, size
from profiler.diagnose.model import (
    BUSY_DEVICE,
    CODE_OF,
    DEVICE_UNSEEN,
    MOST,
    NEARLY_ALL,
    RECORDED_COMPUTING,
    RUNS_TRAINING,
    WORTH_NAMING,
    RunVerdict,
    is_large_of_run,
    is_worth,
)
from profiler.report.category_text import CODE_TITLES, STAGES, rest_title
from profiler.report.rank_text import SPENT, function_of_program, other_ranks
from profiler.report.text import (
    at,
    describe,
    file_name,
    function_name,
    host_state,
    input_part,
    listed,
    shortened,
    site_text,
)
from profiler.run.model import Site

_NEED_WORKERS: Final = frozenset({"multiprocessing_context", "persistent_workers", "prefetch_factor", "timeout"})
"""Arguments of a DataLoader that it refuses without workers."""


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
    """The words of a finding, from the templates of its rule."""
    rule = finding.rule
    places = listed([*map(site_text, finding.sites)]) if finding.sites else ""
    if not finding.has_cure:
        is_import = finding.rule.name == CODE_OF[Owner.IMPORT] and finding.values["package"] != "torch"
        cure = _OF_IMPORTS if is_import else _cure_of_place(finding) or finding.values.get("part_cure", "")
        if not cure and finding.of_steps and finding.rule.name in CODE_TITLES:
            cure = _OF_ITEMS if finding.period is Period.AFTER else f"{_OF_ITEMS} {_OF_PREPARATION}"
        lines = tuple(shortened(site.source, _MOST_CODE) for site in finding.sites[:1] if site.source)
        changed = finding.cure_site if cure else None
        evidence = finding_sentence(finding), *lines, *_change_sentence(changed)
        return FindingText(title(finding).removesuffix(","), places, evidence, cure, "", changed)
    code = _fill(rule.code, finding.values)
    shows = (_fill(template, finding.values) for template in rule.evidence)
    *own, general = (_fill(template, finding.values) for template in (*rule.fixes, rule.fix))
    cure = _cure_of_place(finding) if rule.is_of_code else ""
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
        code = shortened(site.source, _MOST_CODE)
        yield f"The line to change is{at(site).removeprefix(' at')}{f': `{code}`' if code else ''}."


def _cure_of_place(finding: Finding) -> str:
    """Choose the advice for the line that takes most of a finding's time; empty where there is none."""
    if finding.known_cure:
        return finding.known_cure
    line = finding.cure_site
    hook = next((each for each in finding.places if line is not None and each.registered_at == line), None)
    if hook is not None and finding.has_cure and hook.package not in RUNS_TRAINING:
        return _OF_HOOKS.format(package=hook.package)
    first = finding.places[0] if finding.places else None
    if first is None:
        return ""
    alike = sum(place.share for place in finding.places if place.package == first.package)
    if (alike if first.package else first.share) <= MOST * finding.share:
        return ""
    # what a library does before the steps, such as compiling, it does once
    is_library = finding.rule.name == CODE_OF[Owner.LIBRARY] and finding.period not in (Period.BEFORE, Period.AFTER)
    # within a forward pass, functions of other names prepare what layers use, or losses
    is_work = finding.rule.name in _WORK and bool(first.inside) and not _OF_LAYERS.search(first.inside)
    if not first.package and finding.has_cure and finding.values.get("runs_steps"):
        return _OF_RUNNER
    if not first.package or not (finding.has_cure or is_library or is_work):
        return ""
    if first.package not in RUNS_TRAINING:
        return _library_cure(first, runs_steps=bool(finding.values.get("runs_steps")))
    if _AROUND_STEPS.search(first.inside):
        return _OF_TRAINER.format(package=first.package)
    return _OF_RUNNER if finding.has_cure and finding.values.get("runs_steps") else ""


_WORK: Final = ("compute", "framework", "python")
"""Names of findings about work of any kind."""
_OF_LAYERS: Final = re.compile(r"(?i)forward|attention|conv|embed|layer|norm|modul|model|backbone|net\b|\bnn\.")
"""Functions that compute a model."""


_AROUND_STEPS: Final = re.compile(
    r"(?i)\b(accelerator|callbacks?|connectors?|loggers?|loops|progress|trainer)(_\w+)?\."
)
"""Their modules that work around the steps; others hold models, layers and datasets."""


_OF_HOOKS: Final = (
    "Most of it is in hooks of {package}, which the program registers. Register them only where they are needed, or "
    "look for an option by which they work less often."
)
_OF_TRAINER: Final = (
    "Most of it is code of {package} around your steps. Log less often, and leave out callbacks, loggers and progress "
    "bars that you do not need."
)


_OF_RUNNER: Final = (
    "See which callbacks, hooks and options of this training do this in each step, and leave out what you do not need."
)


def _library_cure(place: Place, *, runs_steps: bool) -> str:
    """What to do about time in a library of which nothing is known; `runs_steps`: the line runs the whole training."""
    if runs_steps:
        inside = f"{_without_inner(place.inside)}()" if place.inside else f"code of {place.package}"
        return (
            f"Look for an option of {place.package} by which it does less of this, or for a newer version. Most of the "
            f"time is in {inside}, which is not the program's."
        )
    if place.package == "numpy":
        return _OF_NUMPY
    name = place.inside.rpartition(".")[2].strip("_")
    called = next((each for each in called_functions(place.site.source) if each.rpartition(".")[2] == name), "")
    what = f"what {called}() returns" if called else "its result"
    own = f"Most of the time is in code of {place.package}, which is not the program's."
    option = f"look for an option of {place.package} or a newer version that makes it faster"
    tree = parsed_line(place.site.source)
    if tree is not None and all(isinstance(each, ast.Expr) for each in tree.body):  # the program uses no result
        return f"Do it less often or with less data, or {option}. {own}"
    return f"Compute once, and keep, {what} if that depends only on its arguments. Else {option}. {own}"


_OF_NUMPY: Final = (
    "If this line runs for each item of a loop, call NumPy once on whole arrays instead: a call takes microseconds "
    "however small its arrays are. Compute once, and keep, what is the same each time."
)
_OF_IMPORTS: Final = (
    "Import what is used only at times within the function that uses it, and of a package only the parts that are "
    "used. `python -X importtime` tells what each import takes."
)
_OF_ITEMS: Final = (
    "Look for work that is repeated for each item, such as a search in a list, a sum, or a set that is built again."
)
_OF_PREPARATION: Final = "If the result is the same in each run, store it in a file and load it from there."


def _place_sentences(finding: Finding) -> Iterator[str]:
    """`39% of it is at train.py:29, in augkit.boxes.clip(): image, boxes = self.augment(picture)`, for each line."""
    for place in finding.places:
        code = shortened(place.site.source, _MOST_CODE)
        part = place.share / finding.share if finding.share else 1.0
        how_much = "All" if part >= _ALL else share(part)
        yield f"{how_much} of it is {_place_name(place)}{f': `{code}`' if code else ''}."


_ALL: Final = 0.995
"""Share of a finding's time from which a percentage would be shown as 100%."""
_MOST_CODE: Final = 120
"""Characters of a line's code in a sentence."""


def title(finding: Finding) -> str:
    """The cause, as a sentence without its full stop; of time that no rule explains, what it is."""
    if finding.has_cure:
        return _fill(finding.rule.title, finding.values) or finding.rule.name
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
    work = "" if part.name in _UNNAMED_PARTS else f"mostly in {name or input_part(part)}{_part_place(part.site)}"
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
    return f" ({function}, which begins{at(site)})" if function else at(site)


FINDING_COLUMNS: Final = (
    *("rule", "title", "lines", "seconds", "share", "low", "high", "confidence"),
    *("gain", "gain_low", "gain_high", "method", "overlaps", "fix", "code"),
)
"""Columns of a table of findings."""


def finding_row(finding: Finding) -> dict[str, Any]:
    """A finding as a row of a table: its cost, its most certain gain, and its words."""
    text, gain = finding_text(finding), finding.gains[0] if finding.gains else None
    cost = finding.seconds, finding.share, finding.low, finding.high, finding.confidence.value
    gained = (gain.factor, gain.low, gain.high, gain.method.value) if gain else (None, None, None, "")
    values = finding.rule.name, text.title, text.place, *cost, *gained, finding.overlaps, text.fix, text.code
    return dict(zip(FINDING_COLUMNS, values, strict=True))


def not_judged_text(not_judged: NotJudged) -> str:
    """`rule: reason`"""
    return f"{not_judged.rule.name}: {describe(not_judged.reason)}"


def gain_text(finding: Finding, words: str = "") -> str:
    """`about 1.6×`, or `about 1.6× (1.9× by replay)` where two ways differ; empty without a prediction.

    What `try` measured stands alone: `1.6× (measured)`.

    :param words: what follows the factor, such as ` as fast`.
    """
    if not finding.gains:
        return ""
    first, *others = finding.gains
    factor = factor_text(first) + words
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
        how += "; it holds where the work is left out entirely" if gain.is_most else ""
        texts.append(f"{factor_text(gain)}{interval}: {how}.")
    return tuple(texts)


def left_out_text(finding: Finding) -> str:
    """What the shares of a report are shares of, where that differs visibly from the recorded step; else empty."""
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
    """The findings that a verdict tells, the one that it is about first."""
    return tuple(islice((each for each in findings if each.is_told), MOST_TOLD))


MOST_TOLD: Final = 5
"""Findings that a verdict has room for."""


def lead_finding(analysis: Analysis) -> Finding | None:
    """The finding that a report is about.

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
    """The findings about the run as a whole that cost so much of it that a verdict tells them in any case."""
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
    """What the share of a finding is a share of: work in every 25th step only is no part of `step`."""
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
    return f" {_place_name(first)}" if first is not None and first.package else at(finding.sites[0])


def places_text(finding: Finding) -> str:
    """`, at train.py:8, in clean()`; where that is not nearly all, ` (28% at train.py:8, in clean(); 12% at ...)`. Of
    idle time what the host did, of copies their kinds."""
    if parts := finding.values.get("parts"):
        kinds = listed([f"{share(part.exposed)} {_copied(part)}" for part in parts if part.kind in _COPIES])
        return f" ({kinds})" if kinds else ""
    if rows := finding.values.get("rows"):
        return f" ({'; '.join(f'{share(row.share_of_wall)} {host_state(row)}{at(row.site)}' for row in rows)})"
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
    return f"It is {listed([f'{_place_name(place)} ({share(place.share)})' for place in finding.places])}."


def _without_inner(function: str) -> str:
    """The name of the function that defines this one, if it is an inner one."""
    return function.partition(".<locals>")[0]


def _place_name(place: Place) -> str:
    """`at train.py:8, in clean()`, `at train.py:8, mostly in rl.Model.learn()`, which another library may call, or
    which may be a hook: `at train.py:8, mostly in rl.watch(), in a hook registered at train.py:3`"""
    site, inside = place.site, _without_inner(place.inside)
    own = function_name(site) if site.function and site.function != "<module>" else ""
    parts = [
        f"mostly in {inside}()" if inside else f"mostly in {place.package}" if place.package else own and f"in {own}"
    ]
    if place.called_by and place.package and place.package not in RUNS_TRAINING:
        parts.append(f"called by {_without_inner(place.called_by)}()")
    if place.registered_at is not None:
        parts.append(f"in a hook registered{at(place.registered_at)}")
    return ", ".join(filter(None, (at(site).strip(), *parts)))


def doubt_text(finding: Finding) -> str:
    """Why a finding is not sure; empty where it is."""
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
    """Whether an interval is so wide that the share alone would claim too much."""
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
    """What became of a cause from one run to another: `new`, `cured`."""
    if change.state is FindingState.UNKNOWN and change.after is not None:
        return "not named before"
    return _STATES[change.state]


def change_sentence(change: FindingChange) -> str:
    """`The training process makes its batches itself at train.py:20 (no-workers): new, 2.1 ms of each step.`"""
    finding = change.finding
    place = at(finding.sites[0]) if finding.sites else ""
    costs = [seconds(each.seconds) for each in (change.before, change.after) if each is not None]
    return (
        f"{title(finding)}{place} ({finding.rule.name}): {state_text(change)}, {' and then '.join(costs)} of each step."
    )


# ---------------------------------------------------------------- templates


_HARDLY: Final = 0.05
"""Number of free cores below which a figure tells nothing."""
_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "time": seconds,
    "share": share,
    "size": size,
    "ratio": ratio,
    "number": lambda value: f"{value:,.0f}" if value >= 100 or value == round(value) else significant(value, 2),
    "count": lambda value: f"{round(value):,}",
    "plain": lambda value: str(round(value)),
    "cores": lambda value: (
        "hardly any core was" if value < _HARDLY else "1 core was" if value == 1 else f"{value:.2g} cores were"
    ),
    "stage": lambda stage: STAGES[stage],
    "nth": nth,
    "place": site_text,
    "function": lambda site: (
        f"the module-level code of {file_name(site)}"
        if site.function == "<module>"
        else f"{function_name(site)} of {file_name(site)}"
    ),
    "assignment": lambda variable: f"{variable} = " if variable else "",
    "activity": lambda category: SPENT[category],
    "others": other_ranks,
    "": str,
}
"""Format of a field of a template -> how its value is written."""


class _UnknownError(Exception):
    """A value of a template is not known."""


class _Template(Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            raise _UnknownError
        if format_spec.startswith("n "):  # such as `{batches:n batch}`
            number, noun = _FORMATS["number"](value), format_spec[2:]
            return f"{number} {noun}{'' if number == '1' else 'es' if noun.endswith('ch') else 's'}"
        return _FORMATS[format_spec](value)


def _fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its values; empty where one of them is not known."""
    try:
        return _Template().vformat(template, (), values)
    except _UnknownError:
        return ""


# ---------------------------------------------------------------- the changed line


def changed_line(finding: Finding) -> str:
    """The statement at the line of the finding's loader or optimizer, with the suggested arguments; empty where there
    is none, or where the line is not the whole call."""
    settings = finding.filled_settings() or {}
    if "loader" in settings:
        name, site = "DataLoader", finding.values.get("loader_site")
    elif "optimizer" in settings and finding.sites:
        name, site = str(finding.values.get("optimizer")), finding.sites[0]
    else:
        return ""
    return with_arguments(site.source, name, settings.get("loader") or settings["optimizer"]) if site else ""


def with_arguments(source: str, name: str, arguments: Mapping[str, Any]) -> str:
    """A statement with other arguments of the only call of a function or class in it; empty where it is not sure."""
    tree = parsed_line(source)
    if tree is None:
        return ""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == name]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return ""
    (call,) = calls
    unfit = _NEED_WORKERS if arguments.get("num_workers") == 0 else frozenset[str]()
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in unfit]
    for argument, value in arguments.items():
        given = next((keyword for keyword in call.keywords if keyword.arg == argument), None)
        if given is not None:
            given.value = ast.Constant(value)
        elif value:  # what is off stays away
            call.keywords.append(ast.keyword(argument, ast.Constant(value)))
    return ast.unparse(tree)


def _called(call: ast.Call) -> str:
    """The last name of what is called: `DataLoader` of `data.DataLoader(...)`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
