"""Every section builds for every kind of subject, and shows what was not measured as such."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from profiler.analyse.model import Analysis, Comparison, HostState, Side
from profiler.core.notice import Notice
from profiler.report import blocks
from profiler.report.build import build_report, local_time, section_plugins
from profiler.report.model import ReportSide, Results
from profiler.report.sections.device import idle_summary
from tests.fakes.sentences import note
from tests.report import ladders, samples

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
OF_LADDERS = {"ladder", "quick-fix", "claims"}
WHERE_SAMPLED = {"doing", "input", "lines", "outside", "spikes"}
"""Sections that say nothing where no stacks were sampled, no loader was watched, or no step takes longer."""


def all_blocks(found: tuple[blocks.Block, ...]) -> Iterator[blocks.Block]:
    for block in found:
        yield block
        if isinstance(block, blocks.Group):
            for _, inner in block.columns:
                yield from all_blocks(inner)


def of_kind(subject: Results, key: str, kind: type[blocks.Block]) -> list:
    section = next(section for section in build_report(subject).sections if section.key == key)
    return [block for block in all_blocks(section.blocks) if isinstance(block, kind)]


def with_sides(*changed: Side) -> Comparison:
    """The made-up comparison in which these sides stand for the sides of their labels."""
    comparison, sides = samples.comparison(), {side.label: side for side in changed}
    return replace(comparison, sides=tuple(sides.get(side.label, side) for side in comparison.sides))


def listed_warnings(subject: Results) -> list[str]:
    lists = of_kind(subject, "method", blocks.Items)
    return [item for block in lists if block.title == "Warnings" for item in block.items]


def text_of(value: object) -> str:
    """All text in a block, wherever it stands."""
    if isinstance(value, str):
        return value + "\n"
    if dataclasses.is_dataclass(value):
        return "".join(text_of(getattr(value, field.name)) for field in dataclasses.fields(value))
    return "".join(map(text_of, value)) if isinstance(value, tuple) else ""


def test_sections_come_in_their_order() -> None:
    assert " ".join(plugin.name for plugin in section_plugins()) == (
        "verdict throughput ladder quick-fix claims doing breakdown lines spikes outside input utilisation counters "
        "idle hot flame timeline learning environment method"
    )


@pytest.mark.parametrize("make", SUBJECTS, ids=lambda make: make.__name__)
def test_every_section_has_something_to_say(make: Callable[[], Results]) -> None:
    subject = make()
    report = build_report(subject)
    laddered = isinstance(subject, Comparison) and "ladder" in subject.extensions
    absent = WHERE_SAMPLED if laddered else OF_LADDERS | WHERE_SAMPLED
    if isinstance(subject, Analysis):
        learned = [measure for name in ("loss", "accuracy") if (measure := subject.measures.get(name))]
        absent = absent | (set() if subject.timeline else {"timeline"})
        absent = absent | (set() if any(measure.value is not None for measure in learned) else {"learning"})
    expected = [plugin.name for plugin in section_plugins() if plugin.name not in absent]
    assert [section.key for section in report.sections] == expected
    assert all(section.blocks and section.title for section in report.sections)
    assert report == build_report(make()), "the same subject gave another report"


@pytest.mark.parametrize("make", [samples.empty_comparison, samples.empty_analysis], ids=lambda make: make.__name__)
def test_what_was_not_measured_has_its_reason_in_every_section(make: Callable[[], Results]) -> None:
    for section in build_report(make()).sections:
        if section.key == "environment":
            continue
        found = list(all_blocks(section.blocks))
        absent = [block for block in found if isinstance(block, blocks.NotMeasured)]
        cells = [c for t in found if isinstance(t, blocks.Table) for row in t.rows for c in row if c.missing]
        listed = [i for b in found if isinstance(b, blocks.Items) for i in b.items if "not measured: " in i]
        assert absent or cells or listed, f"{section.key} does not say what is missing"
        assert all(block.reason for block in absent)
        numbers = [c for t in found if isinstance(t, blocks.Table) for row in t.rows for c in row if c.text == "0"]
        assert not [cell for cell in numbers if cell.sort == 0.0 and section.key != "method"], (
            f"a zero in {section.key}"
        )


def test_an_empty_fact_is_no_row_of_the_environment() -> None:
    subject = samples.comparison()
    blank = replace(
        subject, environment=(*subject.environment, ("device note", " ")), differences=(("note", ("", "")),)
    )
    tables = of_kind(blank, "environment", blocks.Table)
    assert not [row for table in tables for row in table.rows if "note" in row[0].text]


def test_idle_time_says_which_pass_it_is_of_and_what_is_left_out() -> None:
    subject = samples.comparison()
    first = subject.sides[0]
    own = replace(first.detail.idle[0], state=HostState.RECORDING, share_of_wall=0.1)
    detail = replace(first.detail, idle=(own, *first.detail.idle))
    [table] = idle_summary(ReportSide.from_side(replace(first, detail=detail), "s1"))
    assert table.caption.endswith("device idle time, breakdown pass")
    assert table.note == "The recorder's own 10.0% left out."
    assert all("own recording" not in row[0].text for row in table.rows)
    [clean] = idle_summary(ReportSide.from_side(replace(first, detail=replace(detail, idle=detail.idle[1:])), "s1"))
    assert clean.note == ""
    assert all("breakdown pass" in one.caption for one in of_kind(subject, "idle", blocks.Table))
    assert "Measured in the breakdown pass." in text_of(build_report(subject).sections[0].blocks)
    assert not [t for t in of_kind(samples.analysis(), "idle", blocks.Table) if "breakdown pass" in t.caption]


def test_a_forced_and_a_refused_comparison_are_marked() -> None:
    forced = of_kind(samples.forced_comparison(), "verdict", blocks.Callout)[1]
    assert (forced.tone, forced.label) == ("warning", "Forced")
    assert "device: host against cuda" in forced.text
    refused = replace(samples.forced_comparison(), forced=False)
    assert of_kind(refused, "verdict", blocks.Callout)[1].label == "Not comparable"


def test_every_pair_is_a_dot() -> None:
    subject = samples.comparison()
    runs, pairs = of_kind(subject, "throughput", blocks.IntervalChart)
    assert [len(row.dots) for row in runs.rows] == [5, 5, 5]
    assert len(pairs.rows[0].dots) == subject.pairs


def test_what_follows_the_headline_goes_into_smaller_type() -> None:
    """Also where a label holds a colon or the end of a sentence."""
    first = "exp: a. b runs 1.23× (95% 1.20 to 1.26) the steps/s of base: c on the CPU,"
    second = "with the time of optimizer from 330 µs to 189 µs a step (most at plain.py:21, 330 µs)."
    subject = replace(samples.comparison(), verdict=f"{first} {second}", headline=first)
    callout = of_kind(subject, "verdict", blocks.Callout)[0]
    assert (callout.text, callout.detail) == (first, second)
    assert callout.full_text() == subject.verdict


def test_categories_and_counters_that_nobody_listed_are_shown() -> None:
    side = samples.side("as-found", samples.AS_FOUND | {"graph_breaks_per_step": 3.0})
    detail = replace(
        side.detail,
        breakdown={
            **side.detail.breakdown,
            "gossip": replace(next(iter(side.measures.values())), name="gossip", value=0.01),
        },
    )
    subject = replace(samples.comparison(), sides=(replace(side, detail=detail),))
    assert "Graph breaks per step" in text_of(of_kind(subject, "counters", blocks.Table)[0])
    assert "gossip" in text_of(of_kind(subject, "breakdown", blocks.Table)[0])


def test_flame_graphs_are_pruned_and_their_difference_leans() -> None:
    before, after, difference = of_kind(samples.comparison(), "flame", blocks.Flame)
    frames, stack = 0, [before.root]
    while stack:
        frame = stack.pop()
        frames += 1
        assert frame.value >= 0.001 * before.root.value
        assert "crumb" not in frame.label
        stack.extend(frame.children)
    assert 60 < frames < 100, frames
    assert after.root.value < before.root.value
    hostile, waiting = difference.root.children[0].children[0].children
    assert (hostile.lean, waiting.lean) == (-1.0, 1.0)


def test_a_gap_that_the_breakdown_pass_filled_is_no_gap() -> None:
    first = samples.comparison().sides[0]
    light = replace(first.runs[0], missing=(samples.Missing(samples.Topic.FLAME_GRAPH, note("level light")),))
    section = build_report(with_sides(replace(first, runs=(light, *first.runs[1:])))).sections[-1]
    assert "level light" not in text_of(section.blocks)
    assert "no NVIDIA driver" in text_of(section.blocks)


def test_times_are_shown_to_the_minute() -> None:
    assert local_time("2025-01-02T03:04:05+00:00") == "2025-01-02 03:04 UTC"
    assert local_time("yesterday") == "yesterday"


def test_warnings_that_differ_in_numbers_only_are_listed_once() -> None:
    first = samples.comparison().sides[0]
    runs = tuple(
        replace(run, warnings=(Notice("drift", {"change": 0.2 + number / 100}), note("torn table")))
        for number, run in enumerate(first.runs)
    )
    warnings = listed_warnings(with_sides(replace(first, runs=runs)))
    assert "as-found: steps drift: the last third takes 20% more time than the first (and 4 more like this)" in warnings
    assert "as-found: torn table" in warnings


def test_curves_of_one_kind_have_the_colour_of_their_side_and_no_legend() -> None:
    share, cores = of_kind(samples.comparison(), "utilisation", blocks.Lines)
    assert [panel.curves[0].tone for panel in share.panels] == ["s1", "s2"]
    assert share.legend() == ()
    assert [label for label, _ in cores.legend()] == ["Host CPU", "Device CPU"]
    assert share.y_max == 100.0


def test_a_breakdown_pass_quicker_than_the_light_runs_is_doubted() -> None:
    last = samples.comparison().sides[1]
    quicker = replace(last, recording_slowdown=replace(last.recording_slowdown, value=0.97))
    [warning] = [warning for warning in listed_warnings(with_sides(quicker)) if ": the breakdown pass" in warning]
    assert warning.startswith("fixed: the breakdown pass was not slower than the light runs (0.97×)")


def test_one_pair_has_no_interval_and_that_is_no_lack_of_difference() -> None:
    subject = samples.comparison()
    one = {
        name: replace(ratio, low=None, high=None, n=1, different=False, reason=ratio.reason or Notice("one-pair"))
        for name, ratio in subject.ratios["fixed"].items()
    }
    said = text_of(build_report(replace(subject, ratios={"fixed": one})).sections[0])
    assert "one pair: no interval" in said
    assert "no difference seen" not in said


def test_a_job_that_was_looked_at_has_no_page_of_reasons() -> None:
    empty = samples.empty_analysis()
    attached = replace(empty, info=replace(empty.info, state="attached"))
    assert [section.key for section in build_report(attached).sections] == ["verdict", "environment", "method"]
