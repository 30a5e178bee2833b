"""Error rates of the gate and of other tools' rules, from the raw file of live gates.

    python -m tests.benchmarks.gate_resample reports/gate/gates.jsonl.gz --into reports/gate [--doc docs/x.md]

Writes error-rates.json, error-rates.md, error-rates.svg and rounds.svg; with --doc, the part between the marks of that
document too. The same file gives the same output.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from profiler.check.model import STATES, Limits, Round
from profiler.check.speed.sequential import edges
from profiler.check.speed.verdict import next_kind, throughput
from tests.benchmarks import gate_drawn, gate_feeds, gate_figures, gate_rates, gate_tables
from tests.benchmarks.gate_live import read
from tests.benchmarks.gate_rules import RULES

SCHEMA = "gate-error-rates/1"
GATES = 10_000
"""Drawn for a rate."""
BEGIN, END = "<!-- error rates: begin -->", "<!-- error rates: end -->"

Gates = Sequence[Mapping[str, Any]]


def read_whole(path: Path) -> list[dict[str, Any]]:
    """All gates whose gzip member is whole: the file may be being written."""
    data, whole = path.read_bytes(), io.BytesIO()
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            member.decompress(data)
        except zlib.error as error:
            sys.exit(f"{path}: after {whole.tell()} whole bytes: {error}")
        if not member.eof:
            break
        whole.write(data[: len(data) - len(member.unused_data)])
        data = member.unused_data
    with tempfile.NamedTemporaryFile(suffix=".jsonl.gz") as file:
        file.write(whole.getvalue() or gzip.compress(b""))
        file.flush()
        return read(Path(file.name))


def crowded(gate: Mapping[str, Any]) -> bool:
    """Whether others left it no core of its own: with the program that runs they were more than the cores, less what
    other virtual machines took of these. The mean over its rounds."""
    known = [one.conditions for one in gate["rounds"] if one.conditions.load is not None]
    return bool(known) and sum(one.load + 1 - one.cores * (1 - (one.steal or 0)) for one in known) > 0


def by_experiment(gates: Gates) -> dict[str, list[Mapping[str, Any]]]:
    """In the order in which they are shown."""
    names = list(dict.fromkeys([*gate_tables.SHOWN, *(gate["experiment"] for gate in gates)]))
    found = {name: [gate for gate in gates if gate["experiment"] == name] for name in names}
    return {name: some for name, some in found.items() if some}


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
    """Today's verdict on the rounds of a live gate, taken in their order."""
    limits = Limits()
    taken: list[Round] = []
    left = list(gate["rounds"])
    while kind := next_kind(taken, limits):
        following = next((place for place, one in enumerate(left) if one.kind == kind), None)
        if following is None:
            return "wants another round"
        taken.append(left.pop(following))
    return throughput(taken, limits).state


def drawn(pool: gate_drawn.Pool, rng: np.random.Generator, gates: int) -> dict[str, Any]:
    """Rates of one experiment, both ways of drawing."""
    ways = {"singly": gate_drawn.singly, "together": gate_drawn.together}
    found = {name: gate_drawn.rates(pool, way, gates, rng, Limits()) for name, way in ways.items()}
    return {
        "rounds": pool.rounds,
        "confirming": sum(map(len, pool.confirming)),
        "lent": pool.lent,
        "lost": pool.lost,
        "alike": gate_drawn.alike(pool),
        **{name: {state: asdict(rate) for state, rate in rates.items()} for name, rates in found.items()},
    }


def peers(gates: Gates, rng: np.random.Generator) -> dict[str, Any]:
    """Rates of each rule, for each way of feeding it."""
    found: dict[str, Any] = {}
    for way, fed in gate_feeds.feeds(gates).items():
        found[way] = {}
        for rule in RULES:
            rate = gate_rates.of_found(gate_feeds.apply(rule, fed, len(gates)), rng)
            found[way][rule.key] = {**asdict(rate), "rows": len(fed)}
    return found


def first_rounds(pool: gate_drawn.Pool | None, rng: np.random.Generator, gates: int) -> dict[str, float] | None:
    """A/A from what every gate has: its first rounds, whatever they say."""
    if pool is None:
        return None
    few = gate_drawn.Pool(tuple(gate[: gate_drawn.TOGETHER] for gate in pool.measuring), pool.confirming)
    states = gate_drawn.states(gate_drawn.singly(few, Limits()), gates, rng, Limits())
    return {state: states[state] / max(states.total(), 1) for state in STATES}


def apart(gates: Gates) -> str:
    """Between two gates of A/A, in words: the quartiles."""
    times = [datetime.fromisoformat(gate["at"]).timestamp() / 3600 for gate in gates]
    gaps = [abs(one - other) for place, one in enumerate(times) for other in times[:place]]
    if not gaps:
        return "one gate only"
    low, middle, high = np.quantile(gaps, [0.25, 0.5, 0.75])
    return f"median {middle:.1f} h, half of them {low:.1f}–{high:.1f} h"


def compute(gates: Gates, number: int = GATES) -> dict[str, Any]:
    """Everything that the outputs show."""
    experiments = by_experiment([gate for gate in gates if not crowded(gate)])
    full = by_experiment(
        [{**gate, "experiment": gate["experiment"] + gate_tables.CROWDED} for gate in gates if crowded(gate)]
    )
    pools = gate_drawn.pools(experiments)
    seeds = iter(np.random.SeedSequence(5).spawn(len(experiments) + len(pools) + 1))
    at = edges(Limits().detect)
    return {
        "schema": SCHEMA,
        "from": min(gate["at"] for gate in gates)[:16].replace("T", " "),
        "to": max(gate["at"] for gate in gates)[:16].replace("T", " "),
        "commits": sorted({gate["commit"] for gate in gates}),
        "gates_drawn": number,
        "edges": {"fails": at.fails, "passes": at.passes},
        "live": {name: live(name, some) for name, some in {**experiments, **full}.items()},
        "drawn": {name: drawn(pool, np.random.default_rng(next(seeds)), number) for name, pool in pools.items()},
        "peers": {name: peers(some, np.random.default_rng(next(seeds))) for name, some in experiments.items()},
        "first_rounds": first_rounds(pools.get("same"), np.random.default_rng(next(seeds)), number),
        "apart": apart(experiments.get("same", gates)),
        "round_values": {
            name: [(one.typical, one.all_steps) for gate in pool.measuring for one in gate]
            for name, pool in pools.items()
        },
    }


def replace_part(document: str, part: str) -> str:
    """The document with the part between its marks; without marks it goes to the end."""
    marked = f"{BEGIN}\n{part}{END}"
    if BEGIN not in document or END not in document:
        return f"{document.rstrip()}\n\n{marked}\n".lstrip()
    before, rest = document.split(BEGIN, 1)
    return before + marked + rest.split(END, 1)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--doc", type=Path, help="a document that gets the part too")
    parser.add_argument("--gates", type=int, default=GATES, help="drawn for each rate")
    args = parser.parse_args()
    gates = read_whole(args.raw)
    if not gates:
        sys.exit(f"{args.raw}: no whole gate")
    found = compute(gates, args.gates)
    args.into.mkdir(parents=True, exist_ok=True)
    gate_figures.rules_figure(found, args.into / "error-rates.svg")
    gate_figures.rounds_figure(found, args.into / "rounds.svg")
    kept = {key: value for key, value in found.items() if key != "round_values"}
    (args.into / "error-rates.json").write_text(json.dumps(kept, indent=1) + "\n")
    (args.into / "error-rates.md").write_text(gate_tables.document(found, "error-rates.svg", "rounds.svg"))
    if args.doc:
        folder = Path(os.path.relpath(args.into, args.doc.parent)).as_posix()
        part = gate_tables.document(found, f"{folder}/error-rates.svg", f"{folder}/rounds.svg")
        args.doc.write_text(replace_part(args.doc.read_text() if args.doc.exists() else "", part))
    print((args.into / "error-rates.md").read_text())


if __name__ == "__main__":
    main()
