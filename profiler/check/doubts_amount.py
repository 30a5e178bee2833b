"""Doubts about how much was measured: rounds, turns, steps, and what counts as work."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler.check.evidence import Evidence
from profiler.check.model import BASE, CANDIDATE
from profiler.check.nouns import some
from profiler.check.sequential import LOOKS

FEW_PAIRS: Final = 8
"""A median of fewer is hardly one, and a stall of every tenth step can be missed by a whole round."""
FEW_STEPS: Final = 60
"""Of a side in all rounds: of a stall every tenth step there are six, which chance doubles."""
SAME_WORK: Final = 0.02
"""Tokens of a step may differ by this share between the sides: batches are seldom quite even."""


def few_rounds(of: Evidence) -> str | None:
    number = len(of.measured)
    if 0 < number < LOOKS[0]:
        only = "was only 1 round that says" if number == 1 else f"were only {number} rounds that say"
        return f"There {only} something: how far they scatter is hardly known."
    return None


def lost_rounds(of: Evidence) -> str | None:
    lost = len(of.rounds) - len(of.seen)
    if not lost:
        return None
    says = "says" if lost == 1 else "say"
    return f"{lost} of {some(len(of.rounds), 'round')} had too few turns of both sides, and {says} nothing."


def few_turns(of: Evidence) -> str | None:
    if not of.seen:
        return None
    pairs = float(np.median([len(one.pairs) for one in of.seen]))
    steps = sum(len(one.pairs) * one.pairs.steps for one in of.seen)
    if pairs < FEW_PAIRS:
        few = f"only {some(round(pairs), 'pair')} of turns"
        return f"A round had {few}, in the middle: a median of so few is easily moved."
    if steps < FEW_STEPS:
        return f"Only {steps:.0f} steps of each side were measured: stalls of every tenth step can be missed."
    return None


def work_said(of: Evidence) -> str | None:
    """Tokens of one side only."""
    says = dict.fromkeys((BASE, CANDIDATE), False)
    for one in of.rounds:
        for turn in one.turns:
            if turn.side in says and turn.tokens > 0:
                says[turn.side] = True
    if says[BASE] == says[CANDIDATE]:
        return None
    silent = BASE if says[CANDIDATE] else CANDIDATE
    return f"The {silent} does not say how many tokens a step has: steps are compared, whatever work is in one."


def work_differs(of: Evidence) -> str | None:
    """Tokens of a step, where both sides say them."""
    if not of.seen or not all(one.pairs.by_tokens for one in of.seen):
        return None
    tokens = {BASE: 0, CANDIDATE: 0}
    steps = {BASE: 0, CANDIDATE: 0}
    for one in of.seen:
        for turn in one.round.turns:
            if turn.side in tokens:
                tokens[turn.side] += turn.tokens
                steps[turn.side] += len(turn.steps)
    ratio = (tokens[CANDIDATE] / steps[CANDIDATE]) / (tokens[BASE] / steps[BASE])
    if abs(ratio - 1) <= SAME_WORK:
        return None
    return f"A step of the candidate has {ratio:.2f} times the base's tokens: the time for a token is compared."
