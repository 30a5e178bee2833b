"""Settings refuse what cannot be run, in the words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reference_trainer.lm.settings import Settings
from tests.reference_trainer.processes import refusal


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tokens_per_chunk": 0}, "--tokens-per-chunk 0: must be at least 1"),
        ({"samples_per_chunk": -3}, "--samples-per-chunk -3: must be at least 1"),
        ({"max_chunks": 0}, "--max-chunks 0: must be at least 1"),
        ({"seed": -1}, "--seed -1: must be at least 0"),
        ({"seconds": 0}, "--seconds 0: must be a number of seconds above 0"),
        ({"seconds": float("nan")}, "--seconds nan: must be a number of seconds above 0"),
        ({"seconds": float("inf")}, "--seconds inf: must be a number of seconds above 0"),
        ({"warmup_seconds": -0.1}, "--warmup-seconds -0.1: must be a number of seconds, 0 or more"),
        ({"warmup_seconds": float("nan")}, "--warmup-seconds nan: must be a number of seconds, 0 or more"),
        ({"lr": 0}, "--lr 0: must be a number above 0"),
        ({"lr": float("nan")}, "--lr nan: must be a number above 0"),
        ({"clip_norm": float("inf")}, "--clip-norm inf: must be a number above 0"),
        ({"weight_decay": -0.1}, "--weight-decay -0.1: must be a number, 0 or more"),
        ({"warmup_steps": -1}, "--warmup-steps -1: must be at least 0"),
        ({"total_steps": 0}, "--total-steps 0: must be at least 1"),
        ({"evaluate_every": -1}, "--evaluate-every -1: must be at least 0"),
        ({"checkpoint": Path("it"), "checkpoint_every": 0}, "--checkpoint-every 0: must be at least 1"),
        ({"resume": True}, "--resume means nothing without a folder of checkpoints: add --checkpoint DIR"),
        ({"checkpoint_every": 5}, "--checkpoint-every means nothing without a folder of checkpoints: add --checkpoint"),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    assert refusal(Settings, **values).removesuffix(" DIR") == message.removesuffix(" DIR")


def test_the_least_that_is_allowed() -> None:
    Settings(tokens_per_chunk=1, samples_per_chunk=1, max_chunks=1, seed=0, seconds=1e-9, warmup_seconds=0)
    Settings(lr=1e-9, warmup_steps=0, total_steps=1, weight_decay=0, clip_norm=1e-9, evaluate_every=0)
    Settings(checkpoint=Path("it"), checkpoint_every=1, resume=True)


def test_which_options_are_for_learning() -> None:
    """Those that were given, zeros too, in the words of the command line."""
    assert Settings(tokens_per_chunk=7, metrics=Path("it"), max_chunks=3).learning_options() == []
    given = {"lr": 0.1, "warmup_steps": 0, "total_steps": 1, "weight_decay": 0, "clip_norm": 1.0, "evaluate_every": 0}
    given |= {"checkpoint": Path("it"), "checkpoint_every": 3, "resume": True}
    assert Settings(**given).learning_options() == [f"--{name.replace('_', '-')}" for name in given]
