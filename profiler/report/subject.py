"""What a report is about, one view for a single run and for the sides of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from profiler.analyse.model import Analysis, Comparison, Measure, Missing, Ratio, Side, Topic
from profiler.core.facts import stated_device
from profiler.core.metrics import RATES, is_final
from profiler.core.notice import Notice
from profiler.report.blocks import side_tone
from profiler.report.ended import ended, without_steps
from profiler.report.text import describe
from profiler.run.model import RunInfo

Subject = Comparison | Analysis


@dataclass(frozen=True, slots=True)
class View:
    """One side, or the only run: its light measures and, where there is one, its detailed analysis."""

    label: str
    tone: str
    measures: Mapping[str, Measure]
    runs: tuple[Analysis, ...]
    detail: Analysis | None
    slowdown: Measure | None = None

    @property
    def info(self) -> RunInfo:
        """Manifest of the first light run, or of the detailed one."""
        return (self.runs[0] if self.runs else self.any_detail).info

    @property
    def any_detail(self) -> Analysis:
        """The detailed analysis, or an empty one."""
        return self.detail or Analysis(RunInfo(0, "", "", ()), {}, {}, {})

    def measure(self, name: str) -> Measure:
        """The light measure; where light runs cannot see it, that of the breakdown pass, marked as such.

        Held-out measures are the last of a run, not its mean.
        """
        ended = _final_measure(name, self.runs or (self.any_detail,)) if is_final(name) else None
        if ended is not None:
            return ended
        light = self.measures.get(name)
        if light is not None and light.value is not None:
            return light
        detailed = self.any_detail.measures.get(name)
        if detailed is not None and detailed.value is not None:
            return Measure(
                name,
                detailed.value,
                detailed.unit,
                detailed.low,
                detailed.high,
                n=detailed.n,
                source="breakdown pass",
            )
        return light or detailed or Measure(name, None, "", reason=Notice("not-in-runs"))

    def missing(self) -> tuple[Missing, ...]:
        """What this side did not measure, each thing once; the breakdown pass, where there is one, sees the most."""
        analyses = (self.detail,) if self.detail else self.runs
        return tuple(dict.fromkeys(gap for analysis in analyses for gap in analysis.missing))

    def warnings(self) -> tuple[Notice, ...]:
        """Warnings about the runs of this side, each once."""
        analyses = (*self.runs, *((self.detail,) if self.detail else ()))
        return tuple(dict.fromkeys(warning for analysis in analyses for warning in analysis.warnings))

    def why(self, *topics: Topic, otherwise: str) -> str:
        """The reason why something is missing: of the first gap of one of `topics`, or `otherwise`."""
        return next((describe(gap.reason) for gap in self.missing() if gap.topic in topics), otherwise)


def _final_measure(name: str, analyses: Iterable[Analysis]) -> Measure | None:
    """Median over the runs of the value that each ended with, with its range; None where no run has any."""
    values = [value for analysis in analyses if (value := _final_value(name, analysis)) is not None]
    if not values:
        return None
    low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
    return Measure(name, median(values), "1", low, high, n=len(values))


def _final_value(name: str, analysis: Analysis) -> float | None:
    """What the program stated at its end, else the last of its evaluations."""
    stated = analysis.info.facts.get(name)
    if isinstance(stated, int | float) and math.isfinite(stated):
        return float(stated)
    return next((series.values[-1] for series in analysis.series if series.name == name and series.values), None)


def side_view(side: Side, tone: str) -> View:
    """View of one side of a comparison."""
    return View(side.label, tone, side.measures, side.runs, side.detail, side.recording_slowdown)


def views(subject: Subject) -> tuple[View, ...]:
    """The sides in order, the baseline first; one view for a single run."""
    if isinstance(subject, Comparison):
        return tuple(side_view(side, side_tone(index)) for index, side in enumerate(subject.sides))
    label = subject.info.label or "this run"
    return (View(label, side_tone(0), subject.measures, (subject,), subject),)


def of_pass(view: View) -> str:
    """That what is shown was not measured in the runs that ratios come from; nothing where it was."""
    return "" if any(run is view.detail for run in view.runs) else ", breakdown pass"


def ratio(subject: Subject, label: str, name: str) -> Ratio | None:
    """The ratio of a side over the baseline, or None where there is none to be had, as of held-out measures."""
    if isinstance(subject, Comparison) and not is_final(name):
        return subject.ratios.get(label, {}).get(name)
    return None


def rate_of(subject: Subject) -> str:
    """The measure that says how fast the sides are: tokens a second; steps where no side says its tokens."""
    sides = views(subject)
    known = (name for name in RATES if any(view.measure(name).value is not None for view in sides))
    return next(known, RATES[0])


def rate_unit(sides: Iterable[View], rate: str) -> str:
    """Its unit as the programs say it: tokens/s, points/s, steps/s."""
    return next((unit for view in sides if (unit := view.measure(rate).unit)), rate.replace("_per_", "/"))


def rate_words(sides: Iterable[View], rate: str) -> str:
    """`tokens a second`"""
    return f"{rate_unit(sides, rate).removesuffix('/s')} a second"


def breakdown_reason(view: View) -> str:
    """Why a side has no breakdown."""
    if view.detail is None:
        return "no breakdown pass was made of this side"
    return view.why(
        Topic.HOST_BREAKDOWN,
        Topic.DEVICE_BREAKDOWN,
        otherwise="this run recorded neither regions nor calls (level light)",
    )


def without_queue(subject: Subject) -> bool:
    """Whether it is one run of plain torch on the CPU: there is no device whose queue, copies and idle time to show."""
    return not isinstance(subject, Comparison) and subject.info.facts.get("device") == "cpu"


def looked_at(subject: Subject) -> bool:
    """Whether it is a job that was looked at from outside, without a step seen: it has threads, and no measures."""
    if isinstance(subject, Comparison) or subject.info.state != "attached":
        return False
    step = subject.measures.get("step_time")
    return step is None or step.value is None


def failed_first(subject: Subject) -> bool:
    """Whether it is one run that ended badly before its first step: what it did until then has no cure."""
    return not isinstance(subject, Comparison) and without_steps(subject) and bool(ended(subject.info))


def single(subject: Subject) -> bool:
    """Whether it is one run: what it did not measure stands in one list at its end, not in every section."""
    return not isinstance(subject, Comparison)


def device_name(info: RunInfo) -> str:
    """The device as a reader knows it; the host device is never called a GPU."""
    return stated_device(info.facts, info.devices)


def devices(items: Iterable[View]) -> str:
    """The devices of all sides; more than one name where they differ."""
    return " / ".join(dict.fromkeys(device_name(view.info) for view in items))
