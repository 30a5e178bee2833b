"""The line below which a library runs the steps, and the functions of that library."""

from __future__ import annotations

from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
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


def test_the_functions_of_a_library_that_drives_the_steps_are_named() -> None:
    learn = f"{LOOP} {LIBRARY}:7:Model.learn"
    rollouts, batch = f"{learn} {LIBRARY}:20:Model.collect", f"{learn} {LIBRARY}:30:Model.update"
    analysis = recorded((f"{rollouts} {LIBRARY}:40:Env.step", 4), (rollouts, 4), (batch, 2))
    driver = analysis.driver
    assert driver is not None
    assert (driver.site.line, driver.site.function, driver.share) == (9, "train", 1.0)
    assert [(name, round(share, 2)) for name, share in driver.functions] == [
        ("rl.algo.Model.learn", 1.0),
        ("rl.algo.Model.collect", 0.8),
    ]


def test_a_library_that_does_not_drive_the_steps_is_not_named() -> None:
    called = f"/x/train.py:5:train {LIBRARY}:7:clean"
    assert recorded((LOOP, 6), (called, 4)).driver is None


def test_few_samples_name_no_driver() -> None:
    builder = RunBuilder(device="cpu")
    builder.steps(100, 10 * MS)
    builder.boundary(1)
    builder.sample("stacks.period_s", 1, 0.01)
    for step in range(4):
        builder.stack([TRAIN, LOOP, f"{LIBRARY}:7:Model.learn"], step * 10 * MS, (step + 1) * 10 * MS)
    assert analyse(builder.build()).driver is None
