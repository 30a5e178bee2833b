"""Runs that learn, for tests: settings, options of the command line, and a run's curve."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from reference_trainer.lm.loop import train
from reference_trainer.lm.settings import Settings
from tests.reference_trainer import processes

NEEDED = ("async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled", "zero-copy")
LEARN = (*NEEDED, "batch-tokenize", "learn")
AHEAD = (*NEEDED, "batch-tokenize", "parallel-tokenize", "prefetch", "blocking-wait", "learn")
"""Another way to do the same: nothing of what is learned may depend on it."""
ALWAYS = {"step", "loss", "accuracy", "lr"}
HELD_OUT = {"heldout_loss", "heldout_accuracy"}


def learner(corpus: Path | None, **values: Any) -> Settings:
    """Settings of a small run that learns."""
    small = {"device": "host", "fixes": LEARN, "tokens_per_chunk": 300, "samples_per_chunk": 4, "warmup_seconds": 0}
    return Settings(**{**small, "corpus": corpus, "evaluate_every": 10, **values})


def curve(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics_history.json without what depends on time."""
    rows = json.loads(path.read_text())
    assert all(row.pop("tokens_per_s") > 0 for row in rows)
    return rows


def learned(settings: Settings, path: Path) -> list[dict[str, float]]:
    """The curve of a run, by way of the file at `path`."""
    train(Settings(**{**{name: getattr(settings, name) for name in Settings.__dataclass_fields__}, "metrics": path}))
    return curve(path)


def options(settings: Settings) -> list[str]:
    """The same on the command line."""
    arguments, usual = [], Settings()
    for name in Settings.__dataclass_fields__:
        value, flag = getattr(settings, name), f"--{name.replace('_', '-')}"
        if value == getattr(usual, name):
            continue
        arguments += [flag] if value is True else [flag, ",".join(value) if name == "fixes" else str(value)]
    return arguments


def started(settings: Settings) -> subprocess.Popen[str]:
    """The trainer as a process of its own, which Ctrl-C reaches."""
    return processes.started("-m", "reference_trainer.lm", *options(settings))
