"""What a manifest says of a program and its machine, as rows of text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from profiler.core.units import size

HIDDEN: Final = frozenset({"hooks", "main", "package", "processes", "torch_folder", "trace", "versions_of"})
"""Facts that the tool keeps for itself: which hooks came in, whose code lies where, a trace's clock, whose versions."""


def flat(values: Mapping[str, Any], prefix: str = "", skip: Sequence[str] = ()) -> dict[str, str]:
    """A mapping and those within it as name -> text; without what nobody said, and what the tool keeps for itself."""
    rows: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if key in skip or key in HIDDEN or value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            rows |= flat(value, f"{key} ")
        elif isinstance(value, (list, tuple)):
            rows[name] = ", ".join(map(str, value)) or "none"
        elif key.endswith("_bytes") and isinstance(value, (int, float)):
            rows[name.removesuffix(" bytes")] = size(value)
        else:
            rows[name] = str(value)
    return rows
