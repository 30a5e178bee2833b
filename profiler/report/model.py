"""Defines the input of a report: one view of a single run and of the sides of a comparison, for all sections."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Final

from profiler.analyse.model.analysis import LOADED_MACHINE, Analysis
from profiler.analyse.model.comparison import Comparison, Ratio, Side
from profiler.analyse.model.measures import Measure, Missing, Topic
from profiler.core.errors import Notice
from profiler.core.facts import stated_device
from profiler.core.metrics import RATES, is_final
from profiler.core.units import seconds
from profiler.report.blocks import NotMeasured, side_tone
from profiler.report.notices import describe
from profiler.report.text import capitalized
from profiler.run.model import RunInfo

Results = Analysis | Comparison
DEVICE_MEASURES: Final = ("device_utilization", "peak_share", "syncs_per_step", "h2d_per_step", "d2h_per_step")
HOST_MEASURES: Final = ("host_cpu", "cpu_time", "children_cpu", "peak_memory", "loss", "accuracy")
_KEY_MEASURES: Final = (
    "tokens_per_s", "step_time", "steps", *DEVICE_MEASURES, "allocations_per_step", "host_cpu", "cpu_time", "loss",
    "accuracy",
)  # fmt: skip
READS_MEASURE: Final = "might_sync_per_step"
_OTHER_MEASURES: Final = ("step_time", *DEVICE_MEASURES, READS_MEASURE, "allocations_per_step", *HOST_MEASURES)
"""For programs that report no tokens or have no device with a queue: which of these apply is not known beforehand, so
only those that were measured are shown."""
BREAKDOWN_PASS = "breakdown pass"
NO_BREAKDOWN_PASS = describe(Notice("no-breakdown-pass"))
_MANY_TIMES: Final = 3.0
"""Ratio of the sides' times from which a difference of their flame graphs shows one side only."""
_SAME_WORK: Final = 0.01
"""Relative difference of the work of a step up to which times per step compare."""


@dataclass(frozen=True, slots=True)
class ReportSide:
    """One side of a comparison, or the only run: its light measures and, if there is one, its detailed analysis."""

    label: str
    tone: str
    measures: Mapping[str, Measure]
    runs: tuple[Analysis, ...]
    detail: Analysis | None
    slowdown: Measure | None = None
    """How many times slower a step was in the breakdown pass than in the light runs; None for a single run."""

    @classmethod
    def from_side(cls, side: Side, tone: str) -> ReportSide:
        """Return a side of a comparison."""
        return cls(side.label, tone, side.measures, side.runs, side.detail, side.recording_slowdown)

    @property
    def info(self) -> RunInfo:
        """Return the manifest of the first light run, or of the detailed one."""
        return (self.runs[0] if self.runs else self.detailed).info

    @property
    def device(self) -> str:
        """Return name of its device."""
        return stated_device(self.info.facts, self.info.devices)

    @property
    def detailed(self) -> Analysis:
        """Return the detailed analysis, or an empty one."""
        return self.detail or Analysis(RunInfo(0, "", "", ()), {}, {}, {})

    @property
    def source_note(self) -> str:
        """Tell captions where the detailed results come from, if not from the runs that ratios come from."""
        return "" if any(run is self.detail for run in self.runs) else f", {BREAKDOWN_PASS}"

    def measure(self, name: str) -> Measure:
        """Return the light measure; where light runs do not have it, that of the breakdown pass, marked as such.

        Of what a model has learned it is the last value of a run, and not the mean.
        """
        final = _final_measure(name, self.runs or (self.detailed,)) if is_final(name) else None
        if final is not None:
            return final
        light = self.measures.get(name)
        if light is not None and light.value is not None:
            return light
        detailed = self.detailed.measures.get(name)
        if detailed is not None and detailed.value is not None:
            return replace(detailed, name=name, source=BREAKDOWN_PASS, reason=None)
        return light or detailed or Measure(name, None, "", reason=Notice("not-in-runs"))

    def has(self, name: str) -> bool:
        """Tell whether the measure has a value."""
        return self.measure(name).value is not None

    def analyses(self) -> tuple[Analysis, ...]:
        """Return all runs of this side, the detailed one last and each once."""
        distinct = {id(analysis): analysis for analysis in (*self.runs, self.detail) if analysis is not None}
        return tuple(distinct.values())

    def missing(self) -> tuple[Missing, ...]:
        """Return the results that this side lacks, each once; the breakdown pass, if there is one, measures more."""
        analyses = (self.detail,) if self.detail else self.runs
        return tuple(dict.fromkeys(gap for analysis in analyses for gap in analysis.missing))

    def warnings(self) -> tuple[Notice, ...]:
        """Warnings about the runs of this side, each once."""
        return tuple(dict.fromkeys(warning for analysis in self.analyses() for warning in analysis.warnings))

    def not_measured(self, what: str, *topics: Topic, otherwise: str) -> NotMeasured:
        """Return the block that stands where the results about `topics` are missing."""
        return NotMeasured(f"{what} of {self.label}", self.why_missing(*topics, otherwise=otherwise))

    def why_missing(self, *topics: Topic, otherwise: str) -> str:
        """Return the reason why something is missing: that of the first gap of one of `topics`, or `otherwise`."""
        if self.detail is None:
            return NO_BREAKDOWN_PASS
        return next((describe(gap.reason) for gap in self.missing() if gap.topic in topics), otherwise)

    @property
    def work_of_step(self) -> float | None:
        """Return the tokens, or what else the program counts, of a step; None: not counted."""
        rate, step = self.measure("tokens_per_s").value, self.measure("step_time").value
        return rate * step if rate and step else None

    def why_no_breakdown(self) -> str:
        """Return the reason why there is no breakdown of the step."""
        otherwise = "this run recorded neither regions nor calls (level light)"
        return self.why_missing(Topic.HOST_BREAKDOWN, Topic.DEVICE_BREAKDOWN, otherwise=otherwise)


def _final_measure(name: str, analyses: Iterable[Analysis]) -> Measure | None:
    """Return median over the runs of the value that each ended with, with its range; None where no run has any."""
    values = [value for analysis in analyses if (value := _final_value(name, analysis)) is not None]
    if not values:
        return None
    low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
    return Measure(name, median(values), "1", low, high, n=len(values))


def _final_value(name: str, analysis: Analysis) -> float | None:
    """Return the value that the program stated at its end, else that of its last evaluation."""
    stated = analysis.info.facts.get(name)
    if isinstance(stated, int | float) and math.isfinite(stated):
        return float(stated)
    return next((series.values[-1] for series in analysis.series if series.name == name and series.values), None)


@dataclass(frozen=True)
class ReportInput:
    """A comparison or a single run, with its sides in order: the baseline first, or the only run."""

    comparison: Comparison | None
    analysis: Analysis | None
    sides: tuple[ReportSide, ...]

    @classmethod
    def from_results(cls, results: Results) -> ReportInput:
        """Return the input of the report of these results."""
        if isinstance(results, Comparison):
            sides = tuple(ReportSide.from_side(side, side_tone(index)) for index, side in enumerate(results.sides))
            return cls(results, None, sides)
        label = results.info.label or "this run"
        return cls(None, results, (ReportSide(label, side_tone(0), results.measures, (results,), results),))

    @cached_property
    def rate(self) -> str:
        """Return the measure of speed: tokens per second, or steps per second where no side reports its tokens."""
        return next((name for name in RATES if any(side.has(name) for side in self.sides)), RATES[0])

    def rate_unit(self, rate: str) -> str:
        """Return the unit of a rate as the programs state it: tokens/s, points/s, steps/s."""
        return next((unit for side in self.sides if (unit := side.measure(rate).unit)), rate.replace("_per_", "/"))

    def rate_phrase(self, rate: str) -> str:
        """`tokens a second`"""
        return f"{self.rate_unit(rate).removesuffix('/s')} a second"

    @cached_property
    def devices(self) -> str:
        """Return the devices of all sides; several names where they differ."""
        return " / ".join(dict.fromkeys(side.device for side in self.sides))

    def ratio(self, label: str, name: str) -> Ratio | None:
        """Return the ratio of a side over the baseline; None where there is none, as of what a model has learned."""
        if self.comparison is None or is_final(name):
            return None
        return self.comparison.ratios.get(label, {}).get(name)

    @cached_property
    def compared_work(self) -> tuple[float, float] | None:
        """Return the work of a step of the first and of the last side if it differs; None: their steps compare."""
        before, after = (side.work_of_step for side in (self.sides[0], self.sides[-1]))
        if before is None or after is None or math.isclose(before, after, rel_tol=_SAME_WORK):
            return None
        return before, after

    @cached_property
    def lines_differ_many_times(self) -> bool:
        """Tell whether the lines of the sides differ so much in time that a slope chart shows it better."""
        times = [sum(line.seconds_per_step for line in self.sides[number].detailed.lines) for number in (0, -1)]
        totals = [time / work for time, work in zip(times, self.compared_work or (1, 1), strict=True)]
        return all(totals) and max(totals) > _MANY_TIMES * min(totals)

    @cached_property
    def has_no_queue(self) -> bool:
        """Return plain torch on the CPU on all sides: there is no device whose queue, copies and idle time to show."""
        return bool(self.sides) and all(side.info.facts.get("device") == "cpu" for side in self.sides)

    @cached_property
    def failed_before_first_step(self) -> bool:
        """Return a run that ended with an error before its first step: the time until then needs no optimization."""
        return self.analysis is not None and self.without_steps and bool(exit_status(self.analysis.info))

    @property
    def without_steps(self) -> bool:
        """Tell whether only sections that need no step have something to show."""
        return self.analysis is not None and has_no_steps(self.analysis)


def has_no_steps(analysis: Analysis) -> bool:
    """Tell whether the run has no step of its own to judge."""
    step = analysis.measures.get("step_time")
    return step is None or step.value is None or (analysis.step is not None and analysis.step.is_whole_run)


def exit_status(info: RunInfo) -> str:
    """`failed after 0.1 s with exit code 2, before it imported torch`; empty for a run that ended well."""
    if info.state not in ("failed", "interrupted"):
        return ""
    after = f" after {seconds((info.end - info.begin) / 1e9)}" if info.end and info.begin else ""
    state = "failed" if info.state == "failed" else "was interrupted"
    before_torch = ", before it imported torch" if without_torch(info) else ""
    code, how = info.exit_code or 0, ""
    if code > 0:
        how = f" with exit code {code}"
    elif code < 0:
        known = {each.value: each.name for each in signal.Signals}
        how = f" by {known.get(-code, f'signal {-code}')}"
    return f"{state}{after}{how}{before_torch}"


def ended_early(analysis: Analysis) -> str:
    """Return a sentence about a program that failed or was interrupted after some steps; empty for any other."""
    status = "" if has_no_steps(analysis) else exit_status(analysis.info)
    return f"The program {status}, and the recording ends there." if status else ""


def without_torch(info: RunInfo) -> bool:
    """Tell whether hooks were installed in the program, and torch was not imported."""
    processes = info.python_processes
    return processes is not None and processes[0] > 0 and processes[1] == 0


def group_warnings(warnings: Iterable[Notice]) -> list[str]:
    """Merge warnings that differ in their numbers only: the first one, and how many more there are."""
    groups: dict[str, list[str]] = {}
    for warning in warnings:
        texts = [str(value) for value in warning.values.values() if not isinstance(value, int | float)]
        groups.setdefault(repr((warning.code, texts)), []).append(describe(warning))
    return [first + (f" (and {len(more)} more like this)" if more else "") for first, *more in groups.values()]


def load_warnings(warnings: Iterable[Notice]) -> list[str]:
    """Return those about other load on the machine, which makes all times longer."""
    return group_warnings(warning for warning in warnings if warning.code in LOADED_MACHINE)


def noisy_machine(report_input: ReportInput) -> str:
    """Tell of other load on the machine of any side; empty where there is none."""
    compared = report_input.comparison is not None
    texts = [
        f"{side.label}: {text}" if compared else text
        for side in report_input.sides
        for text in load_warnings(side.warnings())
    ]
    text = loaded_machine(texts)
    return text if compared else capitalized(text)


def loaded_machine(texts: Iterable[str]) -> str:
    """Tell what other load on the machine means, after those texts about it; empty where there are none."""
    text = "; ".join(texts)
    return f"{text}. Times are longer than on a quiet machine, and vary more." if text else ""


def key_measures(report_input: ReportInput) -> tuple[str, ...]:
    """Return the measures of the table of a comparison's key numbers."""
    rate = report_input.rate
    if rate == RATES[0] and not report_input.has_no_queue:
        return tuple(
            name
            for name in _KEY_MEASURES
            if name not in ("accuracy", "cpu_time", "peak_share") or any(side.has(name) for side in report_input.sides)
        )
    return tuple(name for name in (rate, *_OTHER_MEASURES) if any(side.has(name) for side in report_input.sides))
