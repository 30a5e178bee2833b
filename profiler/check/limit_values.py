"""Values of `[tool.profiler.check]`: what each key takes, and what is wrong with what it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from profiler.check.model import Limit

_LONGEST = 60


class BadValueError(ValueError):
    """A value that its key does not take; the text says what it takes."""


def share(value: object) -> float:
    """'5%', '0.05' and 0.05 are 0.05; below 1."""
    found = limit(value)
    said = found.relative or found.absolute
    if not said < 1:
        raise BadValueError(f"{_quoted(value)} is no share below 1: write 5% or 0.05")
    return said


def detectable(value: object) -> float:
    """A share above 0."""
    said = share(value)
    if not said:
        raise BadValueError(f"{_quoted(value)} cannot be detected by any number of rounds: write 5% or 0.05")
    return said


def limit(value: object) -> Limit:
    """1, 0.5, '1%', or a table with absolute and relative."""
    if isinstance(value, Mapping):
        if unknown := [str(key) for key in value if key not in {"absolute", "relative"}]:
            raise BadValueError(f"{_quoted(unknown[0])} is no part of a limit: absolute and relative are")
        return Limit(number(value.get("absolute", 0.0)), share(value.get("relative", 0.0)))
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return Limit(relative=number(value.strip()[:-1]) / 100)
        except BadValueError:
            raise BadValueError(f"{_quoted(value)} is no share such as 5%") from None
    return Limit(absolute=number(value))


def limits(value: object) -> dict[str, Limit]:
    """By counter."""
    if not isinstance(value, Mapping):
        raise BadValueError(f"{_quoted(value)} is no table of limits, such as syncs = 1")
    found = {}
    for name, one in value.items():
        try:
            found[str(name)] = limit(one)
        except BadValueError as error:
            raise BadValueError(f"{named(name)}: {error}") from None
    return found


def number(value: object) -> float:
    """Finite, from 0 on."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise BadValueError(f"{_quoted(value)} is neither a number nor a share such as 5%") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value) or value < 0:
        raise BadValueError(f"{_quoted(value)} is no number from 0 on")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # of a whole number with hundreds of digits
        return False


def whole(least: int) -> Callable[[object], int]:
    """Whole numbers from `least` on."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadValueError(f"{_quoted(value)} is no whole number from {least} on")
        return value

    return parse


def seconds(value: object) -> float:
    """Above 0."""
    said = number(value)
    if not said:
        raise BadValueError("0 seconds are too few")
    return said


def choice(value: object) -> str:
    """fail | pass"""
    if value not in ("fail", "pass"):
        raise BadValueError(f"{_quoted(value)} is neither fail nor pass")
    return str(value)


def text(value: object) -> str:
    """Not empty."""
    if not isinstance(value, str) or not value.strip():
        raise BadValueError(f"{_quoted(value)} is no text")
    return value


def texts(value: object) -> tuple[str, ...]:
    """A list of them."""
    if not isinstance(value, list | tuple):
        raise BadValueError(f"{_quoted(value)} is no list of texts")
    return tuple(text(one) for one in value)


def named(key: str) -> str:
    """On one line, whatever it is."""
    return key if key.isprintable() else repr(key)


def _quoted(value: object) -> str:
    said = repr(value)
    return said if len(said) <= _LONGEST else said[: _LONGEST - 3] + "..."
