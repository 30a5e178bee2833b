"""States the results of the first chunks of a recorded run, so that `compare` can tell whether two variants compute the
same. These chunks belong to the warm-up: reading what they leave on the device costs no measured step anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler import marks
from reference_trainer.lm.model import ModelConfig

CHUNKS: Final = 3
"""Chunks whose results are stated: the state and the modulator are carried into the second and the third, and a fix
that uses two buffers in turn, or replays a captured graph, has used each of them again."""
MAX_LOGITS: Final = 1 << 29
"""Bytes of a chunk's logits from which no results are stated: they are fetched into page-locked memory, 49 MB with the
vocabulary of 4,096 of preset gpu, and 3 GB with 250,000."""
MAX_SECONDS: Final = 60.0
"""Time after which no further chunk is submitted for this alone: large models take minutes a chunk on the host. The
first chunk compiles kernels, which takes more than 10 s on a busy machine."""
_FLOAT32: Final = 1e-4
"""Largest difference of two logits of order 1 in fp32. As-found and fixed differ by up to 6e-6 in tiny and small."""
_LOW_PRECISION: Final = 0.05
"""With fewer bits: TF32 and bfloat16 round each factor of a product by up to 2^-11 and 2^-9."""
_WIDTH: Final = 256
"""Width up to which this holds; beyond, rounding grows with the square root of the number of products in a sum."""
_OF_STATE: Final = 0.1
"""Largest difference of states, relative to the largest element, over that of logits. As-found and fixed differ by up
to 7e-7. The modulator is some 1e-4 of the state in the first chunks, and an error in it must be visible."""
_LEARNING: Final = 10
"""A learning run may differ by so many times as much: each update carries the rounding of the one before on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a chunk has left on the device."""

    predictions: np.ndarray
    """(T,)"""
    state: np.ndarray
    """The recurrent state after the chunk."""
    margins: np.ndarray | None = None
    """(T,) For each prediction, the gap between the two largest logits; None: the model learns."""
    correct: int = 0
    """Number of correct predictions, as the device counted them."""
    losses: np.ndarray | None = None
    """(T,) Cross-entropy of each prediction, where the model learns."""


def margins(logits: np.ndarray) -> np.ndarray:
    """The gap between the two largest numbers of each row; it overwrites the largest."""
    rows = np.arange(len(logits))
    first = logits.argmax(axis=1)
    largest = logits[rows, first]
    logits[rows, first] = -np.inf
    gaps: np.ndarray = largest - logits.max(axis=1)
    return gaps


def are_stated(config: ModelConfig, tokens: int, *, learn: bool) -> bool:
    """Whether the results of chunks of so many tokens can be stated: a model that learns needs no logits for it."""
    return learn or 4 * tokens * config.vocabulary <= MAX_LOGITS


def tolerance(dtype: str, width: int) -> float:
    """By how much a logit may differ between two variants that compute the same."""
    largest = _FLOAT32 if dtype == "float32" else _LOW_PRECISION
    return largest * math.sqrt(max(1.0, width / _WIDTH))


def state(outcome: Outcome, allowed: float, *, chunk: int) -> None:
    """State the results of chunk number `chunk`, whose logits may differ by `allowed`."""
    if outcome.losses is not None:
        allowed *= _LEARNING
        if chunk == 0:  # before the first update: the same kernels give the same bits
            marks.result("predictions", outcome.predictions)
        marks.result("losses", outcome.losses, rtol=allowed, atol=allowed)
    else:
        assert outcome.margins is not None
        near_ties = int(np.sum(outcome.margins <= allowed))
        marks.result("predictions", outcome.predictions, atol=allowed, margins=outcome.margins)
        marks.result("correct predictions", float(outcome.correct), rtol=0, atol=near_ties + 0.5)
    largest = float(np.abs(outcome.state).max())
    marks.result("state", outcome.state, rtol=0, atol=_OF_STATE * allowed * largest)
