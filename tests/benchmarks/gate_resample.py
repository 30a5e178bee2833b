"""Error rates of the gate and of other tools' rules, from the raw file of live gates.

    python -m tests.benchmarks.gate_resample reports/gate/gates.jsonl.gz --into reports/gate [--doc docs/x.md]

Writes error-rates.json, error-rates.md, error-rates.svg and rounds.svg; with --doc, it also replaces the part of that
document between the marks. The same file gives the same output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from profiler.check.model import STATES, Limits, Round
from profiler.check.speed.sequential import edges
from profiler.check.speed.verdict import next_kind, throughput
from tests.benchmarks import gate_figures, gate_rates, gate_tables
from tests.benchmarks.gate_live import read
from tests.benchmarks.gate_rates import Pool
from tests.benchmarks.gate_rules import RULES
from tests.benchmarks.gate_samples import rule_rate, samples

SCHEMA = "gate-error-rates/1"
GATES = 10_000
"""Gates that are drawn for a rate."""
BEGIN, END = "<!-- error rates: begin -->", "<!-- error rates: end -->"

Gates = Sequence[Mapping[str, Any]]


def crowded(gate: Mapping[str, Any]) -> bool:
    """Whether on average other programs left the gate no core: they and the running program were more than the cores,
    less the share of these that other virtual machines took."""
    known = [measured.conditions for measured in gate["rounds"] if measured.conditions.load is not None]
    return bool(known) and sum(one.load + 1 - one.cores * (1 - (one.steal or 0)) for one in known) > 0


def by_experiment(gates: Gates) -> dict[str, list[Mapping[str, Any]]]:
    """Gates by experiment, in the order in which experiments are shown."""
    names = dict.fromkeys([*gate_tables.SHOWN, *(gate["experiment"] for gate in gates)])
    grouped = {name: [gate for gate in gates if gate["experiment"] == name] for name in names}
    return {name: some for name, some in grouped.items() if some}


def live(name: str, gates: Gates) -> dict[str, Any]:
    """One line of the live table."""
    states = Counter(gate["state"] for gate in gates)
    seconds, rounds = [gate["seconds"] for gate in gates], [len(gate["rounds"]) for gate in gates]
    error, wrong_states = gate_tables.wrong(name)
    wrong = sum(states[state] for state in wrong_states)
    again = [(gate["state"], replayed(gate)) for gate in gates]
    return {
        "gates": len(gates),
        **{state: states[state] for state in STATES},
        "seconds_median": float(np.median(seconds)),
        "seconds_most": max(seconds),
        "rounds": sum(rounds),
        "rounds_median": float(np.median(rounds)),
        "rounds_most": max(rounds),
        "error": error,
        "wrong": wrong,
        "at_most": gate_rates.at_most(wrong, len(gates)),
        "changed": dict(Counter(f"{before} → {now}" for before, now in again if before != now)),
    }


def replayed(gate: Mapping[str, Any]) -> str:
    """The present verdict on the rounds of a live gate, taken in their order."""
    taken: list[Round] = []
    remaining = list(gate["rounds"])
    while kind := next_kind(taken, Limits()):
        following = next((measured for measured in remaining if measured.kind == kind), None)
        if following is None:
            return "wants another round"
        remaining.remove(following)
        taken.append(following)
    return throughput(taken, Limits()).state


def drawn(pool: Pool, rng: np.random.Generator, gates: int) -> dict[str, Any]:
    """Rates of one experiment, by both ways of drawing."""
    return {
        "rounds": len(pool.rounds),
        "confirming": len(pool.confirming_rounds),
        "lent": pool.lent,
        "lost": pool.lost,
        "alike": gate_rates.correlation(pool),
        **{
            draw.__name__: {
                state: asdict(rate) for state, rate in gate_rates.rates(pool, draw, gates, rng, Limits()).items()
            }
            for draw in (gate_rates.singly, gate_rates.together)
        },
    }


def peers(gates: Gates, rng: np.random.Generator) -> dict[str, Any]:
    """Rates of each rule, by the way of measuring."""
    return {
        way: {
            rule.key: {**asdict(rule_rate(rule, rows, len(gates), rng)), "rows": len(rows)} for rule in RULES
        }
        for way, rows in samples(gates).items()
    }  # fmt: skip


def first_rounds(pool: Pool | None, rng: np.random.Generator, gates: int) -> dict[str, float] | None:
    """Rates of A/A from the first rounds of every gate, which every gate has, whatever they show."""
    if pool is None:
        return None
    first = replace(pool, measuring=tuple(gate[: gate_rates.CONSECUTIVE] for gate in pool.measuring))
    return gate_rates.shares(first, gate_rates.singly, gates, rng, Limits())


def hours_apart(gates: Gates) -> str:
    """Quartiles of the time between two gates of A/A, in words."""
    times = [datetime.fromisoformat(gate["at"]).timestamp() / 3600 for gate in gates]
    gaps = [abs(time - earlier) for number, time in enumerate(times) for earlier in times[:number]]
    if not gaps:
        return "one gate only"
    low, middle, high = np.quantile(gaps, [0.25, 0.5, 0.75])
    return f"median {middle:.1f} h, half of them {low:.1f}–{high:.1f} h"


def compute(gates: Gates, number: int = GATES) -> dict[str, Any]:
    """Everything that the outputs show."""
    experiments = by_experiment([gate for gate in gates if not crowded(gate)])
    apart = [{**gate, "experiment": gate["experiment"] + gate_tables.CROWDED} for gate in gates if crowded(gate)]
    pools = gate_rates.pools(experiments)
    seeds = map(np.random.default_rng, np.random.SeedSequence(5).spawn(len(experiments) + len(pools) + 1))
    limits = edges(Limits().detect)
    return {
        "schema": SCHEMA,
        "from": min(gate["at"] for gate in gates)[:16].replace("T", " "),
        "to": max(gate["at"] for gate in gates)[:16].replace("T", " "),
        "commits": sorted({gate["commit"] for gate in gates}),
        "gates_drawn": number,
        "edges": {"fails": limits.fails, "passes": limits.passes},
        "live": {name: live(name, some) for name, some in {**experiments, **by_experiment(apart)}.items()},
        "drawn": {name: drawn(pool, next(seeds), number) for name, pool in pools.items()},
        "peers": {name: peers(some, next(seeds)) for name, some in experiments.items()},
        "first_rounds": first_rounds(pools.get("same"), next(seeds), number),
        "apart": hours_apart(experiments.get("same", gates)),
        "round_values": {
            name: [(values.typical, values.all_steps) for values in pool.rounds] for name, pool in pools.items()
        },
    }


def replace_part(document: str, part: str) -> str:
    """The document with the part between its marks; without marks the part goes to the end."""
    marked = f"{BEGIN}\n{part}{END}"
    if BEGIN not in document or END not in document:
        return f"{document.rstrip()}\n\n{marked}\n".lstrip()
    return document.split(BEGIN, 1)[0] + marked + document.split(END, 1)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--doc", type=Path, help="a document that gets the part too")
    parser.add_argument("--gates", type=int, default=GATES, help="drawn for each rate")
    args = parser.parse_args()
    gates = read(args.raw)
    if not gates:
        sys.exit(f"{args.raw}: there is no complete gate in it")
    found = compute(gates, args.gates)
    args.into.mkdir(parents=True, exist_ok=True)
    gate_figures.rules_figure(found, args.into / "error-rates.svg")
    gate_figures.rounds_figure(found, args.into / "rounds.svg")
    text = gate_tables.document(found, "error-rates.svg", "rounds.svg")
    (args.into / "error-rates.md").write_text(text)
    if args.doc:
        folder = Path(os.path.relpath(args.into, args.doc.parent)).as_posix()
        part = gate_tables.document(found, f"{folder}/error-rates.svg", f"{folder}/rounds.svg")
        args.doc.write_text(replace_part(args.doc.read_text() if args.doc.exists() else "", part))
    del found["round_values"]
    (args.into / "error-rates.json").write_text(json.dumps(found, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
