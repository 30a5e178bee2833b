"""Fixes are found, each cures what it says, and a variant is a named set of them."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from profiler.core.plugins import discover
from reference_trainer.errors import TrainerError
from reference_trainer.lm.plan import Plan, fixes, listing, plan, variant_fixes
from reference_trainer.lm.settings import PLAIN
from reference_trainer.report.ladder_plan import plan_ladder, read_fixes

RULES = {"", *(rule.name for rule in discover("profiler.diagnose.rules"))}
CURES = [name for name, fix in fixes().items() if fix.kind == "cure"]


def needed(name: str) -> tuple[str, ...]:
    fix = fixes()[name]
    return tuple(dict.fromkeys([*(item for another in fix.requires for item in needed(another)), *fix.requires]))


def test_as_found_has_no_fix_and_fixed_has_every_cure() -> None:
    assert plan(variant_fixes("as-found")) == Plan()
    assert variant_fixes("fixed") == tuple(CURES)
    cured = plan(variant_fixes("fixed"))
    assert plan(reversed(CURES)) == cured, "the order does not matter"
    same = [field.name for field in fields(Plan) if getattr(cured, field.name) == getattr(Plan(), field.name)]
    others = {field for fix in fixes().values() if fix.kind != "cure" for field in fix.changes}
    assert set(same) <= others, "every choice of the plan has a fix"


@pytest.mark.parametrize("name", fixes())
def test_every_fix_changes_the_plan_and_nothing_else_does(name: str) -> None:
    fix = fixes()[name]
    assert fix.name == name
    assert fix.removes
    assert fix.rule in RULES
    without, with_it = plan(needed(name)), plan((*needed(name), name))
    changed = {field.name for field in fields(Plan) if getattr(without, field.name) != getattr(with_it, field.name)}
    assert changed == set(fix.changes)


LM_FIXES = (
    "batch-tokenize", "async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled", "zero-copy",
    "prefetch", "quiet-logging", "parallel-tokenize", "blocking-wait", "cuda-graph", "pretokenize", "learn",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name, fix in fixes().items() if fix.requires])
def test_a_fix_without_what_it_requires_is_refused(name: str) -> None:
    required = fixes()[name].requires
    missing, them = ", ".join(required), "it" if len(required) == 1 else "them"
    with pytest.raises(TrainerError, match=f"fix '{name}' means nothing without {missing}: add {them}$"):
        plan([name])


@pytest.mark.parametrize(("name", "another"), [(n, o) for n, fix in fixes().items() for o in fix.excludes])
def test_fixes_that_exclude_each_other_are_refused(name: str, another: str) -> None:
    with pytest.raises(TrainerError, match=f"fix '{name}' means nothing beside .*{another}.*: leave one out"):
        plan({*needed(name), *needed(another), name, another})


def test_a_fix_of_another_device_is_refused_and_one_on_top_is_no_part_of_fixed() -> None:
    assert "cuda-graph" not in variant_fixes("fixed", "cuda")
    assert plan((*needed("cuda-graph"), "cuda-graph"), "cuda").graph
    with pytest.raises(TrainerError, match="fix 'cuda-graph' needs device cuda, this is device host: leave it out"):
        plan((*needed("cuda-graph"), "cuda-graph"), "host")


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(TrainerError, match=r"unknown fix 'nope': choose from batch-tokenize, "):
        plan(["nope"])
    with pytest.raises(TrainerError, match="unknown variant 'nope': choose as-found or fixed"):
        variant_fixes("nope")


def test_the_listing_is_what_a_ladder_is_planned_from() -> None:
    result = json.loads(json.dumps(listing("host")))
    assert result["device"] == "host"
    assert tuple(fixes()) == LM_FIXES
    assert [fix["name"] for fix in result["fixes"]] == list(fixes())
    assert result["fixed"] == list(variant_fixes("fixed", "host"))
    assert all(fix["available"] is not bool(fix["why_not"]) for fix in result["fixes"])


def test_a_ladder_on_cuda_has_a_graph_and_narrower_products_and_every_ladder_plain_pytorch() -> None:
    on_cuda, on_host = (plan_ladder(read_fixes(json.dumps(listing(device)))) for device in ("cuda", "host"))
    full = ",".join((*variant_fixes("fixed", "cuda"), "cuda-graph"))
    arguments = {program.label: program.arguments for program in on_cuda.programs}
    assert arguments["cuda-graph"] == ("--fixes", full)
    for dtype in ("tf32", "bf16"):
        assert arguments[dtype] == ("--fixes", full, "--dtype", dtype)
    assert dict(on_cuda.unavailable) == {}
    assert dict(on_host.unavailable).keys() == {"cuda-graph", "tf32", "bf16"}
    plain = {program.options[1]: program.label for program in on_host.programs if program.options}
    assert plain == {name: f"plain PyTorch, {how}" for name, how in PLAIN.items()}
