"""Reports of every kind of results, as far as tests/approval does not show it: order, colours, and small rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePath

import pytest

from profiler.analyse.model.comparison import Comparison
from profiler.analyse.model.host import LineCost
from profiler.core.errors import Notice
from profiler.report import blocks
from profiler.report.build import build_report, section_plugins
from profiler.report.model import Results, exit_status, group_warnings, load_warnings
from profiler.report.render import html
from profiler.report.text import local_time
from profiler.run.model import RunInfo, Site
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
        "verdict numbers timeline findings ladder ranks roofline doing breakdown lines spikes outside input "
        "throughput utilization counters idle kernels hot flame learning method environment"
    )


@pytest.mark.parametrize("make", SUBJECTS, ids=lambda make: make.__name__)
def test_the_same_results_give_the_same_report_without_empty_sections(make: Callable[[], Results]) -> None:
    report = build_report(make())
    assert all(section.blocks and section.title for section in report.sections)
    assert report == build_report(make())


@pytest.mark.parametrize(("floor", "gain"), [(0.97, ""), (1.04, ""), (1.5, "1.50×")])
def test_faster_kernels_are_never_said_to_give_less_than_nothing(floor: float, gain: str) -> None:
    """A floor that is slower than the baseline bounds nothing: `0.970x is the most that ... could give`."""
    values = samples.FLOOR | {"tokens_per_s": floor * samples.AS_FOUND["tokens_per_s"]}
    made = samples.comparison()
    base = made.sides[0].measures["tokens_per_s"].value or 0.0
    side = samples.side("floor", values, detail=False)
    measure = replace(side.measures["tokens_per_s"], value=floor * base)
    side = replace(side, measures={**side.measures, "tokens_per_s": measure})
    text = of_kind(replace(made, floor=side), "throughput", blocks.Text)[0].text
    assert (gain in text) if gain else ("nothing that can be measured" in text), text
    assert "0.97" not in text


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


def test_curves_of_one_kind_share_a_plot_and_have_the_colour_of_their_side() -> None:
    (share,) = of_kind(samples.comparison(), "utilization", blocks.Lines)  # and none of the parts of a busy core
    (panel,) = share.panels
    assert (
        share.legend()
        == tuple((curve.label, curve.tone) for curve in panel.curves)
        == (("as-found", "s1"), ("fixed", "s2"))
    )
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


def with_lines(results: Comparison, *times: float, tokens: tuple[float, float] | None = None) -> Comparison:
    """Both sides with lines of one function, of so many seconds per step, and one of their own."""
    sides = []
    for index, (side, seconds) in enumerate(zip(results.sides, times, strict=True)):
        assert side.detail is not None
        sites = Site("train.py", 9, "<b>step</b>"), Site(f"{side.label}.py", 7, "<module>")
        lines = tuple(LineCost(site, "", seconds / n, 0.1, 0.0, 0.2, 9, {}) for n, site in enumerate(sites, 1))
        rates = {} if tokens is None else {"tokens_per_s": tokens[index]}
        measures = {name: replace(side.measures[name], value=value) for name, value in rates.items()}
        steps = {} if tokens is None else {"step_time": replace(side.measures["step_time"], value=1.0)}
        sides.append(
            replace(side, detail=replace(side.detail, lines=lines), measures={**side.measures, **measures, **steps})
        )
    return replace(results, sides=tuple(sides))


def test_a_slope_chart_stands_where_sides_differ_many_times() -> None:
    results = with_lines(samples.comparison(after=samples.HOSTILE), 0.4, 0.1, tokens=(100.0, 100.0))
    [chart] = of_kind(results, "lines", blocks.SlopeChart)
    assert [(each.label, each.texts, each.change) for each in chart.slopes] == [
        ("<b>step</b> (train.py)", ("400 ms", "100 ms"), "1/4"),
        (f"{PurePath(samples.HOSTILE).name}.py", ("–", "50.0 ms"), ""),
        ("as-found.py", ("200 ms", "–"), ""),
    ]
    page = html.render(build_report(results))
    assert "&lt;b&gt;step&lt;/b&gt; (train.py)" in page
    assert "<b>step" not in page
    assert "<script>alert" not in page
    assert not of_kind(with_lines(samples.comparison(), 0.2, 0.1, tokens=(9.0, 9.0)), "lines", blocks.SlopeChart)


@pytest.mark.parametrize(
    ("functions", "labels"),
    [
        (("Encoder.forward", "Decoder.forward"), ("Decoder.forward (train.py)", "Encoder.forward (train.py)")),
        (("Encoder.forward", "main.<locals>.step"), ("forward (train.py)", "step (train.py)")),
        (("main.<locals>.<lambda>", "forward"), ("forward (train.py)", "main.<lambda> (train.py)")),
    ],
)
def test_functions_of_a_slope_chart_have_their_class_where_names_would_be_equal(
    functions: tuple[str, str], labels: tuple[str, str]
) -> None:
    results = samples.comparison()
    sides = []
    for side, seconds in zip(results.sides, (0.4, 0.1), strict=True):
        assert side.detail is not None
        lines = (LineCost(Site("train.py", 9, name), "", seconds, 0.1, 0.0, 0.2, 9, {}) for name in functions)
        sides.append(replace(side, detail=replace(side.detail, lines=tuple(lines))))
    [chart] = of_kind(replace(results, sides=tuple(sides)), "lines", blocks.SlopeChart)
    assert tuple(each.label for each in chart.slopes) == labels


@pytest.mark.parametrize(
    ("commands", "shown"),
    [
        (("/env/bin/python a.py", "/env/bin/python b.py"), ("python a.py", "python b.py")),
        (("/envA/bin/python a.py", "/envB/bin/python a.py"), ("/envA/bin/python a.py", "/envB/bin/python a.py")),
        (("old/run.sh --x", "new/run.sh --x"), ("old/run.sh --x", "new/run.sh --x")),
        (("run.sh a/b", "new/run.sh a/b"), ("run.sh a/b", "new/run.sh a/b")),
        (("/env/bin/python a.py", ""), ("python a.py", "")),
    ],
)
def test_commands_are_shown_without_a_folder_that_they_share(commands: tuple[str, str], shown: tuple[str, str]) -> None:
    results = samples.comparison()
    sides = tuple(replace(side, command=text) for side, text in zip(results.sides, commands, strict=True))
    [table] = (
        table
        for table in of_kind(replace(results, sides=sides), "environment", blocks.Table)
        if table.caption == "What differs between the sides"
    )
    [cells] = (row[1:] for row in table.rows if row[0].text == "command")
    assert tuple((cell.text, cell.title, cell.code) for cell in cells) == tuple(
        (text, command, True) for text, command in zip(shown, commands, strict=True)
    )


def test_slopes_are_per_unit_of_work_where_steps_differ_in_it() -> None:
    results = with_lines(samples.comparison(), 0.1, 0.1, tokens=(10.0, 100.0))
    [chart] = of_kind(results, "lines", blocks.SlopeChart)
    assert chart.slopes[0].texts == ("10.0 ms", "1.00 ms")
    assert "per token" in chart.caption
