"""The answer that `run` ends with: what stands in it, that it is short, and what a light run says instead."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import Analysis, LineCost, Measure, Phase
from profiler.report.summary import ADDS, summary
from profiler.run.model import Site
from tests.report import samples

LOOP, LOG = Site("train.py", 41, "main"), Site("train.py", 7, "log_metrics")
LINES = tuple(
    LineCost(site, "", seconds, seconds * 10, 0.0, 1.0, 100, {kind: seconds})
    for site, seconds, kind in ((LOOP, 0.06, "compute"), (LOG, 0.02, "log"), (LOOP, 0.01, "python"), (LOG, 0.01, "log"))
)
PHASES = (
    Phase("data", 0.03, 0.3, 0.3, 0.3),
    Phase("forward", 0.0, 0.0, 0.0, 0.0),
    Phase("backward", 0.07, 0.7, 0.7, 0.7),
)


def found(level: str) -> Analysis:
    times = {"step_time": 0.1, "step_time_p50": 0.09, "step_time_p95": 0.2}
    measures = {name: Measure(name, value, "s") for name, value in times.items()}
    measures["steps_per_s"] = Measure("steps_per_s", 10.0, "steps/s")
    detail = {"lines": LINES, "phases": PHASES} if level != "light" else {}
    return Analysis(samples.info("run", level), measures, {}, {}, verdict="The verdict.", **detail)  # type: ignore[arg-type]


def test_the_verdict_then_the_step_its_parts_and_three_lines() -> None:
    lines = [line.text for line in summary(found("standard"))]
    assert lines[0] == "The verdict."
    assert lines[1] == "  a step takes 90.0 ms (median; mean 100 ms, 95% below 200 ms), 10.0 steps/s"
    bar, legend = lines[2], lines[3]
    assert (bar.count("█"), bar.count("▒"), len(bar.strip())) == (18, 42, 60), "30% and 70% of 60 characters"
    assert legend.split() == ["█", "data", "30.0%", "▒", "backward", "70.0%"], "a part without time is not there"
    assert [line.split()[0] for line in lines[4:]] == ["train.py:41", "train.py:7", "train.py:41"]
    assert lines[4].split()[1:] == ["60.0%", "60.0", "ms", "a", "step", "compute"]


def test_light_says_what_standard_would_add() -> None:
    lines = [line.text.strip() for line in summary(found("light"))]
    assert lines == ["a step takes 90.0 ms (median; mean 100 ms, 95% below 200 ms), 10.0 steps/s", ADDS]


def test_tokens_where_steps_say_them_and_plain_characters_where_they_must() -> None:
    analysis = found("standard")
    tokens = {**analysis.measures, "tokens_per_s": Measure("tokens_per_s", 2000.0, "tokens/s")}
    lines = [line.text for line in summary(replace(analysis, measures=tokens), unicode=False)]
    assert lines[1].endswith("10.0 steps/s, 2.00k tokens/s")
    assert all(line.isascii() for line in lines)
    points = {**analysis.measures, "tokens_per_s": Measure("tokens_per_s", 2000.0, "points/s")}
    assert summary(replace(analysis, measures=points))[1].text.endswith("10.0 steps/s, 2.00k points/s")


def test_without_steps_there_is_the_verdict_alone() -> None:
    nothing = replace(samples.empty_analysis(), verdict="Nothing was measured: no step was closed.")
    assert [line.text for line in summary(nothing)] == ["Nothing was measured: no step was closed."]
