"""A baseline's sections as text: JSON with a counter a line and a checksum a section, for people to review."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

SCHEMA: Final = 1
HISTORY: Final = {1: "first layout"}
WHAT: Final = "Counters per step of a training program, for `python -m profiler check`: change them with --update only."
CHECKSUM: Final = "checksum"
_DIGITS: Final = 32
"""Of SHA-256, in hexadecimal: against accidents, not against malice."""

Row = tuple[str, str, int, str, str, float, str]
"""Counter, file, line, function, operation, amount per step, text of the line."""


class Plain(TypedDict):
    """A section as it stands in the file."""

    key: Mapping[str, str]
    command: str
    step: str
    steps: int
    processes: int
    counters: Mapping[str, tuple[float, float]]
    workers: Mapping[str, tuple[float, float]]
    sites: Sequence[Row]
    worker_sites: Sequence[Row]
    updated_at: str
    reason: str
    tool: str


def _number(value: float) -> float | int:
    """Whole numbers without a point: how a tool that goes over the file may write them changes nothing."""
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else value


def _jsonable(plain: Plain) -> dict[str, Any]:
    def ranges(table: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
        return {
            name: _number(least) if least == most else [_number(least), _number(most)]
            for name, (least, most) in sorted(table.items())
        }

    def rows(table: Sequence[Row]) -> list[list[Any]]:
        return [[*row[:5], _number(row[5]), row[6]] for row in sorted(table)]

    return {
        **plain,
        "key": dict(sorted(plain["key"].items())),
        "counters": ranges(plain["counters"]),
        "workers": ranges(plain["workers"]),
        "sites": rows(plain["sites"]),
        "worker_sites": rows(plain["worker_sites"]),
    }


def checksum(plain: Plain) -> str:
    """Of the content, however it is laid out."""
    content = json.dumps(_jsonable(plain), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:_DIGITS]


def text_of(sections: Sequence[Plain]) -> str:
    """The file: what a person reviews, so a counter and a site a line."""
    whole = {
        "what": WHAT,
        "schema": SCHEMA,
        "sections": [{**_jsonable(one), CHECKSUM: checksum(one)} for one in sections],
    }
    return "".join(_laid_out(whole, "")) + "\n"


def _laid_out(value: Any, indent: str) -> Iterator[str]:
    """JSON with everything on a line of its own but the parts of a range or a site."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        yield "{\n"
        for number, (name, one) in enumerate(value.items()):
            yield (
                f"{inner}{json.dumps(name, ensure_ascii=False)}: "
                if not number
                else f",\n{inner}{json.dumps(name, ensure_ascii=False)}: "
            )
            yield from _laid_out(one, inner)
        yield f"\n{indent}}}"
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        yield "[\n"
        for number, one in enumerate(value):
            yield inner if not number else f",\n{inner}"
            yield from _laid_out(one, inner)
        yield f"\n{indent}]"
    else:
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)
