"""Long steps in a sentence: how often they come, how long they take, and where their extra time lies."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import SpikeLine, Spikes
from profiler.core.units import nth, share, significant
from profiler.diagnose.words import place

_NEARLY_ALL: Final = 0.9
"""Share of the extra time from which the rest is not worth a word."""
_MOSTLY: Final = 0.5
_WHOLE: Final = 10
"""Times from which only whole ones are told."""


def spikes_sentence(spikes: Spikes) -> str:
    """`Every 10th step takes about 26 times as long; the extra time (72% of all) is at train.py:36, in evaluate().`"""
    ratio = f"{spikes.times:,.0f}" if spikes.times >= _WHOLE else significant(spikes.times, 2)
    take = "take" if not spikes.every and spikes.count > 1 else "takes"
    extra = f"the extra time ({share(spikes.share)} of all)"
    return f"{_how_often(spikes)} {take} about {ratio} times as long; {extra} {_where(spikes)}."


def _how_often(spikes: Spikes) -> str:
    """`Every 10th step`, `12 of 300 steps`."""
    if not spikes.every:
        return f"{spikes.count:,} of {spikes.steps:,} steps"
    return f"Every {nth(spikes.every)} step"


def _where(spikes: Spikes) -> str:
    if not spikes.enough:
        return f"has {spikes.samples or 'no'} stack samples: too few to say at which lines it is"
    if not spikes.lines:
        return "is at no line that stands out: the machine, or more of the same work"
    first, *others = spikes.lines
    if first.share >= _NEARLY_ALL:
        return f"is{_at(first)}"
    told = [f"{_at(line).strip()} ({share(line.share)})" for line in (first, *others)]
    mostly = "mostly " if first.share >= _MOSTLY else ""
    return f"is {mostly}{' and '.join(told)}"


def _at(line: SpikeLine) -> str:
    function = line.site.function.replace("<locals>.", "")
    return place(line.site) + (f", in {function}()" if function and function != "<module>" else "")
