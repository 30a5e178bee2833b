"""The cases of the clinic are consistent, and its judge tells right answers from wrong ones."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler.analyse.model.host import AFTER_OPTIMIZER
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.core.plugins import discover
from profiler.diagnose import model
from tests.clinic import board, gain, told
from tests.clinic import case as cases
from tests.clinic.case import CASES, Case, Counts, Part, Parts, Truth, every_case, read_case, select
from tests.clinic.judge import ASPECTS, Mark, judge
from tests.clinic.keep import hash_of_case, read_harm, record
from tests.clinic.program import Ended, environment
from tests.clinic.told import Breakdown, Cause, Entry, Told
from tests.clinic.unharmed import harm

EVERY = every_case()
MOST_UNMEASURED = 0
"""Cases of which a quiet machine has not measured the cure yet. It only falls."""
REBUILT = [each for each in EVERY if each.source != "here" and not each.checkout]
STYLES = [each for each in EVERY if each.truth.style]
RIGHT = Entry(
    "The teacher is slow",
    "It takes 40% of each step.",
    "Use foreach.",
    (("train.py", 4),),
    "",
    0.4,
    (2.0, 1.8, 2.2),
    False,
    True,
)
TOLD = Told({1: 9}, "train\n40% of every step", (RIGHT,))


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A case with one line at fault, whose cure gains 1.9."""
    monkeypatch.setattr(cases, "CASES", tmp_path)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "train.py").write_text("import torch\n\nfor step in steps:\n    follow(teacher)\n")
    (tmp_path / "made" / "measured.json").write_text('{"wall": {"gain": 1.9, "low": 1.7, "high": 2.1}}')
    truth = Truth(
        steps=10, lines=("train.py: follow(teacher)",), cause=("teacher",), advice=("foreach",), harmful=("step %",),
        says="The teacher is updated one tensor after the other.",
    )  # fmt: skip
    return Case(name="made", source="a/b#1", kinds=("python",), command=("train.py",), cured=("x",), truth=truth)


@pytest.mark.parametrize("each", REBUILT, ids=lambda each: each.name)
def test_a_case_is_short_and_told_in_whole_sentences(each: Case) -> None:
    programs = [path for path in each.folder.rglob("*.py") if "__pycache__" not in path.parts]
    assert sum(len(path.read_text().splitlines()) for path in programs) <= 120
    assert all(ast.get_docstring(ast.parse(path.read_text())) for path in programs if path.stat().st_size)
    assert each.truth.says.endswith(".")


def test_nearly_every_cure_is_measured() -> None:
    """A ratchet: whoever adds a case measures its cure."""
    missing = [each.name for each in REBUILT if each.has_gain and not each.measured()]
    assert len(missing) <= MOST_UNMEASURED, missing


def test_rules_and_categories_of_the_older_cases_exist() -> None:
    known = {rule.name for rule in discover("profiler.diagnose.rules")}
    assert {rule for each in EVERY for group in each.truth.rules or () for rule in group} <= known
    stages = {"evaluation", "roll-out", "compile", "optimizer", "gc", AFTER_OPTIMIZER}
    parts = [part for each in EVERY if each.truth.parts for part in each.truth.parts.causes]
    assert {category for part in parts for category in part.category} <= {*HOST_CATEGORIES, *stages}
    for name in {each.folder for each in EVERY if each.source == "here"}:
        assert all(ast.get_docstring(ast.parse(path.read_text())) for path in name.glob("*.py"))


def test_a_variant_has_the_fields_of_its_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "case.toml").write_text(
        'source = "here"\nkinds = ["control"]\ncommand = ["a.py"]\n[truth]\nsteps = 1\nsays = "All is well."\n'
        '[variants.one]\n[variants.two]\nkinds = ["python"]\ncured = ["b.py"]\ntruth.steps = 2\n'
    )
    monkeypatch.setattr(cases, "CASES", tmp_path)
    one, two = select(["made"])
    assert (one.name, one.truth.steps, one.kinds) == ("made/one", 1, ("control",))
    assert (two.truth.steps, two.truth.says, two.command, two.cured) == (2, "All is well.", ("a.py",), ("b.py",))
    assert [two] == select(["made/two"]) == select(["python"]) == [read_case("made/two")]
    assert (two.folder, two.measured_path) == (one.folder, tmp_path / "made" / "measured" / "two.json")
    with pytest.raises(ValueError, match="no such case: made/three"):
        read_case("made/three")


@pytest.mark.parametrize(
    "each",
    [
        pytest.param(each, id=each.name, marks=() if each.name == "styles/exact" else pytest.mark.slow)
        for each in STYLES
    ],
)
def test_a_recorded_program_does_what_it_did_and_its_steps_are_found(each: Case, tmp_path: Path) -> None:
    if missing := each.missing():
        pytest.skip(missing)
    record(each, "quiet", tmp_path / "run")
    found = tuple(read_harm(each, tmp_path / "run"))
    assert found == ()
    assert judge(each, replace(TOLD, harm=found)).verdict is Mark.RIGHT
    changed = list(
        harm(each, tmp_path / "run", Ended(each.exit_code, "one\n", ""), Ended(each.exit_code + 1, "two\n", ""))
    )
    assert [text.partition(":")[0] for text in changed[1:]] == [
        "the lines of its output differ", "lines that were added or lost",
    ]  # fmt: skip
    assert judge(each, replace(TOLD, harm=tuple(changed))).verdict is Mark.WRONG


def test_an_unknown_case_or_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no such case: none"):
        read_case("none")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "case.toml").write_text("colour = 1\n")
    monkeypatch.setattr(cases, "CASES", tmp_path)
    with pytest.raises(ValueError, match="colour"):
        read_case("made")
    assert CASES.is_dir()


PRINTING = {rule.name: rule.code for rule in discover("profiler.diagnose.rules") if rule.code}
PRINTED = [each for each in EVERY if each.prints]
WORTH_CURING = 1.15
"""Gain from which docs/clinic.md calls it clear."""


@pytest.mark.parametrize("each", PRINTED, ids=lambda each: each.name)
def test_a_patch_holds_the_code_that_its_rule_prints(each: Case) -> None:
    """Fields of the text, and its `...`, stand for any text. Parts that `;` separates may stand in different lines."""
    for part in map(str.strip, re.split(r"\n|; ", PRINTING[each.prints])):
        words = re.sub(r"\\\{[^}]*\\\}|\\\.\\\.\\\.", ".*", re.escape(part.partition("  #")[0]))
        assert re.search(words.replace(":\\ ", r":\s+"), each.added()), part


def test_each_code_that_a_rule_prints_has_a_case() -> None:
    assert sorted(set(PRINTING) - {each.prints for each in PRINTED}) == []


def _cured(each: Case) -> Any:
    mark = pytest.mark.xfail(strict=True, reason=each.truth.says)
    return pytest.param(each, marks=[] if each.is_cured_by_print else [mark], id=each.name)


@pytest.mark.parametrize("each", list(map(_cured, PRINTED)))
def test_the_code_that_a_rule_prints_cures(each: Case) -> None:
    """The counts are as promised; or each pair of runs gained, and together they gained enough."""
    measured = each.measured()
    assert measured["cure"] == each.added(), "measure again: python -m tests.clinic gain"
    assert "error" not in measured
    if each.is_counted:
        promised = each.counts.model_dump(exclude_none=True)
        if not promised:
            pytest.skip(each.truth.says)
        assert {name: tuple(counts) for name, counts in measured["counts"].items()} == promised
    else:
        assert any(
            measured[clock]["gain"] >= WORTH_CURING and all(ill[at] > cured[at] for ill, cured in measured["pairs"])
            for at, clock in enumerate(("wall", "cpu"))
        )


def test_a_cure_may_change_the_environment(case: Case) -> None:
    changed = case.model_copy(update={"env": {"A": "1"}, "cured_env": {"A": "", "B": "2"}})
    assert changed.added() == "unset A\nB=2 python train.py"
    assert environment(changed, case.folder)["A"] == "1"
    cured = environment(changed, case.folder, is_cured=True)
    assert ("A" in cured, cured["B"]) == (False, "2")


def test_only_code_that_is_known_to_fail_may_fail(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Case, __: int) -> None:
        raise ValueError("Traceback\nTypeError: no such word")

    monkeypatch.setattr(gain, "measure", fail)
    with pytest.raises(ValueError, match="no such word"):
        gain.write(case, 1)
    known = case.model_copy(update={"prints": "float64", "is_cured_by_print": False})
    assert gain.write(known, 1) == known.measured() == {"error": "TypeError: no such word", "cure": ""}


@pytest.mark.slow
def test_the_counts_of_a_cuda_program_are_measured() -> None:
    assert gain.count(read_case("printed_several_syncs")) == {"counts": {"syncs": [2.0, 1.0]}}


def marks(case: Case, answer: Told) -> dict[str, Mark]:
    """The marks that are not right."""
    found = judge(case, answer)
    return {name: mark for name, mark in found.marks.items() if mark not in (Mark.RIGHT, Mark.NOT_JUDGED)}


def test_a_right_answer_is_right_in_every_aspect(case: Case) -> None:
    assert marks(case, TOLD) == {}
    assert judge(case, TOLD).verdict is Mark.RIGHT


@pytest.mark.parametrize(
    ("change", "aspect", "mark"),
    [
        ({"lines": (("train.py", 1),)}, "line", Mark.WRONG),
        ({"advice": "Use more workers."}, "advice", Mark.WRONG),
        ({"title": "The loader is slow"}, "cause", Mark.WRONG),
        ({"gain": (3.0, 2.9, 3.1)}, "gain", Mark.WRONG),
        ({"gain": (2.6, 2.0, 3.1)}, "gain", Mark.PARTLY),
        ({"gain": (1.5, 1.4, 1.6), "is_limit": True}, "gain", Mark.WRONG),
        ({"gain": None}, "gain", Mark.EMPTY),
    ],
)
def test_each_aspect_is_judged(case: Case, change: dict[str, Any], aspect: str, mark: Mark) -> None:
    assert marks(case, replace(TOLD, entries=(replace(RIGHT, **change),))) == {aspect: mark}


def test_a_right_entry_behind_another_is_partly_right(case: Case) -> None:
    other = replace(RIGHT, title="The loader is slow", advice="Add workers.", lines=(), gain=(3.0, 2.0, 4.0))
    answer = replace(TOLD, entries=(other, RIGHT))
    assert {name: marks(case, answer)[name] for name in ("cause", "line", "advice")} == dict.fromkeys(
        ("cause", "line", "advice"), Mark.PARTLY
    )
    assert judge(case, answer).verdict is Mark.PARTLY
    assert judge(case, replace(TOLD, entries=())).verdict is Mark.EMPTY


def test_steps_are_counted_exactly(case: Case) -> None:
    assert marks(case, replace(TOLD, steps={1: 10})) == {}
    assert marks(case, replace(TOLD, steps={1: 8})) == {"steps": Mark.WRONG}
    assert marks(case, replace(TOLD, steps={})) == {"steps": Mark.EMPTY}
    none = case.model_copy(update={"truth": case.truth.model_copy(update={"steps": 0})})
    assert judge(none, replace(TOLD, steps={})).false == ("a gain without steps",)


def test_harmful_advice_makes_an_answer_wrong(case: Case) -> None:
    harmful = replace(RIGHT, advice="Use foreach, or write it as `if step % 50 == 0:`.")
    found = judge(case, replace(TOLD, entries=(harmful,)))
    assert (found.verdict, found.false) == (Mark.WRONG, ("harmful advice: step %",))
    told = replace(TOLD, screen="step % 50 in a table is no advice", actions="1. Write `if step % 50 == 0:`.")
    assert judge(case, told).false == ("harmful advice on the first screen: step %",)


def test_nothing_may_be_gained_from_a_control(case: Case) -> None:
    control = case.model_copy(update={"kinds": ("control",)})
    assert judge(control, TOLD).false == ("a gain where nothing can be gained: The teacher is slow",)
    assert judge(control, replace(TOLD, entries=(replace(RIGHT, gain=(1.05, 1.0, 1.1)),))).verdict is Mark.RIGHT


def test_what_occurs_once_gains_nothing_in_each_step(case: Case) -> None:
    once = case.model_copy(update={"truth": case.truth.model_copy(update={"recurrence": "once"})})
    assert "once" in judge(once, TOLD).false[0]
    answer = replace(TOLD, screen="It happens once.", entries=(replace(RIGHT, gain=None),))
    assert judge(once, answer).verdict is Mark.RIGHT


def test_counts_decide_about_a_cuda_program(case: Case) -> None:
    cuda = case.model_copy(update={"is_cuda": True, "counts": Counts(syncs=(28, 0))})
    assert judge(cuda, replace(TOLD, counts={"syncs": 28.0})).verdict is Mark.RIGHT
    assert judge(cuda, replace(TOLD, counts={"syncs": 1.0})).marks["counts"] is Mark.WRONG


def test_a_row_depends_on_the_program_and_on_the_truth(case: Case) -> None:
    before = [hash_of_case(case, with_truth=with_truth) for with_truth in (False, True)]
    other = case.model_copy(update={"truth": case.truth.model_copy(update={"steps": 11})})
    after = [hash_of_case(other, with_truth=with_truth) for with_truth in (False, True)]
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)
    (case.folder / "train.py").write_text("pass\n")
    assert hash_of_case(case, with_truth=False) != before[0]


def test_the_page_shows_a_wrong_answer_beside_its_truth(case: Case) -> None:
    row = {"case": "made", "condition": "quiet", "verdict": "wrong", "screen": "It is the loader.", "entries": [],
           "marks": dict.fromkeys(ASPECTS, "right"), "false": ["harmful advice: step %"]}  # fmt: skip
    text = board.page({"made": case}, [row, {"case": "made", "condition": "busy", "crash": "KeyError: 'x'"}])
    assert "| python | 1 | 0 | 0 | 1 | 0 | 0 | 1 |" in text
    assert "1.90 (1.70 to 2.10)" in text
    assert "The teacher is updated one tensor after the other. Each step; owner: user" in text
    assert "```text\nIt is the loader.\n```" in text
    assert "| **all** | 1 | 0 | 0 | 0 | 0 | 1 | 0 |" in text


def test_the_score_leaves_out_cases_by_authors_who_know_the_rules(case: Case) -> None:
    ours = case.model_copy(update={"source": "here"})
    others = case.model_copy(update={"source": "someone/project#7", "is_blind": True})
    rows = [{"case": name, "condition": "quiet", "verdict": "right", "entries": []} for name in ("made", "others")]
    text = board.page({"made": ours, "others": others}, rows)
    first, second = text.split("## Score of programs whose authors know our rules, quiet")
    assert "## Score, quiet" in first
    assert "| **all** | 1 | 1 | 0 | 0 | 0 | 0 | 0 |" in first
    assert "| **all** | 1 | 1 | 0 | 0 | 0 | 0 | 0 |" in second


def test_the_worth_of_leading_is_the_products() -> None:
    assert told.WORTH_LEADING == model.WORTH_LEADING
    # calling operators is an answer, although other time leads before it
    assert {*told.NO_CAUSES, "framework"} == set(model.OF_TRAINING)


def entry(rule: str, gain: float | None = 2.0, **more: Any) -> Entry:
    """An entry of a rule."""
    return replace(RIGHT, rule=rule, gain=gain and (gain, gain, gain), **more)


def verdict(rules: tuple[tuple[str, ...], ...], *entries: Entry, condition: str = "quiet") -> Mark:
    """The verdict about a case whose illnesses have these rules."""
    truth = Truth(steps=10, rules=rules, says="It is ill.")
    kinds = ("python",) if rules else ("control",)
    case = Case(name="made", source="here", kinds=kinds, command=("x",), cured=("x",), truth=truth)
    return judge(case, Told({1: 9}, "", entries, condition=condition)).verdict


def test_the_rule_of_an_illness_must_come_first() -> None:
    one, two = (("python-loop", "sync"),), (("no-workers",), ("float64",))
    assert verdict(one, entry("sync"), entry("float64")) is Mark.RIGHT
    assert verdict(one, entry("float64"), entry("sync")) is Mark.WRONG
    assert verdict(one, entry("sync", 1.05)) is Mark.WRONG, "too small to lead"
    assert verdict(one) is Mark.EMPTY
    assert verdict(one, entry("sync", None, is_of_run=True)) is Mark.RIGHT
    assert verdict(one, entry("sync", None, is_of_run=True), entry("float64")) is Mark.WRONG
    assert verdict(two, entry("float64", 3.0), entry("no-workers", 1.05)) is Mark.RIGHT, "beside a large one"
    assert verdict(two, entry("float64"), entry("sync"), entry("no-workers")) is Mark.WRONG
    assert verdict((), entry("sync", 1.05)) is Mark.RIGHT
    assert verdict((), entry("sync", 1.2)) is Mark.WRONG


def test_a_quota_is_one_illness_more() -> None:
    one = (("python-loop",),)
    assert verdict(one, entry("throttled"), entry("python-loop"), condition="quota") is Mark.RIGHT
    assert verdict(one, entry("python-loop"), condition="quota") is Mark.WRONG
    assert verdict((), entry("throttled"), condition="quota") is Mark.RIGHT
    assert verdict((), entry("sync"), entry("throttled"), condition="quota") is Mark.WRONG


LOOP = Cause("python", 0.6, 0.6, 0.6, (("project/train.py", 17, "count"),))
CLOCKS = 'truth {"rank": 0, "wall": 10.0, "parts": {"python": [6.0, 6.2]}}\n'
PART = Part(category=("python",), at=("train.py:count",), part="python")
BY_PARTS = Case(
    name="loop", source="here", kinds=("control",), command=("train.py",),
    truth=Truth(steps=100, parts=Parts(causes=(PART,)), says="It loops."),
)  # fmt: skip


def broken(*causes: Cause, waits: tuple[float, float] | None = None, **more: Any) -> Told:
    """An answer that names these causes."""
    state = more.pop("state", "complete")
    parts = Breakdown(state, causes, more.pop("late", None), waits)
    return replace(Told({7: 99}, "", (), breakdown=parts, output=CLOCKS, waited={0: 0.0}), **more)


def test_a_cause_at_its_place_with_its_share_is_right() -> None:
    assert judge(BY_PARTS, broken(LOOP)).verdict is Mark.RIGHT
    waiting = CLOCKS.replace("[6.0, 6.2]", "[3.8, 6.5]")
    less = replace(LOOP, share=0.4, low=0.4, high=0.4)
    assert judge(BY_PARTS, broken(less, waits=(0.3, 0.0), waited={0: 0.3}, output=waiting)).verdict is Mark.RIGHT


@pytest.mark.parametrize(
    ("answer", "text", "is_false"),
    [
        (broken(LOOP, steps={7: 98}), None, False),
        (broken(LOOP, state="failed"), "exit code", False),
        (broken(LOOP, exit_code=1), "exit code 1", False),
        (broken(), "not named: python", False),
        (broken(replace(LOOP, path=(("project/train.py", 9, "main"),))), "true: at train.py:count", False),
        (broken(replace(LOOP, share=0.8, low=0.8, high=0.8)), "true: python 62% to 62% at train.py:count", False),
        (broken(LOOP, replace(LOOP, category="checkpoint", share=0.2)), "no such cause: checkpoint 20%", True),
        (broken(replace(LOOP, category="input", share=0.05), LOOP), "a smaller cause comes first", False),
        (broken(LOOP, screen="neither data nor Python is what limits this run"), "nothing limits", True),
        (broken(LOOP, waited={0: 0.3}), "0% without a core; true by the kernel's clock: 30%", False),
    ],
)
def test_each_difference_from_the_parts_is_seen(answer: Told, text: str | None, is_false: bool) -> None:
    found = judge(BY_PARTS, answer)
    assert found.verdict is Mark.WRONG
    told_texts = found.false if is_false else found.missing
    assert [text in each for each in told_texts] == ([True] if text else [])


def test_only_the_late_rank_is_late() -> None:
    alike = BY_PARTS.model_copy(update={"ranks": 2})
    truth = alike.truth.model_copy(update={"parts": Parts(causes=(PART,), late_rank=1)})
    late, other = (replace(LOOP, ranks=(rank,), lead=0.4) for rank in (1, 0))
    steps = {7: 99, 8: 99}
    assert judge(alike, broken(LOOP, steps=steps)).verdict is Mark.RIGHT
    assert "the ranks are alike" in judge(alike, broken(LOOP, late=late, steps=steps)).false[0]
    ill = alike.model_copy(update={"truth": truth})
    assert judge(ill, broken(LOOP, late=late, steps=steps)).verdict is Mark.RIGHT
    assert "rank 1 is late" in judge(ill, broken(LOOP, late=other, steps=steps)).missing[0]
    slowed = {"condition": "slow-rank-1", "waited": {0: 0.0, 1: 0.3}, "steps": steps, "waits": (0.3, 0.0)}
    told_core = broken(LOOP, late=replace(late, category="core"), **slowed)
    assert judge(alike, told_core).verdict is Mark.RIGHT
    assert "waits for a core" in judge(alike, broken(LOOP, late=late, **slowed)).false[0]


def test_the_output_may_tell_the_steps() -> None:
    truth = BY_PARTS.truth.model_copy(update={"steps": r"updates: ([\d,]+)"})
    printing = BY_PARTS.model_copy(update={"truth": truth})
    assert judge(printing, broken(LOOP, output=f"{CLOCKS}updates: 100\n")).verdict is Mark.RIGHT
    assert judge(printing, broken(LOOP)).marks["steps"] is Mark.WRONG
