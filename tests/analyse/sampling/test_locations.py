"""The place of a category's time: a line, else a function, else a path of calls, and the functions of a library."""

from __future__ import annotations

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Analysis, Location, LocationKind
from tests.recorded.builders import MS, RunBuilder

LIBRARY = "/env/lib/python3.11/site-packages/rl/algo.py"
TRAIN, LOOP = "/x/train.py:50:<module>", "/x/train.py:9:train"


def recorded(*stacks: tuple[str, int]) -> Analysis:
    """A run of 100 steps of 10 ms on a CPU, with these frames below TRAIN and their ms a step."""
    builder = RunBuilder(device="cpu")
    builder.steps(100, 10 * MS)
    builder.boundary(1)
    begin = 0
    for step in range(100):
        begin = step * 10 * MS
        for frames, length in stacks:
            builder.stack([TRAIN, *frames.split()], begin, begin + length * MS)
            begin += length * MS
    return analyse(builder.build())


def described(location: Location) -> tuple[str, list[str], float]:
    sites = [f"{site.file.rpartition('/')[2]}:{site.line}:{site.function}" for site in location.path]
    return location.kind, sites, round(location.share, 2)


@pytest.mark.parametrize(
    ("stacks", "expected"),
    [
        # a line holds most
        (
            [(LOOP, 6), ("/x/train.py:10:train", 4)],
            [("line", ["train.py:9:train"], 0.6), ("line", ["train.py:10:train"], 0.4)],
        ),
        # a function holds most, and no line of it does; comprehensions belong to their function
        (
            [(f"{LOOP} /x/f.py:{line}:features", 2) for line in (3, 4, 5)]
            + [(f"{LOOP} /x/f.py:6:features /x/f.py:6:features.<locals>.<listcomp>.<listcomp>", 2), (LOOP, 2)],
            [("function", ["f.py:6:features"], 0.8), ("line", ["train.py:9:train"], 0.2)],
        ),
        # a line holds most of its function, which holds most, but not most of all
        (
            [(f"{LOOP} /x/f.py:3:features", 4), (f"{LOOP} /x/f.py:4:features", 3), (LOOP, 3)],
            [("function", ["f.py:3:features"], 0.7), ("line", ["train.py:9:train"], 0.3)],
        ),
        # the functions that a function calls
        (
            [(f"{LOOP} /x/f.py:3:both /x/f.py:{line}:part{line}", 3) for line in (7, 8, 9)] + [(LOOP, 1)],
            [("call-path", ["train.py:9:train", "f.py:3:both"], 0.9), ("line", ["train.py:9:train"], 0.1)],
        ),
        # nothing holds most: only what holds a tenth of the step
        (
            [(f"/x/train.py:{line}:train /x/f.py:{line}:f{line}", 3) for line in (1, 2, 3)] + [(LOOP, 1)],
            [("line", [f"f.py:{line}:f{line}"], 0.3) for line in (3, 2, 1)],
        ),
    ],
)  # fmt: skip
def test_the_place_of_most_of_the_time(
    stacks: list[tuple[str, int]], expected: list[tuple[str, list[str], float]]
) -> None:
    assert [described(location) for location in recorded(*stacks).locations["python"]] == expected


def test_the_functions_of_a_library_that_drives_the_steps_are_named() -> None:
    learn = f"{LOOP} {LIBRARY}:7:Model.learn"
    rollouts, batch = f"{learn} {LIBRARY}:20:Model.collect", f"{learn} {LIBRARY}:30:Model.update"
    analysis = recorded((f"{rollouts} {LIBRARY}:40:Env.step", 4), (rollouts, 4), (batch, 2))
    (location,) = analysis.locations["python"]
    assert described(location) == (LocationKind.LINE, ["train.py:9:train"], 1.0)
    assert [(name, round(share, 2)) for name, share in location.library] == [
        ("rl.algo.Model.learn", 1.0),
        ("rl.algo.Model.collect", 0.8),
    ]


def test_a_library_that_does_not_drive_the_steps_is_not_named() -> None:
    called = f"/x/train.py:5:train {LIBRARY}:7:clean"
    (location, _) = recorded((LOOP, 6), (called, 4)).locations["python"]
    assert location.library == ()


def test_few_samples_name_no_place() -> None:
    builder = RunBuilder(device="cpu")
    builder.steps(100, 10 * MS)
    builder.boundary(1)
    builder.sample("stacks.period_s", 1, 0.01)
    for step in range(4):
        builder.stack([TRAIN, LOOP], step * 10 * MS, (step + 1) * 10 * MS)
    assert not analyse(builder.build()).locations
