"""Reports of every kind of results, as far as tests/approval does not show it: order, colours, and small rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from profiler.core.notice import Notice
from profiler.report import blocks
from profiler.report.build import build_report, local_time, section_plugins
from profiler.report.model import Results, exit_status, group_warnings, load_warnings
from profiler.run.model import RunInfo
from tests.report import ladders, samples
from tests.report.variants import LOADED, STOLEN

SUBJECTS: tuple[Callable[[], Results], ...] = (
    samples.comparison,
    samples.three_sides,
    samples.forced_comparison,
    samples.empty_comparison,
    samples.analysis,
    samples.empty_analysis,
    ladders.with_ladder,
    ladders.empty_ladder,
    ladders.learner,
)


def all_blocks(given: tuple[blocks.Block, ...]) -> Iterator[blocks.Block]:
    for block in given:
        yield block
        if isinstance(block, blocks.Group):
            for _, inner in block.columns:
                yield from all_blocks(inner)


def of_kind(results: Results, key: str, kind: type[blocks.Block]) -> list:
    section = next(section for section in build_report(results).sections if section.key == key)
    return [block for block in all_blocks(section.blocks) if isinstance(block, kind)]


def test_sections_come_in_their_order() -> None:
    assert " ".join(plugin.name for plugin in section_plugins()) == (
        "verdict numbers timeline findings throughput ladder calls-alone quick-fix ranks claims roofline doing "
        "breakdown lines spikes outside input utilization counters kernels idle hot flame learning environment method"
    )


@pytest.mark.parametrize("make", SUBJECTS, ids=lambda make: make.__name__)
def test_the_same_results_give_the_same_report_without_empty_sections(make: Callable[[], Results]) -> None:
    report = build_report(make())
    assert all(section.blocks and section.title for section in report.sections)
    assert report == build_report(make())


def test_flame_graphs_are_pruned_and_their_difference_leans() -> None:
    before, after, difference = of_kind(samples.comparison(), "flame", blocks.Flame)
    frames, stack = 0, [before.root]
    while stack:
        frame = stack.pop()
        frames += 1
        assert frame.value >= 0.001 * before.root.value
        stack.extend(frame.children)
    assert 60 < frames < 100, frames
    assert after.root.value < before.root.value
    hostile, waiting = difference.root.children[0].children[0].children
    assert (hostile.lean, waiting.lean) == (-1.0, 1.0)


def test_curves_of_one_kind_have_the_colour_of_their_side_and_no_legend() -> None:
    share, cores = of_kind(samples.comparison(), "utilization", blocks.Lines)
    assert [panel.curves[0].tone for panel in share.panels] == ["s1", "s2"]
    assert share.legend() == ()
    assert [label for label, _ in cores.legend()] == ["Host CPU", "Device CPU"]
    assert share.y_max == 100.0


def test_times_are_shown_to_the_minute() -> None:
    assert local_time("2025-01-02T03:04:05+00:00") == "2025-01-02 03:04 UTC"
    assert local_time("yesterday") == "yesterday"


def test_warnings_that_differ_in_numbers_only_are_one() -> None:
    drifts = [Notice("drift", {"change": change}) for change in (0.5, 0.6)]
    grouped = group_warnings([drifts[0], STOLEN, drifts[1]])
    assert [text.endswith(" (and 1 more like this)") for text in grouped] == [True, False]
    assert load_warnings([drifts[0], STOLEN, LOADED]) == group_warnings([STOLEN, LOADED])


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("complete", 0, ""),
        ("failed", 2, "failed after 100 ms with exit code 2"),
        ("failed", -9, "failed after 100 ms by SIGKILL"),
        ("interrupted", -2, "was interrupted after 100 ms by SIGINT"),
        ("failed", None, "failed after 100 ms"),
        ("failed", -999, "failed after 100 ms by signal 999"),
    ],
)
def test_exit_status(state: str, code: int | None, words: str) -> None:
    info = RunInfo(1, "r", "r", ("x",), begin=10**9, end=10**9 + 10**8, state=state, exit_code=code)
    assert exit_status(info) == words
