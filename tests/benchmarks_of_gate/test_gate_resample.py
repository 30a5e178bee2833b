"""Gates that are drawn from live rounds, and the outputs about them."""

from __future__ import annotations

import functools
import gzip
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.check.model import CONFIRM, MEASURE, STATES, Conditions, Limits, Round
from profiler.check.speed.rounds import RoundValues, round_values
from profiler.check.speed.sequential import CONFIRM_LOOKS
from profiler.check.speed.verdict import next_kind, throughput
from tests.benchmarks import gate_figures, gate_rates, gate_resample, gate_tables
from tests.benchmarks.gate_live import append, read
from tests.benchmarks.gate_rates import CONSECUTIVE, Pool
from tests.benchmarks.gate_rules import RULES
from tests.check.synthetic_rounds import Made, a_round

LIMITS = Limits()
MADE = {
    "same": Made(),
    "slower-5": Made(slower=0.05),
    "slower-2": Made(slower=0.02),
    "stall": Made(every=10),
    "wild": Made(core=0.2, luck=0.04),
}


@functools.cache
def supply(made: Made, seed: int) -> dict[str, list[Round]]:
    number = {MEASURE: LIMITS.max_rounds, CONFIRM: CONFIRM_LOOKS[-1]}
    return {kind: [a_round(place + 1, kind, made, seed) for place in range(most)] for kind, most in number.items()}


def live_rounds(rounds: dict[str, list[Round]]) -> list[Round]:
    taken: list[Round] = []
    while kind := next_kind(taken, LIMITS):
        taken.append(rounds[kind][sum(measured.kind == kind for measured in taken)])
    return taken


def pool(*gates: list[float]) -> Pool:
    return Pool(tuple([RoundValues(typical, 0.0) for typical in gate] for gate in gates), ())


def typical(values: list[RoundValues]) -> list[float]:
    return [value.typical or 0.0 for value in values]


@pytest.mark.parametrize("name", MADE)
def test_a_drawn_gate_decides_as_a_live_one(name: str) -> None:
    for seed in range(3):
        rounds = supply(MADE[name], seed)
        values = {kind: [round_values(measured) for measured in some] for kind, some in rounds.items()}
        drawn = gate_rates.outcome(values[MEASURE], values[CONFIRM], LIMITS)
        assert drawn == throughput(live_rounds(rounds), LIMITS).state, f"seed {seed}"


def test_a_gate_that_needs_confirming_rounds_and_has_none_is_not_counted() -> None:
    slower = [round_values(measured) for measured in supply(Made(slower=0.2), 0)[MEASURE]]
    assert gate_rates.outcome(slower, [], LIMITS) is None


def test_single_rounds_alternate_in_which_side_starts_first() -> None:
    drawn, _ = gate_rates.singly(pool(*[[0.0, 1.0, 0.0, 1.0, 0.0]] * 3), np.random.default_rng(0), LIMITS)
    assert typical(drawn) == [float(place % 2) for place in range(LIMITS.max_rounds)]


def test_rounds_kept_together_follow_each_other() -> None:
    gates = [[5.0 * gate + place for place in range(5)] for gate in range(4)]
    measuring, confirming = gate_rates.together(pool(*gates), np.random.default_rng(0), LIMITS)
    assert not confirming, "there were none to draw from"
    steps = [after - before for before, after in itertools.pairwise(typical(measuring))]
    assert {step for place, step in enumerate(steps, 1) if place % CONSECUTIVE} <= {1.0, -19.0}


def test_lent_rounds_are_shifted_by_the_difference_of_means() -> None:
    def gate(slower: float, confirming: int) -> dict[str, Any]:
        kinds = [MEASURE] * 5 + [CONFIRM] * confirming
        return {"rounds": [a_round(place + 1, kind, Made(slower=slower)) for place, kind in enumerate(kinds)]}

    pools = gate_rates.pools({"same": [gate(0, 0)], "slower-5": [gate(0.05, 30)]})
    assert (pools["same"].lent, pools["slower-5"].lent) == (30, 0)
    lent, own = (np.mean(typical(pools[name].confirming_rounds)) for name in ("same", "slower-5"))
    assert own - lent == pytest.approx(0.05, abs=1e-6), "only the 5% differ"


@pytest.mark.slow
def test_the_interval_contains_the_rate_and_allows_for_the_number_of_drawn_gates() -> None:
    gates = [{"rounds": supply(MADE["same"], seed)[MEASURE][:5]} for seed in range(6)]
    same = gate_rates.pools({"same": gates})["same"]
    rates = gate_rates.rates(same, gate_rates.singly, 50, np.random.default_rng(0), LIMITS)
    assert sum(rate.rate for rate in rates.values()) == pytest.approx(1)
    assert all(rate.low <= rate.rate <= rate.high and rate.high > 0.005 for rate in rates.values()), rates
    few = gate_rates.rates(pool(*[[0.0] * 5] * 4), gate_rates.singly, 20, np.random.default_rng(0), LIMITS)
    assert {(rate.low, rate.high) for rate in few.values()} == {(0.0, 1.0)}, "few gates have no interval"


@pytest.mark.parametrize(("between", "expected"), [(0.0, 0.0), (0.03, 0.9)])
def test_the_intraclass_correlation_shows_whether_gates_differ(between: float, expected: float) -> None:
    rng = np.random.default_rng(0)
    gates = [[level + rng.normal(0, 0.01) for _ in range(5)] for level in rng.normal(0, between, 40)]
    assert gate_rates.correlation(pool(*gates)) == pytest.approx(expected, abs=0.12)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with three gates of each of three experiments."""
    path = tmp_path_factory.mktemp("raw") / "gates.jsonl.gz"
    for seed in range(3):
        for name in ("same", "slower-5", "stall"):
            rounds = live_rounds(supply(MADE[name], seed))
            line = {"experiment": name, "at": f"2026-01-01T0{seed}:00:00+00:00", "commit": "0", "seconds": 30.0 + seed}
            state = throughput(rounds, LIMITS).state
            append(path, {**line, "state": state, "rounds": [measured.to_json() for measured in rounds]})
    return path


def computed(gates: list[dict[str, Any]], replicates: int, each: int) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate_rates, "REPLICATES", replicates)
        patch.setattr(gate_rates, "REPLICATE", each)
        return gate_resample.compute(gates, replicates * each)


@pytest.fixture(scope="module")
def found(raw: Path) -> dict[str, Any]:
    return computed(read(raw), 3, 20)


def test_a_gate_that_is_being_written_is_left_out(raw: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(raw.read_bytes()[:-20])
    assert (len(read(raw)), len(read(cut))) == (9, 8)
    cut.write_bytes(gzip.compress(b"")[:5])
    assert read(cut) == []


def test_the_live_counts_are_those_of_the_file_and_the_present_rules_agree(raw: Path, found: dict[str, Any]) -> None:
    states = Counter((gate["experiment"], gate["state"]) for gate in read(raw))
    for name, one in found["live"].items():
        assert {state: one[state] for state in STATES} == {state: states[name, state] for state in STATES}
        assert (one["changed"], one["seconds_median"], one["seconds_most"]) == ({}, 31.0, 32.0)
    failed = [{**gate, "state": "FAIL"} for gate in read(raw) if gate["experiment"] == "same"]
    assert gate_resample.live("same", failed)["changed"] == {"FAIL → PASS": 3}


def test_crowded_gates_are_shown_apart_and_not_drawn_from(raw: Path) -> None:
    gates = read(raw)
    for number, load in ((0, 1.5), (3, 0.9)):
        rounds = [replace(measured, conditions=Conditions(load, cores=2)) for measured in gates[number]["rounds"]]
        gates[number] = {**gates[number], "rounds": rounds}
    crowded = computed(gates, 2, 10)
    sizes = {name: one["gates"] for name, one in crowded["live"].items()}
    assert sizes == {"same": 2, "slower-5": 3, "stall": 3, "same, crowded": 1}
    assert set(crowded["drawn"]) == {"same", "slower-5", "stall"}
    assert "| A/A: the same program twice, crowded | 1 | 0 |" in gate_tables.document(crowded, "a.svg", "b.svg")


def test_the_document_shows_all_experiments_and_rules(found: dict[str, Any]) -> None:
    text = gate_tables.document(found, "error-rates.svg", "rounds.svg")
    for name in ("same", "slower-5", "stall"):
        assert text.count(f"| {gate_tables.SHOWN[name]} |") >= 2
    assert all(text.count(f"| {rule.name} | ") == 2 for rule in RULES)
    widths = [{line.count("|") for line in part.splitlines()} for part in text.split("\n\n") if part.startswith("| ")]
    assert all(len(width) == 1 for width in widths), "rows of different widths"


@pytest.mark.parametrize("draw", [gate_figures.rules_figure, gate_figures.rounds_figure])
def test_figures_are_small_and_reproducible(draw: Any, found: dict[str, Any], tmp_path: Path) -> None:
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    draw(found, first)
    draw(found, second)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 200_000


def test_a_document_keeps_the_text_around_the_replaced_part() -> None:
    once = gate_resample.replace_part("# Figures\n\nBefore.\n", "old\n")
    again = gate_resample.replace_part(once + "After.\n", "new\n")
    assert again == f"# Figures\n\nBefore.\n\n{gate_resample.BEGIN}\nnew\n{gate_resample.END}\nAfter.\n"
    assert gate_resample.replace_part(again, "new\n") == again
