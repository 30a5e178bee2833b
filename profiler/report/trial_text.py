"""Words about trials: what `try` will change, and what it measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from profiler.core.errors import Notice
from profiler.core.units import ratio, seconds
from profiler.report.text import describe, listed, plural
from profiler.run.trials import SkippedLine, Trial


def change_text(lines: tuple[SkippedLine, ...], settings: Mapping[str, Any], *, is_thread: bool) -> str:
    """`skips train.py:14: total += weight.item()`"""
    if lines:
        verb = "stops other threads at" if is_thread else "skips"
        return f"{verb} " + listed([f"{PurePath(line.file).name}:{line.line}: {_code(line.source)}" for line in lines])
    return f"changes settings: {listed(list(_settings(settings)))}"


def _code(source: str) -> str:
    return source.partition("  #")[0][:80]


def _settings(settings: Mapping[str, Any]) -> list[str]:
    words = []
    file, line = settings.get("loader_at") or ("", 0)
    place = f" at {PurePath(file).name}:{line}" if file else ""
    for name, value in settings.items():
        if name == "loader":
            words.append(f"DataLoader({', '.join(f'{key}={argument}' for key, argument in value.items())}){place}")
        elif name == "loader_at":
            continue
        elif name == "optimizer":
            words.append(f"optimizers with {', '.join(f'{key}={option}' for key, option in value.items())}")
        elif name == "replay":
            words.append(
                f"the loader{place} replays its first batches" if place else "loaders replay their first batches"
            )
        elif name == "threads":
            words.append(f"{value} threads")
        else:
            words.append(_SETTINGS.get(name, name))
    return words


_SETTINGS: Final = {
    "collect": "no garbage collection",
    "anomaly": "no anomaly detection",
    "set_to_none": "gradients are dropped, not filled with zeros",
}


def measured_text(trial: Trial) -> str:
    """`measured 2.90× (2.60× to 3.24×), predicted about 1.34×`, or why nothing was measured."""
    predicted = f"predicted {ratio(trial.predicted)}" if trial.predicted else "nothing was predicted"
    predicted += f"; {describe(trial.more)}" if trial.more else ""
    if trial.factor is None or trial.low is None or trial.high is None:
        return f"not measured: {_reason(trial.reason)}; {predicted}"
    bound = "at least " if trial.is_least else "up to " if trial.is_most else ""
    chance = "; the difference may be chance" if trial.low <= 1.0 <= trial.high else ""
    return f"measured {bound}{ratio(trial.factor)} ({ratio(trial.low)} to {ratio(trial.high)}), {predicted}{chance}"


def duration_text(trials: int, most: float) -> str:
    return f"{plural(trials, 'trial')} of at most {seconds(most)} in all"


def not_tried_text(rule: str, reason: Notice) -> str:
    """`float64: not tried: ...`"""
    return f"{rule}: not tried: {_reason(reason)}"


_WITH_ADVICE: Final = frozenset(("source-changed", "trial-failed", "trial-too-short", "too-wide", "wait-for-core"))
"""Reasons that tell themselves what to do."""


def _reason(reason: Notice | None) -> str:
    """Why a finding was not measured, and what to do instead."""
    text = describe(reason)
    if reason is None or reason.code in _WITH_ADVICE:
        return text
    return f"{text}; apply the fix by hand, and run `compare --before OLD --after NEW`"


def trials_json(trials: list[Trial]) -> str:
    """The trials as a JSON document, with the reason in words as well."""
    from dataclasses import asdict

    rows = [{**asdict(trial), "is_most": trial.is_most, "explanation": describe(trial.reason)} for trial in trials]
    return json.dumps({"schema": "trials/1", "trials": rows}, indent=1)
