"""Other tools' rules on samples whose answer is known."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from tests.benchmarks import gate_rules
from tests.benchmarks.gate_rules import RULES

BASE = np.array([[100.0, 101, 102, 103, 104, 105, 106, 107, 108, 109]])
ALARMS_ON = {
    "nothing": {},
    "a gain": {},
    "4% more": {"traceml-3", "benchstat"},
    "6% more": {"mean", "pytest-min", "pytest-mean", "traceml-5", "traceml-3", "benchstat", "benchstat-5"},
    "12% more": {rule.key for rule in RULES},
}
SLOWER = {"nothing": 1.0, "a gain": 1 / 1.2, "4% more": 1.04, "6% more": 1.06, "12% more": 1.12}


@pytest.mark.parametrize("what", SLOWER)
def test_each_rule_alarms_where_its_own_text_says_so(what: str) -> None:
    found = {rule.key for rule in RULES if rule.fails(BASE, BASE * SLOWER[what])[0]}
    # asv's U test is sure enough at 6% (p = 0.0005 of these samples), and the medians pass its factor of 1.05.
    expected = set(ALARMS_ON[what]) | ({"asv-1.05"} if what == "6% more" else set())
    assert found == expected, f"{what}: {sorted(found)} instead of {sorted(expected)}"


def test_the_exact_test_has_the_p_of_counting() -> None:
    p = gate_rules.mann_whitney(BASE, BASE + 50, exact=True, continuity=True)[0]
    assert p == pytest.approx(2 / comb(20, 10)), "all samples of one side above the other's: one order of each kind"


@pytest.mark.parametrize(("number", "ranks"), [(8, (0, 7)), (10, (0, 9)), (24, (5, 18)), (120, (45, 74))])
def test_the_interval_of_asv_holds_the_median_with_99_percent(number: int, ranks: tuple[int, int]) -> None:
    low, high = gate_rules._ranks(number)
    below = sum(comb(number, rank) for rank in range(low + 1)) / 2**number
    above = sum(comb(number, rank) for rank in range(high + 1)) / 2**number
    assert (low, high) == ranks, f"{number} samples: order statistics {low} and {high}"
    assert below <= 0.005, f"{number} samples: {below} of the chance lies below rank {low}"
    assert above >= 0.995, f"{number} samples: {above} of the chance lies up to rank {high}"
    with pytest.raises(ValueError, match="5 samples"):
        gate_rules._ranks(5)


def test_rows_are_judged_one_by_one() -> None:
    both = np.concatenate([BASE, BASE])
    for rule in RULES:
        found = rule.fails(both, both * np.array([[1.0], [1.3]])).tolist()
        assert found == [False, True], f"{rule.key}: {found}"
