"""Values with units."""

from __future__ import annotations

import pytest

from profiler.core import units


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        (0.0123, "s", "12.3 ms"),
        (1.5, "s", "1.50 s"),
        (125, "s", "2 min 05 s"),
        (-0.002, "s", "-2.00 ms"),
        (850, "ns", "850 ns"),
        (0.00041, "s", "410 µs"),
        (0.0, "s", "0 s"),
        (0.00099999, "s", "1.00 ms"),
        (1_200_000, "bytes", "1.20 MB"),
        (512, "bytes", "512 B"),
        (48.31, "x", "48.3×"),
        (0.97, "x", "0.970×"),
        (21_432, "tokens/s", "21.4k tokens/s"),
        (9.996, "steps/s", "10.0 steps/s"),
        (6000, "1/step", "6,000"),
        (1548, "bytes/step", "1.55 kB"),
        (0.3333, "", "0.333"),
        (12345.6, "", "12,346"),
        (1.204, "cores", "1.20 cores"),
        (float("nan"), "", "nan"),
        (None, "s", "not measured"),
    ],
)
def test_value(number: float | None, unit: str, expected: str) -> None:
    assert units.value(number, unit) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.613, "61%"), (0.042, "4.2%"), (0.0996, "10%"), (0, "0%"), (0.0031, "0.31%"), (-0.2, "-20%"), (1, "100%")],
)
def test_share(number: float, expected: str) -> None:
    assert units.share(number) == expected


def test_ordinals() -> None:
    assert [units.nth(number) for number in (1, 2, 3, 4, 11, 12, 22, 113, 1001)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "22nd", "113th", "1,001st"),
    ]
