"""The rows of a ladder, and the programs that are run for them: each set of fixes once."""

from __future__ import annotations

from reference_trainer.report.ladder import PlannedRow
from reference_trainer.report.ladder_plan import BASELINE, FIXED, LadderPlan, plan_ladder
from tests.fakes.ladders import document, fix, fix_list, program

FULL = ("batch", "parallel", "async", "embed", "prefetch")


def of_kind(plan: LadderPlan, kind: str) -> dict[str, PlannedRow]:
    return {row.fix or row.label: row for row in plan.rows if row.kind == kind}


def test_cumulative_rows_add_one_fix_after_the_other_up_to_fixed() -> None:
    rows = of_kind(plan_ladder(fix_list()), "cumulative")
    assert [row.fixes for row in rows.values()] == [FULL[: number + 1] for number in range(len(FULL))]
    assert [row.label for row in rows.values()][:2] == ["+ batch", "+ parallel"]
    assert [row.against for row in rows.values()] == [BASELINE, "+ batch", "+ parallel", "+ async", "+ embed"]
    assert [row.program for row in rows.values()][-2:] == ["+ embed", FIXED], "the last one is the full set"
    assert (rows["async"].removes, rows["async"].rule) == ("cost of async", "rule-async")


def test_a_fix_that_others_require_is_left_out_with_them_and_they_are_named() -> None:
    rows = of_kind(plan_ladder(fix_list()), "without")
    assert {name: row.also for name, row in rows.items()} == {
        "batch": ("parallel",), "parallel": (), "async": ("embed", "prefetch"), "embed": ("prefetch",), "prefetch": (),
    }  # fmt: skip
    assert rows["async"].fixes == ("batch", "parallel")
    assert rows["async"].label == "without async (and embed, prefetch)"
    assert rows["parallel"].label == "without parallel"
    assert {row.against for row in rows.values()} == {FIXED}


def test_alone_is_a_fix_with_what_it_requires() -> None:
    rows = of_kind(plan_ladder(fix_list()), "alone")
    assert rows["prefetch"].fixes == ("async", "embed", "prefetch")
    assert (rows["prefetch"].also, rows["prefetch"].label) == (("async", "embed"), "alone prefetch (with async, embed)")
    assert {row.against for row in rows.values()} == {BASELINE}


def test_each_set_of_fixes_is_run_once_and_serves_all_its_rows() -> None:
    plan = plan_ladder(fix_list())
    programs = {program.label: program for program in plan.programs}
    sets = [program.arguments for program in plan.programs]
    assert len(sets) == len(set(sets)), "no program is run twice"
    assert len({program.folder for program in plan.programs}) == len(programs) == len(sets)
    for row in plan.rows:
        assert row.fixes == programs[row.program].fixes, row
        assert row.against in (*programs, ""), row
    alone, without = of_kind(plan, "alone"), of_kind(plan, "without")
    assert alone["batch"].program == "+ batch"
    assert alone["parallel"].program == "+ parallel"
    assert without["prefetch"].program == "+ embed"
    assert without["async"].program == "+ parallel"
    assert [program.label for program in plan.programs[:2]] == [BASELINE, FIXED]


def test_an_alternative_and_other_work_take_the_place_of_what_they_exclude() -> None:
    plan = plan_ladder(fix_list())
    [shards], [learn] = of_kind(plan, "instead").values(), of_kind(plan, "work").values()
    assert (shards.fixes, shards.also, shards.against) == (
        ("shards", "async", "embed", "prefetch"), ("batch", "parallel"), FIXED,
    )  # fmt: skip
    assert (learn.fixes, learn.also) == (("batch", "parallel", "async", "embed", "learn"), ("prefetch",))
    assert learn.against == "", "what does other work is held against nothing"
    assert {program.label for program in plan.programs if program.warm} == {BASELINE, FIXED, "shards", "learn", "plain"}


def test_what_an_alternative_requires_comes_with_it() -> None:
    extra = [fix("a"), fix("b"), fix("helper", kind="instead"), fix("x", kind="instead", requires=["helper"])]
    extra[2]["excludes"] = ["b"]
    rows = of_kind(plan_ladder(fix_list(fixes=extra, fixed=["a", "b"])), "instead")
    assert (rows["x"].fixes, rows["x"].also) == (("a", "helper", "x"), ("b",))


def test_other_programs_are_run_with_their_arguments_and_on_top_of_fixed() -> None:
    fixes = [*document()["fixes"][:-2], fix("graph", kind="on top", requires=["embed"])]
    plan = plan_ladder(fix_list(fixes=fixes, programs=[program("bf16", "precision"), program("plain", "beside")]))
    [graph], [bf16] = of_kind(plan, "on top").values(), of_kind(plan, "precision").values()
    assert (graph.fixes, graph.against) == ((*FULL, "graph"), FIXED)
    assert (bf16.label, bf16.against, bf16.what) == ("bf16", FIXED, "it is bf16")
    [plain] = of_kind(plan, "beside").values()
    assert plain.against == "", "another program has no ratio"
    programs = {each.label: each for each in plan.programs}
    assert programs["graph"].arguments == ("--fixes", ",".join(graph.fixes))
    assert programs["plain"].arguments == ("--variant", "plain")
    assert all(programs[name].optional for name in ("graph", "bf16", "plain")), "the others go on without it"


def test_what_cannot_run_here_is_named_and_has_no_row() -> None:
    plan = plan_ladder(fix_list())
    assert plan.unavailable == (("graph", "no CUDA here"), ("bf16", "emulated here"))
    assert not any(row.fix == "graph" for row in plan.rows)
    silent = [*document()["fixes"][:-2], fix("graph", kind="work", available=False)]
    assert plan_ladder(fix_list(fixes=silent)).unavailable[0] == ("graph", "no reason given")


def test_a_single_fix_has_a_ladder_too() -> None:
    plan = plan_ladder(fix_list(fixes=[fix("only")], fixed=["only"], programs=[]))
    assert [(row.label, row.program) for row in plan.rows] == [
        (BASELINE, BASELINE), ("+ only", FIXED), ("without only", BASELINE), ("alone only", FIXED),
    ]  # fmt: skip
