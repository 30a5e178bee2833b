"""Gates drawn from live rounds, and what is written of them."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.check.model import CONFIRM, MEASURE, STATES, Conditions, Limits, Round
from profiler.check.speed.round_values import RoundValues, round_values
from profiler.check.speed.sequential import CONFIRM_LOOKS
from profiler.check.speed.verdict import next_kind, throughput
from tests.benchmarks import gate_drawn, gate_figures, gate_resample, gate_tables
from tests.benchmarks.gate_live import append
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


def _supply(made: Made, seed: int) -> dict[str, list[Round]]:
    number = {MEASURE: LIMITS.max_rounds, CONFIRM: CONFIRM_LOOKS[-1]}
    return {kind: [a_round(place + 1, kind, made, seed) for place in range(most)] for kind, most in number.items()}


def _step_by_step(supply: dict[str, list[Round]]) -> list[Round]:
    taken: list[Round] = []
    while kind := next_kind(taken, LIMITS):
        taken.append(supply[kind][sum(one.kind == kind for one in taken)])
    return taken


@pytest.mark.parametrize("name", MADE)
def test_a_drawn_gate_decides_as_a_live_one(name: str) -> None:
    for seed in range(3):
        supply = _supply(MADE[name], seed)
        live = throughput(_step_by_step(supply), LIMITS).state
        values = {kind: [round_values(one) for one in some] for kind, some in supply.items()}
        found = gate_drawn.outcome(values[MEASURE], values[CONFIRM], LIMITS)
        assert found == live, f"{name}, seed {seed}: drawn {found}, live {live}"
    slower = [round_values(one) for one in _supply(Made(slower=0.2), 0)[MEASURE]]
    assert gate_drawn.outcome(slower, [], LIMITS) is None, "it wants rounds to confirm and has none: not counted"


def test_rounds_are_drawn_in_turns_of_who_starts_first() -> None:
    gates = tuple([RoundValues(float(place % 2), 0.0) for place in range(5)] for _ in range(3))
    measured, _ = gate_drawn.singly(gate_drawn.Pool(gates, ()), LIMITS)(np.random.default_rng(0))
    assert [one.typical for one in measured] == [float(place % 2) for place in range(LIMITS.max_rounds)]


def test_rounds_kept_together_follow_each_other() -> None:
    gates = tuple([RoundValues(float(5 * gate + place), 0.0) for place in range(5)] for gate in range(4))
    measured, confirming = gate_drawn.together(gate_drawn.Pool(gates, ()), LIMITS)(np.random.default_rng(0))
    assert not confirming, "there were none to draw from"
    numbers = [one.typical or 0.0 for one in measured]
    steps = [after - before for before, after in itertools.pairwise(numbers)]
    inside = [step for place, step in enumerate(steps, 1) if place % gate_drawn.TOGETHER]
    assert set(inside) <= {1.0, -19.0}, f"runs of {gate_drawn.TOGETHER} are broken: {numbers}"


def test_lent_rounds_are_moved_by_the_difference_of_means() -> None:
    def gate(slower: float, confirming: int) -> dict[str, Any]:
        kinds = [MEASURE] * 5 + [CONFIRM] * confirming
        return {"rounds": [a_round(place + 1, kind, Made(slower=slower)) for place, kind in enumerate(kinds)]}

    pools = gate_drawn.pools({"same": [gate(0, 0)], "slower-5": [gate(0.05, 30)]})
    lent = [one.typical or 0.0 for some in pools["same"].confirming for one in some]
    own = [one.typical or 0.0 for some in pools["slower-5"].confirming for one in some]
    assert (pools["same"].lent, pools["slower-5"].lent) == (30, 0)
    assert np.mean(own) - np.mean(lent) == pytest.approx(0.05, abs=1e-6), "the same noise: only the 5% come off"


def test_the_interval_covers_the_rate_and_what_drawing_adds() -> None:
    gates = [{"rounds": _supply(MADE["same"], seed)[MEASURE][:5]} for seed in range(6)]
    pool = gate_drawn.pools({"same": gates})["same"]
    rates = gate_drawn.rates(pool, gate_drawn.singly, 50, np.random.default_rng(0), LIMITS)
    assert sum(rate.rate for rate in rates.values()) == pytest.approx(1)
    for state, rate in rates.items():
        assert rate.low <= rate.rate <= rate.high, f"{state}: {rate}"
        assert rate.high > 0.005, f"{state}: 50 gates cannot bound a rate at {rate.high}"
    few = gate_drawn.Pool(tuple([RoundValues(0.0, 0.0)] * 5 for _ in range(4)), ())
    rates = gate_drawn.rates(few, gate_drawn.singly, 20, np.random.default_rng(0), LIMITS)
    assert {(rate.low, rate.high) for rate in rates.values()} == {(0.0, 1.0)}, "few gates have no interval"


def test_rounds_of_a_gate_are_alike_where_gates_differ() -> None:
    rng = np.random.default_rng(0)
    for between, expected in ((0.0, 0.0), (0.03, 0.9)):
        levels = rng.normal(0, between, 40)
        gates = tuple([RoundValues(level + rng.normal(0, 0.01), 0.0) for _ in range(5)] for level in levels)
        found = gate_drawn.alike(gate_drawn.Pool(gates, ()))
        assert found == pytest.approx(expected, abs=0.12), f"sd {between} between gates, 0.01 inside: {found}"


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few gates of each experiment but one."""
    path = tmp_path_factory.mktemp("raw") / "gates.jsonl.gz"
    for seed in range(3):
        for name in ("same", "slower-5", "stall"):
            rounds = _step_by_step(_supply(MADE[name], seed))
            line = {"experiment": name, "at": f"2026-01-01T0{seed}:00:00+00:00", "commit": "0", "seconds": 30.0 + seed}
            state = throughput(rounds, LIMITS).state
            append(path, {**line, "state": state, "rounds": [one.to_json() for one in rounds]})
    return path


def computed(gates: list[dict[str, Any]], replicates: int, each: int) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate_drawn, "REPLICATES", replicates)
        patch.setattr(gate_drawn, "REPLICATE", each)
        return gate_resample.compute(gates, replicates * each)


@pytest.fixture(scope="module")
def found(raw: Path) -> dict[str, Any]:
    return computed(gate_resample.read_whole(raw), 3, 20)


def test_a_gate_that_is_being_written_is_left_out(raw: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(raw.read_bytes()[:-20])
    assert (len(gate_resample.read_whole(raw)), len(gate_resample.read_whole(cut))) == (9, 8)
    cut.write_bytes(gzip.compress(b"")[:5])
    assert gate_resample.read_whole(cut) == []


def test_live_counts_are_those_of_the_file_and_todays_rules_agree(raw: Path, found: dict[str, Any]) -> None:
    states = Counter((gate["experiment"], gate["state"]) for gate in gate_resample.read_whole(raw))
    for name, one in found["live"].items():
        assert {state: one[state] for state in STATES} == {state: states[name, state] for state in STATES}
        assert one["changed"] == {}, f"{name}: {one['changed']}"
        assert (one["seconds_median"], one["seconds_most"]) == (31.0, 32.0)
    failed = [{**gate, "state": "FAIL"} for gate in gate_resample.read_whole(raw) if gate["experiment"] == "same"]
    assert gate_resample.live("same", failed)["changed"] == {"FAIL → PASS": 3}


def test_gates_that_others_left_no_core_are_told_apart_and_not_drawn_from(raw: Path) -> None:
    gates = gate_resample.read_whole(raw)
    for number, load in ((0, 1.5), (3, 0.9)):
        rounds = [replace(one, conditions=Conditions(load, cores=2)) for one in gates[number]["rounds"]]
        gates[number] = {**gates[number], "rounds": rounds}
    found = computed(gates, 2, 10)
    sizes = {name: one["gates"] for name, one in found["live"].items()}
    assert sizes == {"same": 2, "slower-5": 3, "stall": 3, "same, crowded": 1}
    assert set(found["drawn"]) == {"same", "slower-5", "stall"}
    assert "| A/A: the same program twice, crowded | 1 | 0 |" in gate_tables.document(found, "a.svg", "b.svg")


def test_the_document_shows_all_experiments_and_rules(found: dict[str, Any]) -> None:
    text = gate_tables.document(found, "error-rates.svg", "rounds.svg")
    for name in ("same", "slower-5", "stall"):
        assert text.count(f"| {gate_tables.SHOWN[name]} |") >= 2, f"{name} is missing:\n{text}"
    for rule in RULES:
        assert text.count(f"| {rule.name} | ") == 2, f"{rule.name} is missing:\n{text}"
    widths = [{line.count("|") for line in part.splitlines()} for part in text.split("\n\n") if part.startswith("| ")]
    assert all(len(width) == 1 for width in widths), f"rows of different widths: {widths}"


def test_figures_are_small_and_the_same_each_time(found: dict[str, Any], tmp_path: Path) -> None:
    for draw in (gate_figures.rules_figure, gate_figures.rounds_figure):
        first, second = tmp_path / "a.svg", tmp_path / "b.svg"
        draw(found, first)
        draw(found, second)
        assert first.read_bytes() == second.read_bytes(), f"{draw.__name__} differs from time to time"
        assert first.stat().st_size < 200_000, f"{draw.__name__}: {first.stat().st_size} bytes"


def test_a_document_keeps_what_is_around_the_part() -> None:
    once = gate_resample.replace_part("# Figures\n\nBefore.\n", "old\n")
    again = gate_resample.replace_part(once + "After.\n", "new\n")
    assert again == f"# Figures\n\nBefore.\n\n{gate_resample.BEGIN}\nnew\n{gate_resample.END}\nAfter.\n", again
    assert gate_resample.replace_part(again, "new\n") == again
