"""The trainers' lists of fixes: what follows from requirements, and that the real lists are consistent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from profiler.core.errors import ProfilerError
from reference_trainer.lm import plan as lm
from reference_trainer.report.ladder_plan import read_fixes
from reference_trainer.ssm import plan as ssm
from tests.fakes import ladders
from tests.fakes.ladders import document, fix_list


def test_requirements_are_followed_in_both_directions_and_in_the_order_of_the_ladder() -> None:
    listed = fix_list()
    assert listed.with_needs("prefetch") == ("async", "embed", "prefetch")
    assert listed.with_needs("batch") == ("batch",)
    assert listed.with_dependents(["async"]) == ("async", "embed", "prefetch", "graph")
    assert listed.displaced_by("shards") == ("batch", "parallel"), "a fix that requires a displaced one is displaced"
    assert listed.displaced_by("batch") == ("shards",), "whichever of the two says so"


@pytest.mark.parametrize(
    ("listing", "device"), [(lm.listing, "host"), (lm.listing, "cuda"), (ssm.listing, "cpu"), (ssm.listing, "cuda")]
)
def test_the_lists_of_the_bundled_trainers_are_consistent(listing: Callable[[str], Any], device: str) -> None:
    listed = read_fixes(json.dumps(listing(device)))
    names = [fix.name for fix in listed.fixes]
    assert len(set(names)) == len(names)
    for number, fix in enumerate(listed.fixes):
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,27}", fix.name), "names become parts of folders and of lists"
        assert fix.name not in ("as-found", "fixed")
        assert set(fix.requires) <= set(names[:number]), f"{fix.name} stands before a fix that it requires"
        assert set(fix.excludes) <= set(names)
        assert not set(listed.with_needs(fix.name)) & set(listed.displaced_by(fix.name)), fix.name
        required = [listed.fix(name) for name in fix.requires]
        assert not fix.available or all(other.available for other in required)
    for fix in map(listed.fix, listed.fixed):
        assert (fix.kind, fix.available) == ("cure", True)
        assert set(fix.requires) <= set(listed.fixed)
        assert not set(listed.excluded_by(fix.name)) & set(listed.fixed)
    assert listed.fixed == listed.ordered(listed.fixed)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "") for text in ("", "usage: ...", "[]", "null")),
        ('{"device": "host"}', "fixes: Field required"),
        (json.dumps(document(fixed=[])), "fixed: "),
        (json.dumps(document(fixed="batch")), "fixed: "),
        (json.dumps(document(fixes=[{"name": "batch"}])), "fixes.0.removes: Field required"),
        (
            json.dumps(document(fixes=[ladders.fix("learn", kind="magic")])),
            "fixes.0.kind: Input should be 'cure'",
        ),
    ],
)
def test_what_is_no_list_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ProfilerError) as caught:
        read_fixes(text)
    assert str(caught.value).startswith(f"the trainer's list of fixes (--list-fixes) is wrong: {reason}")
    assert "\n" not in str(caught.value)
