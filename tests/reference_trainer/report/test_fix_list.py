"""The trainer's list of fixes: what it says of requirements, and each way in which it can contradict itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiler.core.errors import ProfilerError
from reference_trainer.report.ladder_plan import read_fixes
from tests.fakes.ladders import document, fix, fix_list


def test_requirements_are_followed_in_both_directions_and_in_the_order_of_the_ladder() -> None:
    listed = fix_list()
    assert listed.with_needs("prefetch") == ("async", "embed", "prefetch")
    assert listed.with_needs("batch") == ("batch",)
    assert listed.with_dependents(["async"]) == ("async", "embed", "prefetch", "graph")
    assert listed.displaced_by("shards") == ("batch", "parallel"), "what stands on the excluded goes too"
    assert listed.displaced_by("batch") == ("shards",), "whichever of the two says so"


def test_requirements_in_a_circle_end() -> None:
    pair = [fix("a", requires=["b"]), fix("b", requires=["a"])]
    with pytest.raises(ProfilerError, match="a comes before b, which it requires"):
        read_fixes(json.dumps(document(fixes=pair, fixed=["a", "b"])))


def entries(*changed: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of `document`, some of them replaced or added."""
    by_name = {entry["name"]: entry for entry in (*document()["fixes"], *changed)}
    return list(by_name.values())


@pytest.mark.parametrize(
    ("changes", "statement"),
    [
        ({"fixed": ["parallel", "batch"]}, "parallel comes before batch, which it requires"),
        ({"fixed": ["embed"]}, "embed comes before async, which it requires"),
        ({"fixed": []}, "its full set is empty"),
        ({"fixed": ["batch", "batch"]}, "its full set names a fix twice"),
        ({"fixed": ["shards"]}, "its full set has 'shards', which is no fix that can run here"),
        ({"fixed": ["graph"]}, "its full set has 'graph', which is no fix that can run here"),
        ({"fixed": ["nothing"]}, "its full set has 'nothing'"),
        ({"fixed": "batch"}, "TypeError: 'batch' is not a list"),
        ({"fixes": entries(fix("async", excludes=["batch"]))}, "both batch and async, which exclude each other"),
        ({"fixes": entries(fix("graph", requires=["lost"]))}, "graph speaks of 'lost', which is not in it"),
        ({"fixes": entries(fix("embed", available=False))}, "prefetch is available, and embed, which it requires, is"),
        ({"fixes": entries(fix("learn", kind="magic"))}, "learn is of the unknown kind 'magic'"),
        ({"fixes": entries(fix("../up"))}, "'../up' is no name of a fix"),
        ({"fixes": entries(fix("fixed"))}, "'fixed' is no name of a fix"),
        ({"fixes": [*entries(), fix("async")]}, "two fixes have the same name"),
        ({"fixes": entries(fix("x", requires=["embed"], excludes=["async"]))}, "x requires and excludes async, embed"),
        ({"fixes": [{"name": "batch"}]}, "KeyError: 'removes'"),
        ({"sweep": [0]}, "a chunk of its sweep holds no token"),
        ({"sweep": ["many"]}, "ValueError: invalid literal"),
    ],
)
def test_a_list_that_contradicts_itself_is_refused_in_one_line(changes: dict[str, Any], statement: str) -> None:
    with pytest.raises(ProfilerError) as caught:
        fix_list(**changes)
    message = str(caught.value)
    assert message.startswith("the trainer's list of fixes (--list-fixes) is wrong: ")
    assert statement in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "usage: ...", "[]", "null", '{"device": "host"}'])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ProfilerError, match=r"the trainer's list of fixes .* is wrong"):
        read_fixes(text)
