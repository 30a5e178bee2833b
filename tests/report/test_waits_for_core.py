"""A comparison of which a side waited for a core: a bound instead of a ratio of times, and one figure of busy."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profiler import analyse_run
from profiler.analyse.comparison import SideRuns, compare
from profiler.analyse.figures import timeline_excerpt
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison
from profiler.diagnose.comparison import diagnose_comparison
from profiler.report.build import build_report
from profiler.report.comparison_text import with_comparison_verdict
from profiler.report.render.json import compare_json
from profiler.report.render.markdown import render
from profiler.run.tables import ActivityKind
from tests.recorded.builders import MS, PID, RunBuilder

STEPS = 20
WORKS = re.compile(r"the device works ([\d.]+)% of the time")


def run(length: int, *, busy: float, waits: float, lacked: float, count: int, level: str = "light") -> Analysis:
    """A run of 20 steps.

    :param length: ns of a step, which has `count` syncs and as many allocations.
    :param busy: share of a step in which the device works.
    :param waits: share in which the host waits for a core. In half of it the device has no core either.
    :param lacked: share in which the device has no core.
    """
    builder = RunBuilder(device="host", level=level, host={"cores": 2})
    builder.steps(STEPS, length, tokens=3000)
    amounts = {"syncs": count, "h2d": count, "d2h": count, "launches": count, "allocations": count - 1}
    shares = {"device_busy_ns": busy, "device_lacked_ns": lacked, "waits_stalled_ns": waits / 2, "waits_delayed_ns": 0}
    for step in range(STEPS):
        for name, amount in {**amounts, **{name: share * length for name, share in shares.items()}}.items():
            builder.counter(name, amount, step=step)
        if level != "light":
            builder.activity(ActivityKind.KERNEL, step * length, step * length + round((busy + lacked / 2) * length))
    for boundary in range(STEPS + 1):
        at = boundary * length
        builder.thread_clocks(at, round(at * (1 - waits)), round(at * waits / 2))
        for name, value in (("machine.cpu_util", 1.0), ("machine.steal", 0.0)):
            builder.sample(name, at, value)
        builder.sample("process.cpu", at, 0.8 if waits else 2.0, pid=PID)
    recorded = builder.build()
    return replace(analyse_run(recorded), timeline=timeline_excerpt(recorded))


def comparison(*, waits: float, slow: int = 100 * MS, fast: int = 2 * MS) -> Comparison:
    """Two pairs and a breakdown pass. The slow side loses `waits` of its time, and so does the device of both."""
    sides = []
    for label, length, busy, count in (("before", slow, 0.05, 6000), ("after", fast, 0.5, 1)):
        light, detail = (
            run(length, busy=busy, waits=waits, lacked=0.4 * bool(waits), count=count, level=level)
            for level in ("light", "standard")
        )
        sides.append(SideRuns(label, "", (light, light), detail))
    compared = compare(sides)
    return with_comparison_verdict(compared, diagnose_comparison(compared))


def test_a_side_that_waits_for_a_core_gives_a_bound_with_its_reason_and_the_counts() -> None:
    """The slow side is 50 times as slow, but has no core for three quarters of its time."""
    compared = comparison(waits=0.75)
    report, text = compare_json(compared), render(build_report(compared))
    assert text.startswith(
        "# after trains at least 12.5× faster: before waited 75% of the time for a core that other programs had\n"
    )
    ratio = report["ratios"]["after"]["tokens_per_s"]
    assert (ratio["value"], ratio["low"], ratio["high"]) == (None, None, None)
    assert ratio["bound"] == pytest.approx(12.5)
    assert report["ratios"]["after"]["step_time"]["bound"] == pytest.approx(1 / 12.5)
    assert report["not_measured"]["ratios.after.tokens_per_s.value"] == (
        "before waited 75% of the time for a core that other programs had"
    )
    assert "50" not in re.findall(r"([\d,.]+)×", text), "the ratio of times"
    counts = (
        "syncs from 6,000 to 1, H2D copies from 6,000 to 1, D2H copies from 6,000 to 1, allocations from 5,999 to 0"
    )
    assert f"Other programs do not change the counts of a step: {counts} and launches from 6,000 to 1." in text
    assert report["verdict"].startswith("after runs at least 12.5× the tokens/s of before")
    assert counts in report["verdict"]
    assert "the host can give" not in text


def test_a_bound_that_says_nothing_is_not_told() -> None:
    compared = comparison(waits=0.75, slow=6 * MS)
    report, text = compare_json(compared), render(build_report(compared))
    assert text.startswith("# The speed of after relative to before is not known: before waited 75% of the time")
    assert report["ratios"]["after"]["tokens_per_s"]["bound"] is None
    assert "syncs from 6,000 to 1" in report["verdict"]


def test_a_quiet_pair_has_its_ratio() -> None:
    compared = comparison(waits=0.0)
    report, text = compare_json(compared), render(build_report(compared))
    assert text.startswith("# after trains 50× faster: 30.0k → 1.50M tokens/s\n")
    assert report["ratios"]["after"]["tokens_per_s"]["value"] == pytest.approx(50)
    assert report["ratios"]["after"]["tokens_per_s"]["bound"] is None
    assert "steps would be at most 2.0× as fast" in text


@pytest.mark.parametrize(("waits", "shares"), [(0.0, (5, 50)), (0.75, (8, 83))])
def test_headline_picture_and_table_have_one_figure_of_busy(waits: float, shares: tuple[int, int]) -> None:
    """What others took from the device's core, 40% here, is neither busy nor idle."""
    text = render(build_report(comparison(waits=waits)))
    works = tuple(round(float(share)) for share in WORKS.findall(text.partition("## ")[0]))
    assert works == (*shares, *shares), "the sentences, then the note of the picture"
    (row,) = re.findall(r"\| Device busy \| ([\d.]+)%[^|]*\| ([\d.]+)%", text)
    assert tuple(round(float(share)) for share in row) == shares


@pytest.mark.parametrize(("used", "share"), [(1.88, 0.06), (0.9, 0.3)])
def test_a_program_that_uses_the_cores_itself_waits_for_its_own_threads(used: float, share: float) -> None:
    """Others use the rest of 2 cores. The busy program loses their share of them, the other one all that it waited."""
    builder = RunBuilder(device="cpu", host={"cores": 2})
    builder.steps(STEPS, MS, tokens=1)
    for boundary in range(STEPS + 1):
        builder.thread_clocks(boundary * MS, round(boundary * MS * 0.7), round(boundary * MS * 0.3))
        builder.sample("machine.cpu_util", boundary * MS, 1.0)
        builder.sample("process.cpu", boundary * MS, used, pid=PID)
        builder.sample("machine.steal", boundary * MS, 0.0)
    assert analyse_run(builder.build()).measures["without_core"].value == pytest.approx(share)
