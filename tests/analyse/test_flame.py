"""Flame graphs, shares of stacks, and the difference of two flame graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.figures import MAX_DEPTH, flame_difference
from profiler.analyse.model.host import FlameNode
from profiler.analyse.model.measures import Topic
from profiler.run.model import Site
from profiler.run.tables import CallKind
from tests.recorded.builders import MS, RunBuilder, timeline

MAIN, LOOP, LOOP_2, SYNC = "t.py:1:main", "t.py:10:loop", "t.py:12:loop", "d.py:5:sync"


def test_values_are_seconds_per_step_by_share_of_samples() -> None:
    run = timeline(
        f"step 0 100; step 200 300; stack {MAIN}>{LOOP} 0 40; stack {MAIN}>{LOOP_2}>{SYNC} 40 120 active=0;"  # 60 in it
        f"stack {MAIN} 120 200; stack {MAIN}>{LOOP_2} 200 260; stack {MAIN}>{SYNC} 0 300 thread=999",
        tick=MS,
    )
    tree = analyse(run).flame
    # 160 ms of 200 ms were sampled; the shares are scaled to the step time of 100 ms
    scale = 0.100 / 160
    assert (tree.name, tree.value) == ("all", pytest.approx(0.100))
    [main] = tree.children
    [loop] = main.children
    [sync] = loop.children
    assert [main.value, loop.value, sync.value] == pytest.approx([160 * scale, 160 * scale, 60 * scale])
    assert loop.site == Site("t.py", 12, "loop")  # the line sampled most: 120 ms against 40
    assert sync.site == Site("d.py", 5, "sync")


def test_small_frames_fold_into_their_parent_and_deep_ones_are_cut() -> None:
    tree = analyse(timeline(f"step 0 100000; stack {MAIN}>{LOOP} 0 99990; stack {MAIN}>{SYNC} 99990 100000")).flame
    assert [child.name for child in tree.children[0].children] == ["loop"]
    deep = ">".join(f"t.py:{line}:f{line}" for line in range(500))
    node, depth = analyse(timeline(f"step 0 100; stack {deep} 0 100")).flame, 0
    while node.children:
        node, depth = node.children[0], depth + 1
    assert depth == MAX_DEPTH


def test_frames_of_two_checkouts_are_the_same() -> None:
    def flame(project: str, packages: str) -> FlameNode:
        """A checkout with a folder of installed packages."""
        builder = RunBuilder()
        builder.step(0, 100 * MS)
        frames = (f"{project}/scripts/train.py:10:main", f"{project}/lib/model.py:5:f", f"{packages}/torch/nn.py:7:g")
        builder.stack(frames, 0, 100 * MS)
        run = builder.build()
        tree = analyse(replace(run, info=replace(run.info, project=project, cwd=f"{project}/scripts"))).flame
        assert tree is not None
        return tree

    first = flame("/home/someone/project", "/home/someone/project/.venv/lib/python3.12/site-packages")
    other = flame("/tmp/worktree", "/opt/env/lib/python3.12/site-packages")
    main = flame_difference(first, other).children[0]
    model = main.children[0]
    files = [node.site.file for node in (main, model, model.children[0]) if node.site]
    assert files == ["scripts/train.py", "lib/model.py", "torch/nn.py"]
    assert main.before == main.after == model.children[0].after > 0


@pytest.mark.parametrize(("level", "reason"), [("light", "level-light"), ("standard", "no-stack-samples")])
def test_without_samples_there_is_a_reason(level: str, reason: str) -> None:
    analysis = analyse(timeline("step 0 100", level=level))
    assert analysis.flame is None
    assert [reason] == [gap.reason.code for gap in analysis.missing if gap.topic is Topic.FLAME_GRAPH]


def test_difference_lays_trees_over_each_other_by_path() -> None:
    def node(name: str, value: float, *children: FlameNode, line: int = 1) -> FlameNode:
        return FlameNode(name, value, Site("t.py", line, name), children)

    before = FlameNode("all", 10, None, (node("main", 10, node("sync", 7), node("log", 1)),))
    after = FlameNode("all", 3, None, (node("main", 3, node("sync", 1, line=9), node("batch", 2)),))
    diff = flame_difference(before, after)
    assert (diff.before, diff.after) == (10, 3)
    (main,) = diff.children
    assert [(child.name, child.before, child.after) for child in main.children] == [
        ("sync", 7, 1),
        ("batch", 0.0, 2),
        ("log", 1, 0.0),
    ]
    assert main.children[0].site == Site("t.py", 9, "sync")


def test_our_wrappers_are_their_callers_time_and_a_recorded_call_stands_for_its_own() -> None:
    builder = RunBuilder()
    builder.step(0, 100)
    builder.named_call(CallKind.MIGHT_SYNC, "item", 0, 10, site=LOOP)
    ours = "/x/profiler/agent/hooks/tensors.py:195:wrapper"
    builder.stack((MAIN, LOOP, ours), 0, 40)
    builder.stack((MAIN, LOOP, ours, SYNC), 40, 60)
    builder.stack((MAIN, LOOP_2, ours), 60, 100)
    tree = analyse(builder.build()).flame
    (main,) = tree.children
    (loop,) = main.children
    assert [(child.name, child.site) for child in loop.children] == [
        ("item", Site("t.py", 10, "item")),
        ("sync", Site("d.py", 5, "sync")),
    ]
    assert loop.value == pytest.approx(main.value), "a wrapper without a recorded call is its caller's time"
