"""Makes the one list of what takes the time: gives cells to the claims of rules, tells the rest, and sorts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod, NotJudged
from profiler.analyse.model.host import BACKWARD, UPDATE
from profiler.analyse.model.ledger import Ledger, Period
from profiler.analyse.model.measures import CORELESS_CATEGORIES
from profiler.core.errors import Notice
from profiler.core.plugins import discover
from profiler.diagnose.board import Board, Lines, Rest
from profiler.diagnose.device import too_few_launches
from profiler.diagnose.known_cures import largest_cure, line_of_cure
from profiler.diagnose.model import DEVICE_UNSEEN, MOST, NAMED, is_large_of_run, is_worth
from profiler.diagnose.predict import replayed_gain
from profiler.diagnose.rest import outside_steps, rest
from profiler.diagnose.rule import FASTEST, NARROW, Claim, Order, Rule, RunClaim, StepCosts, whole_cost
from profiler.run.model import MadeObject, Site, maker_of
from profiler.run.tables import SETTINGS
from profiler.run.trials import Trial


class Found(NamedTuple):
    """What takes the time of a run, and the rules that cannot judge it."""

    findings: tuple[Finding, ...]
    """In the order in which a verdict tells them (`in_order`)."""
    not_judged: tuple[NotJudged, ...]
    ledger: Ledger | None
    """The cells of the run with the rules whose findings have them; None where the run has no cells."""


def find(analysis: Analysis, rules: Sequence[Rule] | None = None) -> Found:
    """Ask all rules about a run, give each cell of its steps to one of them, and tell the rest as it is.

    Rules of one order get cells by their gains, the largest first.
    """
    costs = StepCosts(analysis)
    if not costs.seconds:
        return Found(tuple(_with_lines_of_cures(outside_steps(analysis), costs)), (), analysis.ledger)
    rules = discover("profiler.diagnose.rules") if rules is None else rules
    not_judged, of_run, findings = list[NotJudged](), list[Finding](), list[Finding]()
    # without a step nothing recurs, so that no cure has a gain
    is_unseen = analysis.step is not None and analysis.step.is_whole_run
    # without what the device did, a trace does not tell whether the host's work costs time
    is_lacking = analysis.is_trace and costs.is_device_unseen
    is_told = not is_unseen and not is_lacking and not (costs.is_idle and too_few_launches(analysis))
    board, owned = Board(costs), set[tuple[str, int]]()
    without_gain = list[tuple[Rule, Claim]]()  # they get what causes with a gain leave
    for order in Order:
        seen, claims = costs if order < Order.REST else Rest(board), list[tuple[Rule, Claim]]()
        for rule in (each for each in rules if each.order is order):
            answer = rule.judge(seen)
            if isinstance(answer, Notice):
                not_judged.append(NotJudged(rule, answer))
            elif isinstance(answer, RunClaim):
                of_run.append(_finding_of_run(rule, answer, analysis.ledger))
            elif answer is not None and is_told:
                (claims if answer.has_gain else without_gain).append((rule, answer))
        findings += _divided(claims, costs, board, owned)
    findings += _divided(without_gain, costs, board, owned)
    if not is_unseen:
        findings += rest(board, costs)
    growth = next((each for each in of_run if each.is_growth), None)
    findings = [with_growth(each, growth) for each in findings]
    late = analysis.ranks.late if analysis.ranks else None
    periods = {each.period: each.rule.name for each in of_run if each.period is not None}
    found = in_order(_with_lines_of_cures((*findings, *of_run, *outside_steps(analysis)), costs), late)
    return Found(found, tuple(not_judged), board.ledger(periods))


def _with_lines_of_cures(findings: Iterable[Finding], costs: StepCosts) -> Iterator[Finding]:
    """Yield the findings with the line to change, where that is none of their lines."""
    lines, info, running = costs.fact(SETTINGS) or {}, costs.analysis.info, _running(costs.analysis.ledger)
    for each in findings:
        first = next((place.site.place for place in each.places), None)
        finding = replace(each, values={**each.values, "runs_steps": True}) if first in running else each
        if finding.cure_site is not None:
            yield finding
            continue
        cure = finding.values.get("cure") or finding.known_cure
        site = _registered_at(finding) or line_of_cure(cure, lines, info.project or info.cwd)
        if site is None and not cure:
            site = _made_at(finding, costs.analysis.made)
        is_other = site is not None and site.place not in [its.place for its in finding.sites]
        yield replace(finding, cure_site=site) if is_other else finding


def _running(ledger: Ledger | None) -> set[tuple[str, int]]:
    """Return the lines below which most of the backward passes and most of the updates run."""
    running = list[set[tuple[str, int]]]()
    for activity in (BACKWARD, UPDATE):
        seconds, whole = defaultdict[tuple[str, int], float](float), 0.0
        for cell in ledger.of(Period.STEPS) if ledger else ():
            if cell.activity == activity:
                whole += cell.seconds
                for place in cell.lines:
                    seconds[place] += cell.seconds
        running.append({place for place, part in seconds.items() if part > MOST * whole})
    return running[0] & running[1]


def _made_at(finding: Finding, made: Mapping[tuple[str, int], Sequence[MadeObject]]) -> Site | None:
    """Return the line that makes the object of a library in whose code most of a finding's time is."""
    first = next(iter(finding.places), None)
    if first is None or not first.package or first.share <= MOST * finding.share:
        return None
    return maker_of(made.get(first.site.place, ()), first.inside)


def with_growth(finding: Finding, growth: Finding | None) -> Finding:
    """Return the finding with the advice against growth, if most of it is at the line that grows; not if it is
    general."""
    first = next(iter(finding.places), None)
    if growth is None or first is None or finding.known_cure or not finding.rule.is_of_code:
        return finding
    if first.site not in growth.sites or first.share <= MOST * finding.share:
        return finding
    limits = tuple(replace(gain, is_most=True) for gain in finding.gains)  # only what has grown goes
    return replace(finding, known_cure=growth.rule.fix, gains=limits)


def _registered_at(finding: Finding) -> Site | None:
    """Return the line that registered the hooks of libraries in which most of a finding's time is; None: there is
    none."""
    shares = defaultdict[Site | None, float](float)
    for place in finding.places:
        shares[place.registered_at if place.package else None] += place.share
    return next((site for site, part in shares.items() if part > MOST * finding.share), None)


def in_order(findings: Iterable[Finding], late: int | None = None) -> tuple[Finding, ...]:
    """Return the findings that a verdict tells, then all others.

    First comes what makes a rank late, then what is worth it: gains by their size, and time without a known gain by its
    share. Then comes all else by its share. Waits for a core that no change of the program can shorten come last.

    :param late: the rank that makes the others wait.
    """

    def group(finding: Finding) -> tuple[bool, ...]:
        is_late = late is not None and finding.values.get("rank") == late
        is_untold = not finding.is_told and not finding.is_of_run
        # what occurs once may be most of a short run, and what grows will be most of a long one
        is_large = is_large_of_run(finding)
        is_curable = bool(finding.gains) or finding.rule.knock_out is not None
        only_waits = bool(finding.costs) and finding.costs.keys() <= set(CORELESS_CATEGORIES) and not is_curable
        overlaps = bool(finding.overlaps)
        is_of_run, is_part = finding.is_of_run and not is_large, finding.is_part_of_run and not is_large
        is_torch = is_part and finding.values["package"] == "torch"  # every program imports it
        is_small = not (is_large or is_worth(finding))
        return is_untold, is_of_run, is_part, is_torch, overlaps, not is_late, only_waits, is_small

    def place(finding: Finding) -> tuple[Any, ...]:
        saved = 1.0 - 1.0 / finding.gain if finding.gains and is_worth(finding) else finding.share
        if is_large_of_run(finding):
            saved = finding.of_steps  # all are shares of the steps
        return (*group(finding), -saved, -finding.share, finding.rule.name)

    groups = groupby(sorted(findings, key=place), key=group)
    return tuple(finding for _, members in groups for finding in _certain_before_possible(members))


def _divided(
    claims: Iterable[tuple[Rule, Claim]], costs: StepCosts, board: Board, owned: set[tuple[str, int]]
) -> Iterator[Finding]:
    """Yield the findings of claims that are large enough, each about the cells that are left for it.

    :param owned: the lines of earlier claims; those of these are added.
    """
    for rule, answer in sorted(claims, key=lambda each: (-_weight(each[0], each[1], costs), each[0].name)):
        wants = board.wants(answer, of_rest=rule.order is Order.REST)
        rival = board.rival(answer, wants) if rule.order is Order.EXACT and answer.has_gain else ""
        claim = answer if rival else _without_lines(board.remainder(answer, wants), owned)
        # the interval must reach half of the threshold: else it may be chance
        total, least = whole_cost(claim.costs.values()), rule.threshold * costs.active
        if total.seconds > 0 and total.seconds >= least and total.low >= least / 2:
            finding = _finding(rule, claim, costs, rival)
            lines = board.lines(wants, left=not rival)
            step = (1.0 - finding.left_out) * costs.seconds
            places, part = lines.places(step), largest_cure(lines.functions(step))
            cure = part.most_of(finding.share)
            finding = replace(finding, places=places, known_cure=cure)
            if rule.is_of_code and not cure and part.share >= max(NAMED, _MUCH * finding.share):
                values = {**finding.values, "part_cure": part.text}
                finding = replace(finding, values=values, cure_site=part.site)
            if cure and rule.is_of_code and part.share < _NEARLY_ALL * finding.share:  # the rest of it remains
                finding = replace(finding, gains=tuple(replace(each, is_most=True) for each in finding.gains))
            if rule.order is Order.SHAPE:  # other rules know the line of the cause
                finding = _at_its_places(finding)
            yield finding
            if finding.is_told:
                board.take(rule.name, wants)
                owned.update(site.place for site in finding.sites)


_MUCH: Final = 0.25
"""Part of the time of a finding at lines of which something is known, from which that is told. A choice."""
_NEARLY_ALL: Final = 0.8
"""Part of the time of a finding from which a line is where it is. A choice."""


def _at_its_places(finding: Finding) -> Finding:
    """Return the finding with the line and the function that take nearly all of its time, where advice to change code
    is about others, such as those that call that function."""
    named, first = {site.place for site in finding.sites}, next(iter(finding.places), None)
    if not finding.rule.is_of_code or first is None or first.share < _NEARLY_ALL * finding.share:
        return finding
    if not named or any(place.site.place in named for place in finding.places):
        return finding
    values = dict(finding.values)
    if values.get("calls") and first.site.function not in ("", "<module>"):
        values["calls"] = f"{first.site.function}()"
    return replace(finding, sites=(first.site,), values=values)


def _without_lines(claim: Claim, owned: Container[tuple[str, int]]) -> Claim:
    """Return the claim without lines that other claims have, where it names more."""
    return replace(claim, sites=tuple(site for site in claim.sites if site.place not in owned) or claim.sites)


def _certain_before_possible(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, but each that is certainly waste before those just ahead of it whose gain is only an upper
    limit and no larger for sure: the program may need that work."""
    ordered = list[Finding]()
    for finding in findings:
        place = len(ordered)
        while place and _may_gain_less(ordered[place - 1], finding):
            place -= 1
        ordered.insert(place, finding)
    return tuple(ordered)


def _may_gain_less(possible: Finding, certain: Finding) -> bool:
    if not (possible.is_told and certain.is_told and possible.gains and certain.gains):
        return False
    limit, gain = possible.gains[0], certain.gains[0]
    return limit.is_most and not gain.is_most and limit.low <= gain.high and gain.low <= limit.high


def _weight(rule: Rule, claim: Claim, costs: StepCosts) -> float:
    """Return what decides which of two rules about the same time comes first: the gain, of an alternative its square
    root."""
    gain = _bound(claim, costs).factor if claim.has_gain else 1.0
    return math.sqrt(gain) if rule.is_alternative else gain


def _bound(claim: Claim, costs: StepCosts) -> Gain:
    """Return the gain by Amdahl's law: the step without the cost of the cause, but with what the cure needs instead.

    It is that of a quiet machine, without recording: waits for a core are left out, but where they are what is claimed.
    """
    total, waits = whole_cost(claim.costs.values()), _waits(claim)

    def factor(seconds: float) -> float:
        step = costs.own_step(seconds, waits)
        return step / max(step - seconds + min(claim.remaining, seconds), FASTEST * step)

    return Gain(claim.method, factor(total.seconds), factor(total.low), factor(total.high))


def _waits(claim: Claim) -> float:
    return sum(cost.seconds for name, cost in claim.costs.items() if name in CORELESS_CATEGORIES)


def _gains(claim: Claim, costs: StepCosts) -> tuple[Gain, ...]:
    """Return the predictions for a claim, the smaller one first: it knows of something that limits the step then."""
    gains = (_bound(claim, costs), *replayed_gain(claim, costs))
    return tuple(
        sorted(
            (replace(gain, is_least=claim.is_least, is_most=claim.is_most) for gain in gains), key=attrgetter("factor")
        )
    )


def _finding_of_run(rule: Rule, claim: RunClaim, ledger: Ledger | None) -> Finding:
    """Return a finding about the run, which predicts no gain: a recorded run may be shorter than those that it stands
    for."""
    share, lines = claim.share, Lines()
    cells = list(ledger.of(claim.period)) if ledger and claim.period else []
    whole = sum(cell.seconds for cell in cells)
    for cell in cells:  # the period may hold more than the claim, such as steps of the warm-up
        lines.add(cell, cell.seconds * min(1.0, claim.seconds / whole))
    places = lines.places(claim.seconds / share) if share else ()
    values = {"seconds": claim.seconds, "share": share, "site": None, **claim.values}
    return Finding(
        rule, claim.seconds, share, share, share, claim.confidence,
        claim.sites or tuple(place.site for place in places), values, places=places, period=claim.period,
        is_of_run=True, of_steps=claim.of_steps,
    )  # fmt: skip


def _finding(rule: Rule, claim: Claim, costs: StepCosts, overlaps: str) -> Finding:
    total, waits = whole_cost(claim.costs.values()), _waits(claim)
    # of waits whose end gains nothing, as what else the machine does is no part of the program, all steps are the whole
    step = costs.own_step(total.seconds, waits) if claim.has_gain or not waits else costs.seconds
    share, low, high = (min(1.0, seconds / step) for seconds in (total.seconds, total.low, total.high))
    confidence = claim.confidence
    if total.low < NARROW * total.seconds:
        confidence = Confidence.MEDIUM if total.low >= rule.threshold * costs.active else Confidence.LOW
    has_gain = claim.has_gain
    site = claim.sites[0] if claim.sites else None
    values = {"seconds": total.seconds, "share": share, "site": site, **claim.values}
    if costs.is_device_unseen:  # host work costs nothing while the device is busy
        confidence, has_gain, values[DEVICE_UNSEEN] = Confidence.LOW, False, True
    gains = _gains(claim, costs) if has_gain else ()
    by_category = {name: cost.seconds for name, cost in claim.costs.items()}
    finding = Finding(
        rule, total.seconds, share, low, high, confidence, claim.sites, values, gains, overlaps, by_category
    )
    return replace(finding, left_out=1.0 - step / costs.seconds, is_periodic=claim.is_periodic)


def with_trials(findings: Iterable[Finding], trials: Sequence[Trial], late: int | None = None) -> tuple[Finding, ...]:
    """Return the findings with the gains that `try` measured before the predicted ones, in the order of `find`."""
    return in_order((_with_trial(finding, trials) for finding in findings), late)


def _with_trial(finding: Finding, trials: Sequence[Trial]) -> Finding:
    site = f"{finding.sites[0].file}:{finding.sites[0].line}" if finding.sites else ""
    for trial in trials:
        if (trial.rule, trial.site) == (finding.rule.name, site) and None not in (trial.factor, trial.low, trial.high):
            ends = trial.factor or 1.0, trial.low or 1.0, trial.high or 1.0
            gain = Gain(GainMethod.KNOCK_OUT, *ends, is_least=trial.is_least, is_most=trial.is_most)
            gains = (gain, *finding.gains)
            if all(each.is_most for each in gains):  # of upper limits the smallest one counts
                gains = tuple(sorted(gains, key=attrgetter("factor")))
            return replace(finding, gains=gains)
    return finding
