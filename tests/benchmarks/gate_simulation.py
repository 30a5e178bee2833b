"""How often the throughput gate errs, simulated: rates of FAIL, PASS and INCONCLUSIVE by noise and true slow-down.

    python tests/benchmarks/gate_simulation.py [--gates 2000] [--noise usual,spiky] [--true 0,5,10:0.5] [--detect 0.05]

Simulated, not measured: noise is made up after what was seen on shared machines, and says what the method does with
such noise, not how a machine is. Values of rounds come from the same functions that the gate uses, on arrays; the
decision is the gate's own. With the same arguments it prints the same table.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import numpy.typing as npt

from profiler.check.model import CONFIRM, FAIL, INCONCLUSIVE, MEASURE, PASS, Limits
from profiler.check.speed.round_values import RoundValues, all_steps, typical_step
from profiler.check.speed.sequential import CONFIRM_LOOKS, looks
from profiler.check.speed.verdict import Decision, decide, measurements

Array = npt.NDArray[np.float64]
Seen = tuple[str, RoundValues]

STEP_S = 0.05
START_S = 2.1
"""What a round spends on the start of each of its programs, beside its steps: programs that import torch, two cores."""


@dataclass(frozen=True)
class Noise:
    """Of one machine. Standard deviations are of logs."""

    core: float = 0.05
    """Of a step by itself."""
    outliers: float = 0.02
    """Share of steps that something interrupts ..."""
    outlier: float = 0.5
    """... which take so much longer, exponentially distributed."""
    phase: float = 0.2
    """Of the machine's speed, which changes ..."""
    phase_s: float = 5.0
    """... every so many seconds."""
    burst: float = 0.05
    """Share of time in bursts of a second, in which steps are slower by |N(0, burst_sd)|."""
    burst_sd: float = 0.25
    luck: float = 0.0125
    """Of a pair of programs for its whole life."""
    tails: int | None = None
    """Degrees of freedom of a Student's t that luck follows, scaled to the same sd; None: it is normal."""
    slot: float = 0.0
    """By how much a program that is started second is slower."""


NOISES = {
    "quiet": Noise(0.03, 0.005, 0.3, 0.05, burst=0.0, luck=0.01),
    "usual": Noise(),
    "unlucky": Noise(luck=0.015),
    "heavy tails": Noise(tails=3),
    "slot 2%": Noise(slot=0.02),
    "spiky": Noise(outliers=0.05, outlier=1.0),
    "bursty": Noise(phase=0.3, phase_s=3.0, burst=0.3, burst_sd=0.4),
    "coarse": Noise(core=0.1),
}


@dataclass(frozen=True)
class Truth:
    """How the candidate differs."""

    slower: float = 0.0
    """Share, all steps."""
    every: int = 0
    """A stall every so many steps ..."""
    stall: float = 0.0
    """... of so many times a step."""


STALL = "10:0.5"


def truth_of(text: str) -> Truth:
    """'5': 5% slower; '10:0.5': every tenth step takes half a step longer."""
    every, colon, stall = text.partition(":")
    return Truth(every=int(every), stall=float(stall)) if colon else Truth(float(text) / 100)


def rounds(
    rng: np.random.Generator, kind: str, noise: Noise, truth: Truth, at: argparse.Namespace, odd: npt.NDArray[np.bool_]
) -> list[Seen]:
    """Rounds of one kind, as the gate sees them.

    :param odd: of each round, whether the base is started first.
    """
    number, sides = len(odd), 3 if kind == CONFIRM else 2
    # Turns come in half blocks, in each of which every side has one; the second half of a block is the first mirrored.
    order = np.argsort(rng.random((number, (at.pairs + 1) // 2, sides)), axis=-1)
    order = np.stack([order, order[..., ::-1]], axis=2).reshape(number, -1, sides)[:, : at.pairs]
    place = np.argsort(order, axis=-1)
    time = _steps(rng, number, at.pairs * sides * at.steps, noise).reshape(number, at.pairs, sides, at.steps)
    time = np.take_along_axis(time, place[..., np.newaxis], axis=2)  # by side: base, candidate, control
    luck = rng.normal(size=(number, sides)) if noise.tails is None else _student(rng, noise.tails, (number, sides))
    time *= np.exp(luck * noise.luck / np.sqrt(2))[:, np.newaxis, :, np.newaxis]
    time[:, :, 0] *= np.where(odd, 1.0, 1 + noise.slot)[:, np.newaxis, np.newaxis]
    time[:, :, 1] *= (1 + truth.slower) * np.where(odd, 1 + noise.slot, 1.0)[:, np.newaxis, np.newaxis]
    if truth.every:
        step = np.arange(at.pairs * at.steps).reshape(at.pairs, at.steps)
        stalled = (step + rng.integers(truth.every, size=(number, 1, 1))) % truth.every == 0
        time[:, :, 1] *= np.where(stalled, 1 + truth.stall, 1.0)
    turn = time.sum(axis=-1)
    base, candidate, control = turn[:, :, 0], turn[:, :, 1], turn[:, :, -1]
    (usual, error), (every, its_error) = typical_step(base, candidate), all_steps(base, candidate, at.steps)
    full = np.log(candidate.sum(axis=-1) / base.sum(axis=-1))
    controls = (None, None)
    control_rest = np.zeros(number)
    if sides == 3:
        controls = (typical_step(base, control)[0], all_steps(base, control, at.steps)[0])
        control_rest = np.log(control.sum(axis=-1) / base.sum(axis=-1)) - controls[1]
    values = []
    for one in range(number):
        beside = [None if of is None else float(of[one]) for of in controls]
        rest = float(error[one]), float(its_error[one]), float(full[one] - every[one]), float(control_rest[one])
        values.append((kind, RoundValues(float(usual[one]), float(every[one]), *beside, *rest)))
    return values


def _steps(rng: np.random.Generator, number: int, steps: int, noise: Noise) -> Array:
    """Times of a machine's steps one after the other, where each takes about 1."""
    time = noise.core * rng.normal(size=(number, steps))
    level, burst = noise.phase * rng.normal(size=number), rng.random(number) < noise.burst
    into = STEP_S * noise.burst / (1 - noise.burst)
    for step in range(steps):
        level = np.where(rng.random(number) < STEP_S / noise.phase_s, noise.phase * rng.normal(size=number), level)
        chance = rng.random(number)
        burst = np.where(burst, chance > STEP_S, chance < into)
        time[:, step] += level + burst * np.abs(rng.normal(size=number)) * noise.burst_sd
    struck = rng.random((number, steps)) < noise.outliers
    return np.asarray(np.exp(time) * (1 + struck * rng.exponential(noise.outlier, (number, steps))))


def _student(rng: np.random.Generator, degrees: int, shape: tuple[int, int]) -> Array:
    return rng.standard_t(degrees, shape) / np.sqrt(degrees / (degrees - 2))


def gates(noise: Noise, truth: Truth, at: argparse.Namespace, seed: int) -> list[tuple[Decision, Counter[str]]]:
    """Every gate's decision, and its rounds by kind."""
    rng = np.random.default_rng(seed)
    limits = Limits(detect=at.detect, max_rounds=at.max_rounds)
    taken: list[list[Seen]] = [[] for _ in range(at.gates)]
    due = {MEASURE: _steps_between(looks(limits.max_rounds)), CONFIRM: _steps_between(CONFIRM_LOOKS)}
    decisions: dict[int, Decision] = {}
    open_gates = {MEASURE: list(range(at.gates)), CONFIRM: []}
    while open_gates[MEASURE] or open_gates[CONFIRM]:
        wanting: dict[str, list[int]] = {MEASURE: [], CONFIRM: []}
        for kind, some in open_gates.items():
            missing = {gate: due[kind][_count(taken[gate], kind)] for gate in some}
            while some := [gate for gate in some if missing[gate]]:
                odd = np.array([bool((len(taken[gate]) + 1) % 2) != (kind == CONFIRM) for gate in some])
                for gate, one in zip(some, rounds(rng, kind, noise, truth, at, odd), strict=True):
                    taken[gate].append(one)
                    missing[gate] -= 1
            for gate in missing:
                found = decide(measurements(taken[gate]), limits)
                if found.next:
                    wanting[found.next].append(gate)
                else:
                    decisions[gate] = found
        open_gates = wanting
    return [(decisions[gate], Counter(kind for kind, _ in taken[gate])) for gate in range(at.gates)]


def _count(taken: list[Seen], kind: str) -> int:
    return sum(of == kind for of, _ in taken)


def _steps_between(places: tuple[int, ...]) -> dict[int, int]:
    """From one look to the next."""
    return {before: after - before for before, after in zip((0, *places), places, strict=False)}


def row(name: str, what: str, all_gates: list[tuple[Decision, Counter[str]]], at: argparse.Namespace) -> str:
    number = len(all_gates)
    states = Counter(found.state for found, _ in all_gates)
    unconfirmed = sum(found.state == INCONCLUSIVE and bool(found.suspected) for found, _ in all_gates)
    measured = np.array([of[MEASURE] for _, of in all_gates])
    confirming = np.array([of[CONFIRM] for _, of in all_gates])
    second = at.pairs * at.steps * STEP_S
    time = (2 * measured + 3 * confirming) * (START_S + second)
    share = [f"{100 * states[state] / number:7.2f}" for state in (FAIL, PASS, INCONCLUSIVE)]
    return (
        f"{name:12} {what:>8} {' '.join(share)} {100 * unconfirmed / number:8.2f}  "
        f"{np.median(measured):4.0f} {np.percentile(measured, 90):4.0f} {measured.mean():5.1f} "
        f"{confirming.mean():8.1f}  {np.median(time):6.0f} {np.percentile(time, 90):4.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=2000)
    parser.add_argument("--noise", default=",".join(NOISES))
    parser.add_argument("--true", default=f"0,2,3,5,10,-5,{STALL}", help="percent, or a stall: EVERY:STEPS")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=2, help="of a turn")
    parser.add_argument("--detect", type=float, default=0.05)
    parser.add_argument("--max-rounds", type=int, default=28)
    at = parser.parse_args()
    print(f"simulated: {at.gates} gates each, {at.pairs} pairs of turns of {at.steps} steps of {1000 * STEP_S:g} ms")
    print("noise          true %    FAIL    PASS  INCONC  of them  rounds that measure  confirm  seconds")
    print("                           %       %       %  unconf.%  median 90%  mean  mean  median 90%")
    for name in at.noise.split(","):
        for number, what in enumerate(at.true.split(",")):
            print(row(name, what, gates(NOISES[name], truth_of(what), at, number), at), flush=True)


if __name__ == "__main__":
    main()
