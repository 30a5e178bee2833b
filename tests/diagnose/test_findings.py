"""Findings from rules: what is large enough, what overlaps, what a cure can give, and the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod
from profiler.analyse.model.host import LineCost, Phase
from profiler.analyse.model.ledger import MAIN, Cell, Ledger, Owner, Period, Recurrence
from profiler.analyse.model.measures import Measure
from profiler.core.errors import Notice
from profiler.diagnose.findings import find, in_order, with_trials
from profiler.diagnose.rule import Claim, Order, Rule, RunClaim, StepCosts, exactly
from profiler.report.finding_text import finding_sentence, finding_text
from profiler.run.model import MadeObject, RunInfo, Site

SITE = Site("train.py", 8, "train")


def analysis(**seconds: float | tuple[float, float, float]) -> Analysis:
    """A step of 1 s with these categories; tuples are a cost with its interval."""
    parts = {}
    for name, value in seconds.items():
        middle, low, high = value if isinstance(value, tuple) else (value, value, value)
        parts[name] = Measure(name, middle, "s/step", low, high)
    return Analysis(RunInfo(0, "", "", ()), {"step_time": Measure("step_time", 1.0, "s")}, parts, {})


def rule(name: str, *categories: str, part: float = 1.0, remaining: float = 0.0, order: Order = Order.EXACT) -> Rule:
    """A rule that claims a part of categories."""

    def judge(costs: StepCosts) -> Claim:
        return Claim({each: costs.cost(each).part(part) for each in categories}, (SITE,), remaining=remaining)

    return Rule(name, name, (), "Mend it.", judge, order=order)


def names(run: Analysis, *rules: Rule) -> list[str]:
    return [f"{finding.rule.name}{'*' * bool(finding.overlaps)}" for finding in causes(run, rules)]


def causes(run: Analysis, rules: Sequence[Rule]) -> list[Finding]:
    """The findings of these rules, without the time that none of them explains."""
    return [finding for finding in find(run, rules)[0] if finding.has_cure]


def cell(line: int, kind: str, seconds: float, recurrence: Recurrence = Recurrence.EACH) -> Cell:
    """Time at a line of ten steps."""
    place = replace(SITE, line=line)
    ends = seconds, seconds, seconds, 100.0
    return Cell(0, MAIN, Period.STEPS, "", kind, Owner.USER, "", place, "", recurrence, 0.0, *ends)


def test_work_at_one_line_is_told_once() -> None:
    """A metric and the small operators that it calls; those of another line are other work."""

    def needed(name: str, part: float, line: int, other: float = 0.0) -> Rule:
        def judge(costs: StepCosts) -> Claim:
            claimed = {"compute": costs.cost("compute").part(part), "python": costs.cost("python").part(other)}
            return Claim(claimed, (replace(SITE, line=line),), is_most=True)

        return Rule(name, name, (), "Mend it.", judge)

    cells = cell(7, "compute", 2.4), cell(8, "compute", 3.6), cell(7, "python", 4.0)
    wall = {(0, MAIN, Period.STEPS): 10.0}
    run = replace(analysis(compute=0.6, python=0.4), ledger=Ledger(cells, wall, steps={MAIN: 10}))
    assert names(run, needed("metric", 0.4, 7), needed("operators", 0.3, 7)) == ["metric", "operators*"]
    assert names(run, needed("metric", 0.4, 7), needed("operators", 0.3, 8)) == ["metric", "operators"]
    more = needed("operators", 0.3, 7, other=0.9)
    assert names(run, needed("metric", 0.4, 7), more) == ["operators", "metric*"], "most of its time is told"
    found, _, ledger = find(run, (needed("metric", 0.4, 7), needed("operators", 0.3, 8)))
    assert ledger is not None
    by_line = {(each.place.line, each.kind): each.findings for each in ledger.cells if each.place}
    assert by_line[7, "compute"] == {"metric": pytest.approx(2.4)}
    assert by_line[8, "compute"] == {"operators": pytest.approx(1.8)}
    rest = {each.rule.name: round(each.seconds, 3) for each in found if not each.has_cure}
    assert rest == {"python": 0.4, "compute": 0.18}
    assert all(each.left >= 0 for each in ledger.cells)


def test_a_general_rule_names_no_line_of_another_cause() -> None:
    other = replace(SITE, line=9)
    run = analysis(input=0.3, python=0.2, compute=0.5)
    for lines, named in (((SITE, other), (other,)), ((SITE,), (SITE,))):
        python = Rule(
            "python",
            "python",
            (),
            "Mend it.",
            lambda costs, lines=lines: Claim({"python": costs.cost("python")}, lines),
            order=Order.REST,
        )
        first, second = causes(run, (rule("loader", "input"), python))
        assert (first.rule.name, second.rule.name) == ("loader", "python")
        assert second.sites == named


def test_the_largest_gain_comes_first() -> None:
    run = analysis(input=0.3, python=0.2, log=0.04, compute=0.46)
    rules = (rule("p", "python"), rule("i", "input"), rule("small", "log"))
    assert names(run, *rules) == ["i", "p"], "a share below the threshold is no finding"
    first = causes(run, rules)[0]
    assert (first.seconds, first.share, first.sites, first.confidence) == (0.3, 0.3, (SITE,), Confidence.HIGH)
    assert first.gains[0].method is GainMethod.BOUND
    assert first.gain == pytest.approx(1 / 0.7)
    assert first.values["site"] == SITE


def test_certain_waste_comes_before_an_upper_limit_that_may_be_no_larger() -> None:
    def possible(name: str, category: str) -> Rule:
        return Rule(name, name, (), "Mend it.", lambda costs: Claim({category: costs.cost(category)}, is_most=True))

    run = analysis(compute=(0.47, 0.33, 0.58), waiting=(0.44, 0.375, 0.5), python=0.09)
    work, blocked, small = possible("work", "compute"), rule("blocked", "waiting"), rule("small", "python")
    assert names(run, work, blocked, small) == ["blocked", "work", "small"], "1.8 (1.6 to 2.0) before up to 1.9"
    assert [each.rule.name for each in with_trials(causes(run, (work, blocked)), ())] == ["blocked", "work"]
    assert names(run, possible("work", "compute"), possible("blocked", "waiting")) == ["work", "blocked"]
    apart = analysis(compute=(0.6, 0.58, 0.62), waiting=(0.3, 0.28, 0.32), python=0.1)
    assert names(apart, work, blocked) == ["work", "blocked"], "the limit is larger for sure"


def test_trials_leave_the_order_of_other_findings() -> None:
    def no_gain(name: str, category: str) -> Rule:
        return Rule(name, name, (), "Mend it.", lambda costs: Claim({category: costs.cost(category)}, has_gain=False))

    of_run = Rule("a", "a", (), "Mend it.", lambda _: RunClaim(1.0, 0.5))
    same = rule("s", "input", part=0.9)
    findings, *_ = find(
        analysis(input=0.4, python=0.2, compute=0.4),
        (of_run, no_gain("b", "python"), no_gain("c", "compute"), rule("i", "input"), same),
    )
    assert [each.rule.name for each in findings] == ["i", "b", "c", "a", "s"]
    assert with_trials(findings, ()) == findings


def test_two_rules_about_the_same_time_are_not_counted_twice() -> None:
    run = analysis(input=0.4, python=0.3, compute=0.3)
    assert names(run, rule("a", "input"), rule("b", "input", part=0.9)) == ["a", "b*"]
    assert causes(run, (rule("a", "input"), rule("b", "input", part=0.9)))[1].overlaps == "a"
    assert names(run, rule("a", "input", part=0.5), rule("b", "input", part=0.5)) == ["a", "b"]
    half = rule("b", "input", "python", part=0.7)
    assert names(run, rule("a", "input"), half) == ["b", "a*"], "what overlaps stands last, however large"


def test_a_general_rule_gets_what_specific_rules_leave() -> None:
    run = analysis(python=0.5, compute=0.5)
    found = causes(run, (rule("python", "python", order=Order.REST), rule("gc", "python", part=0.7)))
    assert [(each.rule.name, round(each.share, 3)) for each in found] == [("gc", 0.35), ("python", 0.15)]
    assert names(run, rule("python", "python", order=Order.REST), rule("gc", "python", part=0.95)) == ["gc"]


def test_the_bound_keeps_what_the_cure_needs() -> None:
    run = analysis(input=0.5, compute=0.5)
    (found,) = causes(run, (rule("a", "input", remaining=0.25),))
    assert found.gain == pytest.approx(1 / 0.75)
    (found,) = causes(analysis(input=1.0), (rule("a", "input"),))
    assert found.gain == pytest.approx(1000), "some of a step is assumed to remain"


def test_samples_give_an_interval_and_a_confidence() -> None:
    rules = (rule("p", "python"),)
    (found,) = causes(analysis(python=(0.4, 0.2, 0.6), compute=0.6), rules)
    assert (found.confidence, found.low, found.high) == (Confidence.MEDIUM, 0.2, 0.6)
    assert (found.gains[0].low, found.gains[0].high) == (pytest.approx(1.25), pytest.approx(2.5))
    (found,) = causes(analysis(python=(0.4, 0.39, 0.41), compute=0.6), rules)
    assert found.confidence is Confidence.HIGH
    (found,) = causes(analysis(python=(0.1, 0.04, 0.3), compute=0.9), rules)
    assert found.confidence is Confidence.LOW
    assert names(analysis(python=(0.1, 0.01, 0.3), compute=0.9), *rules) == [], "it may be chance"


def test_a_rule_that_cannot_judge_gives_its_reason() -> None:
    reason = Notice("not-recorded")
    found, not_judged, _ = find(analysis(python=0.5), (Rule("r", "", (), "Mend it.", lambda _: reason),))
    assert [each.rule.name for each in found] == ["python"], "it is told as it is"
    assert [(each.rule.name, each.reason) for each in not_judged] == [("r", reason)]
    assert find(analysis(python=0.5), (Rule("r", "", (), "Mend it.", lambda _: None),))[1] == ()


def test_without_a_step_there_is_no_finding() -> None:
    empty = Analysis(RunInfo(0, "", "", ()), {}, {}, {})
    assert find(empty, (rule("p", "python"),)) == ((), (), None)


@pytest.mark.parametrize("order", Order)
def test_a_cause_without_a_gain_gets_what_those_with_a_gain_leave(order: Order) -> None:
    run = analysis(compute=1.0)

    def judge(costs: StepCosts) -> Claim:
        return Claim({"compute": costs.cost("compute")}, has_gain=False)

    rules = Rule("a", "a", (), "Mend it.", judge), rule("b", "compute", part=0.5, order=order)
    assert [(each.rule.name, round(each.share, 2)) for each in causes(run, rules)] == [("b", 0.5), ("a", 0.5)]


def test_what_makes_a_rank_late_comes_first_and_no_group_mixes_with_another() -> None:
    (large,) = causes(analysis(input=0.5, compute=0.5), (rule("large", "input"),))
    limit = replace(large, rule=replace(large.rule, name="late"), values={"rank": 1})
    limit = replace(limit, gains=(Gain(GainMethod.BOUND, 1.3, 1.1, 2.5, is_most=True),))
    assert [each.rule.name for each in in_order((large, limit), late=1)] == ["late", "large"]
    assert [each.rule.name for each in in_order((large, limit))] == ["large", "late"]
    worth = replace(large, gains=(Gain(GainMethod.BOUND, 1.15, 1.05, 1.3, is_most=True),))
    small = replace(limit, gains=(Gain(GainMethod.BOUND, 1.08, 1.06, 1.1),))
    assert [each.rule.name for each in in_order((small, worth))] == ["large", "late"]


def test_of_periodic_work_the_part_that_no_rule_explains_is_told() -> None:
    def judge(costs: StepCosts) -> Claim:
        return Claim({name: costs.cost(name) for name in ("input", "python")}, is_periodic=True, is_most=True)

    run = analysis(input=0.4, python=0.2, compute=0.4)
    periodic = Rule("periodic", "periodic", (), "Mend it.", judge, order=Order.SHAPE)
    told = {each.rule.name: round(each.share, 2) for each in causes(run, (periodic, rule("loader", "input")))}
    assert told == {"loader": 0.4, "periodic": 0.2}


def test_the_last_rules_see_what_is_left() -> None:
    cells = cell(7, "python", 3.0), cell(8, "python", 1.0), cell(9, "compute", 6.0)
    ledger = Ledger(cells, {(0, MAIN, Period.STEPS): 10.0}, steps={MAIN: 10})
    lines = tuple(
        LineCost(each.place, "", each.seconds / 10, each.seconds / 10, 0.0, 1.0, 50, {each.kind: each.seconds / 10})
        for each in cells
        if each.place
    )
    run = replace(analysis(python=0.4, compute=0.6), ledger=ledger, lines=lines)
    seen = list[StepCosts]()

    def judge(costs: StepCosts) -> None:
        seen.append(costs)

    exact = Rule(
        "exact", "exact", (), "Mend it.", lambda costs: Claim({"python": exactly(0.3)}, (replace(SITE, line=7),))
    )
    find(run, (exact, Rule("rest", "rest", (), "Mend it.", judge, order=Order.REST)))
    (left,) = seen
    assert left.cost("python").seconds == pytest.approx(0.1)
    assert left.cost("compute").seconds == pytest.approx(0.6)
    assert [site.line for site in left.sites("python")] == [8]
    assert {line.site.line: line.categories.get("python") for line in left.lines} == {
        7: pytest.approx(0.0), 8: pytest.approx(0.1), 9: None,
    }  # fmt: skip
    assert left.active == pytest.approx(1.0)


def test_the_rest_of_a_stage_is_told_as_its_rest() -> None:
    evaluating = replace(cell(7, "compute", 6.0), activity="evaluation")
    ledger = Ledger((evaluating, cell(8, "compute", 4.0)), {(0, MAIN, Period.STEPS): 10.0}, steps={MAIN: 10})
    run = replace(analysis(compute=1.0), ledger=ledger)
    partly = Rule(
        "part", "part", (), "Mend it.", lambda costs: Claim({"compute": exactly(0.3)}, (replace(SITE, line=7),))
    )
    told = {each.rule.name: (round(each.share, 2), each.values.get("is_rest")) for each in find(run, (partly,))[0]}
    assert told == {"part": (0.3, None), "evaluation": (0.3, True), "compute": (0.4, False)}


def test_samples_of_a_category_without_time_are_no_finding() -> None:
    ledger = Ledger(
        (cell(7, "compute", 10.0), cell(8, "python", 0.1)), {(0, MAIN, Period.STEPS): 10.1}, steps={MAIN: 10}
    )
    found = find(replace(analysis(compute=1.0, python=0.0), ledger=ledger), ())[0]
    assert [each.rule.name for each in found] == ["compute"]


def test_the_rest_of_a_library_around_the_phases_is_told_as_its_code() -> None:
    def of_library(kind: str, phase: str, seconds: float) -> Cell:
        inside = "fitkit.clip.Clip.__call__"
        of_code = replace(cell(7, kind, seconds), owner=Owner.LIBRARY, package="fitkit", function=inside)
        return replace(of_code, activity=phase)

    update = replace(cell(7, "compute", 2.0), activity="optimizer", owner=Owner.TORCH)
    backward = replace(update, activity="backward", seconds=1e-6)
    cells = (
        of_library("python", "", 3.0),
        of_library("compute", "", 2.0),
        of_library("compute", "forward", 3.0),
        update,
        backward,
    )
    ledger = Ledger(cells, {(0, MAIN, Period.STEPS): 10.0}, steps={MAIN: 10})
    run = replace(analysis(python=0.3, compute=0.7), ledger=ledger)
    without_phases = {each.rule.name: round(each.share, 2) for each in find(run, ()).findings}
    assert without_phases == {"python": 0.3, "compute": 0.7}
    first, second = find(replace(run, phases=(Phase("forward", 0.3, 0.3, 0.3, 0.3),)), ()).findings
    assert (first.rule.name, round(first.share, 2)) == ("library-code", 0.5)
    assert finding_sentence(first).startswith("Code of fitkit takes 50% of each step, at train.py:7, mostly in fitkit.")
    assert "Look for an option of fitkit" in finding_text(first).fix, "its line also calls the optimizer"
    assert (second.rule.name, round(second.share, 2)) == ("compute", 0.5)
    elsewhere = replace(ledger, cells=cells[:3])
    first = find(replace(run, ledger=elsewhere, phases=(Phase("forward", 0.3, 0.3, 0.3, 0.3),)), ()).findings[0]
    assert "or look for an option of fitkit" in finding_text(first).fix


def test_what_helps_against_a_function_that_takes_a_part_of_a_line_is_told() -> None:
    """No function of the line takes most of its time."""
    names = "transformers.debug_utils.get_abs_min_max", "transformers.models.gpt2.forward", "transformers.trainer.step"
    of_code = (replace(cell(7, "compute", 3.0), owner=Owner.LIBRARY, package="transformers") for _ in names)
    cells = tuple(replace(each, function=name) for each, name in zip(of_code, names, strict=True))
    ledger = Ledger(cells, {(0, MAIN, Period.STEPS): 10.0}, steps={MAIN: 10})
    (told,) = find(replace(analysis(compute=0.9), ledger=ledger), ()).findings
    assert told.places[0].inside == ""
    assert "debug='underflow_overflow'" in finding_text(told).fix


@pytest.mark.parametrize(
    ("inside", "called", "is_named"),
    [
        ("fitkit.Clip.__call__", [(5, "Clip"), (6, "Linear")], True),
        ("fitkit.boxes.clip", [(5, "Clip")], True),
        ("fitkit.boxes.clip", [(5, "Clip"), (6, "Linear")], False),  # which of both calls it is not known
        ("fitkit.boxes.clip", [], False),
    ],
)
def test_the_line_that_makes_the_object_of_a_library_is_the_one_to_change(
    inside: str, called: list[tuple[int, str]], is_named: bool
) -> None:
    of_library = replace(cell(7, "python", 5.0), owner=Owner.LIBRARY, package="fitkit", function=inside)
    ledger = Ledger((of_library,), {(0, MAIN, Period.STEPS): 10.0}, steps={MAIN: 10})
    made = {replace(SITE, line=7).place: tuple(MadeObject(replace(SITE, line=line), name) for line, name in called)}
    run = replace(analysis(python=0.5, compute=0.5), ledger=ledger, made=made)
    told = find(run, (replace(rule("slow", "python"), is_of_code=True),)).findings[0]
    assert (told.cure_site and told.cure_site.line) == (5 if is_named else None)


def test_work_beside_a_device_that_was_not_recorded_has_no_gain() -> None:
    run = analysis(input=0.5, compute=0.5)
    unseen = replace(run, info=replace(run.info, facts={"device": "cuda"}))
    (found,) = causes(unseen, (rule("a", "input"),))
    assert (found.confidence, found.gains) == (Confidence.LOW, ())


def test_a_finding_tells_its_lines_and_the_library_that_takes_the_time() -> None:
    def of_library(name: str, seconds: float) -> Cell:
        return replace(cell(7, "python", seconds), owner=Owner.LIBRARY, package="fitkit", function=name)

    cells = of_library("fitkit.save.sums", 3.0), of_library("fitkit.save.hash", 1.0), cell(8, "python", 1.0)
    ledger = Ledger(cells, {(0, MAIN, Period.STEPS): 10.0}, steps={MAIN: 10})
    run = replace(analysis(compute=0.5, python=0.5), ledger=ledger)
    (found,) = causes(run, (rule("a", "python"),))
    first, second = found.places
    assert (first.site.line, first.inside, first.package) == (7, "fitkit.save.sums", "fitkit")
    assert first.share == pytest.approx(0.4)
    assert (second.site.line, second.inside, second.package) == (8, "", "")


def test_the_hooks_of_a_library_are_changed_where_they_were_registered() -> None:
    def hooked(line: int, registered: int, owner: Owner = Owner.LIBRARY) -> Cell:
        of_hook = replace(SITE, line=registered, function="main")
        found = cell(line, "python", 3.0)
        return replace(found, owner=owner, package="rl", function="rl.watch", registered_at=of_hook)

    def changed(*cells: Cell) -> int | None:
        wall = {(0, MAIN, Period.STEPS): 10.0}
        run = replace(analysis(python=0.6, compute=0.4), ledger=Ledger(cells, wall, steps={MAIN: 10}))
        (found,) = (each for each in find(run, ())[0] if each.rule.name == "python")
        return found.cure_site.line if found.cure_site else None

    assert changed(hooked(7, 40), hooked(8, 40)) == 40
    assert changed(hooked(7, 40), hooked(8, 41)) is None, "none of them has most of it"
    assert changed(hooked(7, 40), hooked(40, 40)) is None, "it is one of its lines"
    assert changed(hooked(7, 40, Owner.USER), hooked(8, 40, Owner.USER)) is None, "the program can change its hook"


def test_advice_about_code_is_about_the_line_that_takes_the_time() -> None:
    """A line calls a trainer, which calls a slow callback."""

    def judge(costs: StepCosts) -> Claim:
        return Claim({"python": costs.cost("python")}, (replace(SITE, line=3),), {"calls": "Trainer.notify()"})

    place = replace(SITE, line=7, function="Summary.batch_end")
    slow = replace(cell(7, "python", 5.0), place=place)
    ledger = Ledger((slow,), {(0, MAIN, Period.STEPS): 10.0}, steps={MAIN: 10})
    run = replace(analysis(compute=0.5, python=0.5), ledger=ledger)
    for order, line, function in ((Order.SHAPE, 7, "Summary.batch_end()"), (Order.EXACT, 3, "Trainer.notify()")):
        (found,) = causes(run, (Rule("a", "a", (), "Run {calls} less often.", judge, order=order, is_of_code=True),))
        assert (found.sites[0].line, found.values["calls"]) == (line, function)


def test_what_occurs_once_and_takes_much_of_the_run_comes_before_what_gains_little() -> None:
    def once(share: float) -> Rule:
        return Rule(
            "once", "once", (), "Mend it.", lambda costs: RunClaim(2.0, share, period=Period.ONE_OFF, of_steps=share)
        )

    run = analysis(compute=0.95, python=0.05)
    assert next(each.rule.name for each in find(run, (rule("a", "python"), once(0.3))).findings) == "once"
    assert [each.rule.name for each in find(run, (rule("a", "python"), once(0.05))).findings][-1] == "once"
