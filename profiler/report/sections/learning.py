"""What the model learned: loss and accuracy, so that a faster side is seen to do the same work; and learning itself."""

from __future__ import annotations

from profiler.analyse.model import Comparison
from profiler.report.blocks import Block, NotMeasured, Section, Text
from profiler.report.build import SectionPlugin
from profiler.report.compare_table import compare_table
from profiler.report.curves import HELD_OUT, Curves, learner_of, learning_blocks, lines, said
from profiler.report.subject import Subject, View, single, views

TITLE = "Loss and accuracy"
_NAMES = ("loss", "accuracy")
_KINDS = dict.fromkeys(_NAMES, "mean of the run") | dict.fromkeys(HELD_OUT, "last of the run")


def build(subject: Subject) -> Section | None:
    """A ladder's learning row beside as-found, or the curves of the sides; the values over the measured steps.

    Nothing of a single run that reports none.
    """
    sides = views(subject)
    learner = learner_of(subject)
    known = any(view.measure(name).value is not None for view in sides for name in _NAMES)
    if learner is None and not known:
        if single(subject):
            return None
        reason = sides[0].measure("loss").reason or "the program reports no loss"
        return Section("learning", TITLE, (NotMeasured("loss and accuracy", reason),))
    drawn = tuple(curves for view in sides if (curves := _curves(view)) is not None)
    blocks: list[Block] = []
    if learner is not None:
        blocks.extend(learning_blocks(learner, drawn[0] if drawn and drawn[0].label == sides[0].label else None))
    elif not isinstance(subject, Comparison) and drawn and drawn[0].learns:
        blocks.append(Text(said(drawn[0], None)))
    note = "Sides run for the same time, not for the same number of steps: the faster one has seen more text."
    if known:
        table = compare_table(
            subject,
            _names(sides),
            "Over the measured steps",
            spread=True,
            note=note * (len(sides) > 1),
            notes=_KINDS,
        )
        blocks.append(table)
    if learner is None:
        blocks.extend(plot for name in _NAMES if (plot := lines(drawn, name)).panels)
    return Section("learning", TITLE, tuple(blocks))


def _names(sides: tuple[View, ...]) -> tuple[str, ...]:
    """Held-out values have a row where a side has any."""
    return (*_NAMES, *(name for name in HELD_OUT if any(view.measure(name).value is not None for view in sides)))


def _curves(view: View) -> Curves | None:
    """Of the first run of a side that has a curve of its loss or accuracy."""
    found = (Curves(view.label, view.tone, run) for run in (*view.runs, view.any_detail))
    return next((one for one in found if any(map(one.series, (*_NAMES, *HELD_OUT)))), None)


PLUGIN = SectionPlugin("learning", TITLE, 90, build)
