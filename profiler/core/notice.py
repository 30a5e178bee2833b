"""Defines a fact that a report must mention: a code and its values. `profiler.report.text` turns it into a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning, a missing measurement or a limitation, as data. No code reads the sentence that is made of it."""

    code: str
    """Stable identifier in kebab case, such as `few-steps` or `trace-not-recorded`."""
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Values that the sentence mentions: numbers in base units, names, sites."""
