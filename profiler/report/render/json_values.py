"""Numbers of a JSON report: what is not measured, or not finite, is null, and its reason is kept by its path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from profiler.analyse.model import Measure, Ratio
from profiler.core.notice import Notice
from profiler.core.terminal import plain
from profiler.report.text import NO_REASON, describe


class Gaps:
    """Collects the reasons of what is null, by path."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def number(self, path: str, value: float | None, reason: Notice | str | None) -> float | None:
        """The value, or None with its reason noted."""
        if value is None:
            self.reasons[path] = (reason if isinstance(reason, str) else describe(reason)) or NO_REASON
        elif not math.isfinite(value):
            self.reasons[path] = f"not a finite number: {value}"
        else:
            return value
        return None


def ratio_json(ratio: Ratio | None, path: str, gaps: Gaps) -> dict[str, Any]:
    """A ratio with its interval."""
    found = ratio or Ratio("", None, None, None, 0, different=False, reason=Notice("no-pair"))
    numbers = {
        key: gaps.number(f"{path}.{key}", value, found.reason or "too few pairs for an interval")
        for key, value in (("value", found.value), ("low", found.low), ("high", found.high))
    }
    return {**numbers, "n": found.n, "different": found.different}


def ranges_json(measures: Mapping[str, Measure]) -> dict[str, Any]:
    """The lowest and the highest run of what has a range."""
    return {
        name: {"low": measure.low, "high": measure.high, "n": measure.n}
        for name, measure in measures.items()
        if measure.low is not None and measure.high is not None and math.isfinite(measure.low + measure.high)
    }


def clean(value: Any) -> Any:
    """Text without control characters and lone surrogates, which some readers of JSON refuse."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {plain(str(key)): clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean(one) for one in value]
    return value


def strict(value: Any) -> Any:
    """What a manifest holds, with text in place of whatever JSON has no word for."""
    if isinstance(value, Mapping):
        return {str(key): strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [strict(one) for one in value]
    if value is None:
        return "unknown"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | bool | int | float) else str(value)
