"""Curves of loss and accuracy: they show whether a faster side does the same work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.measures import Series
from profiler.core.metrics import is_share, label
from profiler.core.units import count, significant
from profiler.report.blocks import Block, Cell, Curve, Level, Lines, NotMeasured, Panel, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.notices import describe
from profiler.report.table import (
    Field,
    compare_table,
    count_cell,
    make_table,
    missing_cell,
    percent,
    phrase,
    seconds_cell,
)
from reference_trainer.report.ladder import comparison_ladder

HELD_OUT = ("heldout_loss", "heldout_accuracy")
LEARN = "learn"
"""The fix with which the trainer really learns."""
LEARNING = "learning"
"""The fact `work` of a program that learns."""
THIS_MODEL: Final = "this model"
"""Name of the trainer's own model among the yardsticks (`reference_trainer.lm.learning`)."""
_YARDSTICK: Final = {"name", "loss", "accuracy", "parameters", "tokens", "cpu_s"}
"""Keys of a yardstick among the facts (`reference_trainer.lm.heldout.Yardstick`)."""
_YARDSTICKS_NOTE = (
    "n-gram counts are interpolated (Witten and Bell) over all lengths up to n and count the training text once. "
    "The best values are bold."
)
_HELD_OUT_TONE = "s2"
_MOST_DOTS = 30
"""Measurements beyond which dots would hide the line."""


@dataclass(frozen=True, slots=True)
class Curves:
    """The loss and accuracy of one run; its loss may be of another kind than that of other runs."""

    label: str
    tone: str
    analysis: Analysis

    @property
    def learns(self) -> bool:
        """Whether it minimizes cross-entropy: its facts say so, or it was evaluated on held-out text."""
        return self.analysis.info.facts.get("work") == LEARNING or any(self.series(name) for name in HELD_OUT)

    def series(self, name: str) -> Series | None:
        """The series of that name, if it has two points or more."""
        matches = (run for run in self.analysis.series if run.name == name and len(run.times) > 1)
        return next(matches, None)

    def ends(self, name: str) -> tuple[float, float] | None:
        """First and last value of a series."""
        series = self.series(name)
        return (series.values[0], series.values[-1]) if series else None

    def fact(self, name: str) -> float | None:
        """A positive number among the facts of the program."""
        model = self.analysis.info.facts.get("model")
        stated = self.analysis.info.facts.get(name, model.get(name) if isinstance(model, dict) else None)
        return float(stated) if isinstance(stated, int | float) and 0 < stated < math.inf else None

    @property
    def yardsticks(self) -> list[Mapping[str, Any]]:
        """This model, then n-gram counts and other models, with their results on the same held-out text.

        Runs recorded by older versions state the results of bigram counts alone.
        """
        stated = self.analysis.info.facts.get("yardsticks")
        if isinstance(stated, list):
            return [model for model in stated if isinstance(model, dict) and model.keys() >= _YARDSTICK]
        loss, accuracy = self.fact("bigram_loss"), self.fact("bigram_accuracy")
        return [{"name": "bigram counts", "loss": loss, "accuracy": accuracy}] if loss and accuracy else []

    @property
    def others(self) -> list[Mapping[str, Any]]:
        """The yardsticks without this model."""
        return [model for model in self.yardsticks if model["name"] != THIS_MODEL]

    @property
    def steps_per_s(self) -> float | None:
        """Measured steps over the time that they and all pauses between them took; by it times become steps."""
        steps, took = self.analysis.measures.get("steps"), self.series("loss") or self.series("accuracy")
        return steps.value / took.times[-1] if steps is not None and steps.value and took and took.times[-1] else None


def learner_of(report_input: ReportInput) -> Curves | None:
    """The learning row of a ladder."""
    ladder = comparison_ladder(report_input.comparison)
    rows = ladder.of_kind("work") if ladder else ()
    matches = (Curves(row.label, "s2", row.analysis) for row in rows if row.fix == LEARN and row.analysis)
    return next((run for run in matches if run.series("loss") or run.series("heldout_loss")), None)


def learning_blocks(learner: Curves, stuck: Curves | None) -> tuple[Block, ...]:
    """What was learned in words; losses of two kinds, each on its own axes; accuracies on common ones."""
    pair = (learner, *((stuck,) if stuck else ()))
    plots = (lines(pair, "loss"), lines(pair, "accuracy"))
    table = yardstick_table(learner)
    return (Text(summary(learner, stuck)), *([table] if table else []), *(plot for plot in plots if plot.panels))


def yardstick_table(learner: Curves) -> Table | None:
    """The results of this model and of others on the same held-out text; None for a run that states no table."""
    models = learner.yardsticks
    if not any(model["name"] == THIS_MODEL for model in models):
        return None
    least, most = min(model["loss"] for model in models), max(model["accuracy"] for model in models)
    fields = (
        Field[Mapping[str, Any]]("Model", lambda model: Cell(model["name"])),
        Field[Mapping[str, Any]](
            "Cross-entropy, nats",
            lambda model: Cell(significant(model["loss"], 4), sort=model["loss"], strong=model["loss"] == least),
            number=True,
        ),
        Field[Mapping[str, Any]](
            "Accuracy",
            lambda model: Cell(percent(model["accuracy"]), sort=model["accuracy"], strong=model["accuracy"] == most),
            number=True,
        ),
        Field[Mapping[str, Any]]("Parameters", lambda model: _count_cell(model["parameters"]), number=True),
        Field[Mapping[str, Any]]("Tokens learned from", lambda model: _count_cell(model["tokens"]), number=True),
        Field[Mapping[str, Any]]("CPU time", _cpu_cell, number=True),
    )
    return make_table("On the same held-out text", fields, models, _YARDSTICKS_NOTE)


def _count_cell(value: float | None) -> Cell:
    return missing_cell("the program did not state it") if value is None else count_cell(value)


def _cpu_cell(model: Mapping[str, Any]) -> Cell:
    if model["cpu_s"] is not None:
        return seconds_cell(model["cpu_s"])
    if model["name"] == THIS_MODEL:
        return missing_cell("the run was resumed: the time before its checkpoint is not known")
    return missing_cell("the time of counting was not measured")


def lines(several: tuple[Curves, ...], name: str) -> Lines:
    """One panel for each run that has a series of `name`; on the same axes, unless the losses are of two kinds."""
    learns = {run.learns for run in several}
    mixed = not is_share(name) and len(learns) > 1
    in_steps = True in learns and all(run.steps_per_s for run in several)
    panels = tuple(panel for run in several if (panel := _panel(run, name, mixed=mixed, in_steps=in_steps)).curves)
    if not in_steps and len(panels) > 1 and all(len(panel.curves) == 1 and not panel.levels for panel in panels):
        panels = (Panel("", tuple(curve for panel in panels for curve in panel.curves)),)  # the sides in one plot
    note = "The position of a step assumes that all steps take equally long." if in_steps and panels else ""
    x_label = "steps" if in_steps else "seconds"
    unit = "" if mixed or not several else _unit(several[0], name)
    return Lines(label(name), x_label, unit, panels, note=note, separate_x=in_steps, separate_y=mixed)


def _unit(run: Curves, name: str) -> str:
    return "%" if is_share(name) else "nats" if run.learns else ""


def _panel(run: Curves, name: str, *, mixed: bool, in_steps: bool) -> Panel:
    scale = 100.0 if is_share(name) else 1.0
    rate = (run.steps_per_s or 1.0) if in_steps else 1.0
    held_out = run.series(f"heldout_{name}")
    style = ("training text", "floor") if held_out else (run.label, run.tone)
    curves = []
    for series, title, tone in ((run.series(name), *style), (held_out, "held-out text", _HELD_OUT_TONE)):
        if series is not None:
            values = tuple(scale * value for value in series.values)
            times = tuple(rate * time for time in series.times)
            single = series is held_out and len(values) <= _MOST_DOTS
            ends = (values, values) if single else ((), ())
            curves.append(Curve(title, tone, times, values, *ends))
    kind = "cross-entropy" if run.learns else "share of wrong predictions (0/1 loss)"
    title = f"{run.label}: {kind}" if mixed else run.label
    levels = _levels(run, name) if run.learns else ()
    return Panel(title, tuple(curves), levels, "nats" if mixed and run.learns else "")


def _levels(run: Curves, name: str) -> tuple[Level, ...]:
    """The results of a model that has learned nothing, and of the yardsticks."""
    if is_share(name):
        return tuple(Level(model["name"], 100 * model[name], percent(model[name])) for model in run.others)
    vocabulary = run.fact("vocabulary")
    levels = (Level("ln V", math.log(vocabulary), count(math.log(vocabulary))),) if vocabulary else ()
    return levels + tuple(Level(model["name"], model[name], count(model[name])) for model in run.others)


def summary(learner: Curves, stuck: Curves | None) -> str:
    """Where the losses and accuracies began and ended."""
    text = f"{learner.label} {_loss_phrase(learner)}{_accuracy_phrase(learner)}."
    if stuck is not None and (loss := stuck.ends("loss")):
        text += f" The 0/1 loss of {stuck.label} was {count(loss[0])} at first and {count(loss[1])} at last."
    return text


def _loss_phrase(learner: Curves) -> str:
    held_out = learner.ends("heldout_loss")
    ends, where = (held_out, "on held-out text") if held_out else (learner.ends("loss"), "on its training text")
    if ends is None:
        return "left no curve of its loss"
    took, vocabulary = learner.analysis.measures.get("steps"), learner.fact("vocabulary")
    steps = f" in {phrase(took.value, 'steps')} steps" if took and took.value else ""
    guessing = math.log(vocabulary) if vocabulary else 0.0
    part = f", {count(ends[1] / guessing)} of the ln V that guessing costs" if guessing > 0 else ""
    return f"brought the cross-entropy {where} from {count(ends[0])} to {count(ends[1])} nats{steps}{part}"


def _accuracy_phrase(learner: Curves) -> str:
    held_out = learner.ends("heldout_accuracy")
    ends = held_out or learner.ends("accuracy")
    return f", and the {'held-out ' if held_out else ''}accuracy to {percent(ends[1])}" if ends else ""


_SAME_TIME = "Sides run for the same time: the faster one has seen more text."
TITLE = "Loss and accuracy"
_NAMES = ("loss", "accuracy")


def build(report_input: ReportInput) -> Section | None:
    """A ladder's learning row beside as-found, or the curves of the sides; the values over the measured steps.

    Nothing of a single run that reports none.
    """
    sides = report_input.sides
    learner = learner_of(report_input)
    has_values = any(view.measure(name).value is not None for view in sides for name in _NAMES)
    if learner is None and not has_values:
        if report_input.comparison is None:
            return None
        reason = describe(sides[0].measure("loss").reason) or "the program reports no loss"
        return Section("learning", TITLE, (NotMeasured("loss and accuracy", reason),))
    drawn = tuple(curves for view in sides if (curves := _curves(view)) is not None)
    blocks: list[Block] = []
    if learner is not None:
        blocks.extend(learning_blocks(learner, drawn[0] if drawn and drawn[0].label == sides[0].label else None))
    elif report_input.comparison is None and drawn and drawn[0].learns:
        blocks.append(Text(summary(drawn[0], None)))
        blocks.extend(table for table in [yardstick_table(drawn[0])] if table)
    if names := [name for name in HELD_OUT if any(view.has(name) for view in sides)]:
        caption = "At the end of the run"
        blocks.append(compare_table(report_input, names, caption, spread=True))
    if learner is None and (plots := [plot for name in _NAMES if (plot := lines(drawn, name)).panels]):
        blocks.extend(plots)
        blocks.extend([Text(_SAME_TIME)] * (len(sides) > 1))
    if not blocks:
        return None
    return Section("learning", TITLE, tuple(blocks))


def _curves(view: ReportSide) -> Curves | None:
    """The first run of a side that has a curve of its loss or accuracy."""
    matches = (Curves(view.label, view.tone, run) for run in (*view.runs, view.detailed))
    return next((run for run in matches if any(map(run.series, (*_NAMES, *HELD_OUT)))), None)


PLUGIN = SectionPlugin("learning", TITLE, 90, build, group="evidence")
