"""Values with units for people, with three significant digits: 12.3 ms, 1.2 MB, 48.3×, 21.4k tokens/s, 61%.

The units that a `Measure` may have:

    s  ns  bytes  cores  steps  tokens/s  steps/s  x (a ratio)  1 (a plain number or a share of 1)

each also per step (`1/step`, `bytes/step`, `ns/step`), which is printed as the unit before the slash.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

_TIME: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_RATE: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))

NOT_MEASURED: Final = "not measured"
TIMES: Final = "×"
"""After a ratio."""


def significant(value: float, digits: int = 3) -> str:
    """`value` rounded to `digits` significant digits, never in exponent form, thousands separated: 1,230 or 0.0123."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - magnitude)
    # 9.996 rounds up into the next magnitude, where one decimal less is significant
    magnitude = math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, digits - 1 - magnitude)}f}"


def seconds(value: float) -> str:
    """12.3 ms, 1.50 s, 850 ns; from a minute on in minutes: 2 min 05 s."""
    if abs(value) >= 60:
        minutes, remaining = divmod(round(abs(value)), 60)
        return f"{'-' if value < 0 else ''}{minutes:,} min {remaining:02d} s"
    return "0 s" if value == 0 else _scaled(value, _TIME, " ")


def size(value: float) -> str:
    """Return the bytes in decimal units: 1.20 MB, 512 B."""
    return _scaled(value, _BYTES, " ")


def ratio(value: float) -> str:
    """48.3×, 0.970×."""
    return significant(value) + TIMES


def share(value: float) -> str:
    """Return a share of 1 as a percentage with two significant digits: 61%, 4.2%, 0.31%."""
    percent = value * 100
    return (f"{percent:.0f}" if abs(percent) >= 9.95 else significant(percent, 2)) + "%"


def count(value: float) -> str:
    """Return a count or a mean of counts: integers in full, such as 6,000, others as 0.333 or 12,346."""
    if math.isfinite(value) and (float(value).is_integer() or abs(value) >= 1000):
        return f"{round(value):,}"
    return significant(value)


def nth(number: int) -> str:
    """10th, 2nd, 11th, 1,001st."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def rate(value: float, unit: str) -> str:
    """21.4k tokens/s."""
    return f"{_scaled(value, _RATE, '')} {unit}"


def plain(value: float, unit: str) -> str:
    """Return a value with any other unit: 1.20 cores."""
    return f"{significant(value)} {unit}".rstrip()


_BY_UNIT: Final[dict[str, Callable[[float], str]]] = {
    "s": seconds,
    "ns": lambda value: seconds(value * 1e-9),
    "bytes": size,
    "x": ratio,
    "1": count,
    "steps": count,
    "": count,
}


def value(number: float | None, unit: str) -> str:
    """`number` of `unit` for people; None is "not measured"."""
    if number is None:
        return NOT_MEASURED
    unit = unit.removesuffix("/step")
    if unit in _BY_UNIT:
        return _BY_UNIT[unit](number)
    return rate(number, unit) if unit.endswith("/s") else plain(number, unit)


def _scaled(value: float, scale: tuple[tuple[float, str], ...], space: str) -> str:
    """`value` in the largest unit of `scale` (descending) in which three digits do not round to below 1."""
    for factor, name in scale:
        if abs(value) >= factor * 0.9995:
            return f"{significant(value / factor)}{space}{name}"
    factor, name = scale[-1]
    return f"{significant(value / factor)}{space}{name}"


def shorten(text: str, characters: int) -> str:
    """Return the text, or its beginning and `...` where it is longer."""
    return text if len(text) <= characters else text[: characters - 3] + "..."
