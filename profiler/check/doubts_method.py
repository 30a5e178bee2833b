"""Doubts about the method: whether it says something where there is nothing to say."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler.check.chance import ODD, of_difference, of_mean
from profiler.check.evidence import Evidence
from profiler.check.nouns import some
from profiler.check.reason import percent, slower

CONTROL_ODD: Final = 0.005
"""Two-sided, of the base against itself: three to eight rounds show little, so that it is less strict."""


def slots(of: Evidence) -> str | None:
    """Whether it matters whose program is started first."""
    second = [one.typical for one in of.seen if one.base_first]
    first = [one.typical for one in of.seen if not one.base_first]
    difference, odd = of_difference(second, first)
    if odd >= ODD or abs(difference) <= of.at.fails:
        return None
    return (
        f"The candidate is {slower(difference)} where its program is started second: the order of starting "
        "matters, which rounds of both orders cancel only in the mean."
    )


def positions(of: Evidence) -> str | None:
    """Whether it matters whose turn of a pair comes first."""
    apart = []
    for one in of.seen:
        logs, led = np.log(one.pairs.second / one.pairs.first), one.pairs.led
        if led.any() and not led.all():
            apart.append(float(np.median(logs[~led]) - np.median(logs[led])) / 2)
    difference, odd = of_mean(apart)
    if odd >= ODD or abs(difference) <= of.at.fails:
        return None
    return (
        f"A turn is {slower(difference)} where it is the second of its pair: one side's turn leaves something "
        "behind that the other's meets."
    )


def control(of: Evidence) -> str | None:
    """The base against itself."""
    for values in (
        [one.values.control_typical for one in of.seen if one.values.control_typical is not None],
        [one.values.control_whole for one in of.seen if one.values.control_whole is not None],
    ):
        difference, odd = of_mean(values)
        if odd < CONTROL_ODD and abs(difference) > of.at.fails / 2:
            rounds = some(len(values), "round")
            return f"The base against itself, which should be 0, is {percent(difference)} in {rounds}."
    return None
