"""Long steps in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import SpikeLine, Spikes
from profiler.report.verdict_text import spikes_sentence
from profiler.run.model import Site

EVALUATE = SpikeLine(Site("a/train.py", 36, "evaluate"), 0.97)
SPIKES = Spikes(6, 60, 10, 25.6, 0.72, (EVALUATE,), 150, enough=True)
TWO = (replace(EVALUATE, share=0.6), SpikeLine(Site("train.py", 40, "<module>"), 0.3))


OF_ALL = "the extra time (72% of all)"


@pytest.mark.parametrize(
    ("spikes", "often", "where"),
    [
        (SPIKES, "Every 10th step takes about 26 times", "is at train.py:36, in evaluate()"),
        (
            replace(SPIKES, every=0, times=3.14, lines=()),
            "6 of 60 steps take about 3.1 times",
            "is at no line that stands out: the machine, or more of the same work",
        ),
        (
            replace(SPIKES, every=0, count=1, lines=TWO),
            "1 of 60 steps takes about 26 times",
            "is mostly at train.py:36, in evaluate() (60%) and at train.py:40 (30%)",
        ),
        (
            replace(SPIKES, every=3, lines=(), enough=False, samples=0),
            "Every 3rd step takes about 26 times",
            "has no stack samples: too few to say at which lines it is",
        ),
    ],
)
def test_the_sentence(spikes: Spikes, often: str, where: str) -> None:
    assert spikes_sentence(spikes) == f"{often} as long; {OF_ALL} {where}."
