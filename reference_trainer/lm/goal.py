"""What a model that learns is judged by: text that it never learns from, and what has to be beaten on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from reference_trainer.lm.chunks import Source
from reference_trainer.lm.heldout import Baseline, Split, bigram_baseline

JUDGED_TOKENS: Final = 30_000
"""Of held-out text, about: its accuracy is known to 0.3 points, and a look at it takes as long as a few steps."""
COUNTED_TOKENS: Final = 3_000_000
"""Of training text at most, about, in the bigram counts: a second or two of tokenization."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What the model is judged by, and what it has to beat."""

    held_out: tuple[np.ndarray, ...]
    """Ids (T + 1,) of chunks that are never learned from."""
    baseline: Baseline
    uniform_loss: float
    """Of a model that knows nothing: ln V, in nats."""


def goal_of(source: Source, parts: Split, tokens_per_chunk: int, vocabulary: int) -> Goal:
    """Read the held-out text, and count pairs in the training text: of large corpora in the first part of both."""
    counted = min(parts.training, max(1, COUNTED_TOKENS // tokens_per_chunk))
    judged = parts.judged[: max(1, JUDGED_TOKENS // tokens_per_chunk)]
    training = [source.ids(index) for index in range(counted)]
    held_out = tuple(source.ids(index) for index in judged)
    return Goal(held_out, bigram_baseline(training, held_out, vocabulary), math.log(vocabulary))
