"""How often the throughput gate errs, simulated: rates of FAIL, PASS and INCONCLUSIVE by noise and true slow-down.

    python tests/benchmarks/gate_simulation.py [--gates 2000] [--noise usual,spiky] [--true 0,5,10:0.5] [--detect 0.05]

The noise is simulated after observations on shared machines: it shows what the method does with such noise, not how a
machine behaves. The gate's own functions compute the values of the rounds and decide. The same arguments print the same
table.
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
from profiler.check.speed.rounds import RoundValues, all_steps, typical_step
from profiler.check.speed.sequential import CONFIRM_LOOKS
from profiler.check.speed.verdict import Decision
from tests.benchmarks.gate_rates import step_by_step

Array = npt.NDArray[np.float64]

STEP_S = 0.05
START_S = 2.1
"""Start of each program of a round: programs that import torch, on two cores."""


@dataclass(frozen=True)
class Noise:
    """The noise of a machine. Standard deviations are of logs."""

    core: float = 0.05
    """Noise of a single step."""
    outliers: float = 0.02
    """Share of interrupted steps ..."""
    outlier: float = 0.5
    """... and how much longer they take, exponentially distributed."""
    phase: float = 0.2
    """Changes of the machine's speed ..."""
    phase_s: float = 5.0
    """... and the seconds between two of them."""
    burst: float = 0.05
    """Share of time in bursts of a second, in which steps are slower by |N(0, burst_sd)|."""
    burst_sd: float = 0.25
    luck: float = 0.0125
    """Constant difference between two programs for the whole round."""
    tails: int | None = None
    """Degrees of freedom of Student's t for `luck`, scaled to the same sd; None stands for a normal one."""
    slot: float = 0.0
    """Slow-down of the program that is started second."""


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
    """Slow-down of all steps, as a share."""
    every: int = 0
    """Steps between two stalls ..."""
    stall: float = 0.0
    """... and how much longer the step is, as a share."""


STALL = "10:0.5"


def truth_of(text: str) -> Truth:
    """'5': 5% slower; '10:0.5': every tenth step takes half a step longer."""
    every, colon, stall = text.partition(":")
    return Truth(every=int(every), stall=float(stall)) if colon else Truth(float(text) / 100)


def rounds(
    rng: np.random.Generator,
    noise: Noise,
    truth: Truth,
    at: argparse.Namespace,
    base_first: npt.NDArray[np.bool_],
) -> list[RoundValues]:
    """Rounds with the values that the gate computes.

    :param base_first: of each round, whether the base is started first.
    """
    number, sides = len(base_first), 2
    # blocks come in groups in which every side has one; every second group is the one before it mirrored
    order = np.argsort(rng.random((number, (at.pairs + 1) // 2, sides)), axis=-1)
    order = np.stack([order, order[..., ::-1]], axis=2).reshape(number, -1, sides)[:, : at.pairs]
    place = np.argsort(order, axis=-1)
    time = _steps(rng, number, at.pairs * sides * at.steps, noise).reshape(number, at.pairs, sides, at.steps)
    time = np.take_along_axis(time, place[..., np.newaxis], axis=2)  # by side: base, candidate
    luck = rng.normal(size=(number, sides)) if noise.tails is None else _student(rng, noise.tails, (number, sides))
    time *= np.exp(luck * noise.luck / np.sqrt(2))[:, np.newaxis, :, np.newaxis]
    time[:, :, 0] *= np.where(base_first, 1.0, 1 + noise.slot)[:, np.newaxis, np.newaxis]
    time[:, :, 1] *= (1 + truth.slower) * np.where(base_first, 1 + noise.slot, 1.0)[:, np.newaxis, np.newaxis]
    if truth.every:
        step = np.arange(at.pairs * at.steps).reshape(at.pairs, at.steps)
        stalled = (step + rng.integers(truth.every, size=(number, 1, 1))) % truth.every == 0
        time[:, :, 1] *= np.where(stalled, 1 + truth.stall, 1.0)
    base, candidate = np.moveaxis(time.sum(axis=-1), -1, 0)
    (typical, typical_error), (every, every_error) = typical_step(base, candidate), all_steps(base, candidate, at.steps)
    excess = np.log(candidate.sum(axis=-1) / base.sum(axis=-1)) - every
    columns = zip(typical, every, typical_error, every_error, excess, strict=True)
    return [RoundValues(*map(float, values)) for values in columns]


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

    def some(kind: str, before: int, number: int) -> list[RoundValues]:
        base_first = [bool((before + index) % 2) != (kind == CONFIRM) for index in range(1, number + 1)]
        return rounds(rng, noise, truth, at, np.array(base_first))

    return [
        step_by_step(
            some(MEASURE, 0, limits.max_rounds), lambda before: some(CONFIRM, before, CONFIRM_LOOKS[-1]), limits
        )
        for _ in range(at.gates)
    ]


def row(name: str, what: str, all_gates: list[tuple[Decision, Counter[str]]], at: argparse.Namespace) -> str:
    number = len(all_gates)
    states = Counter(found.state for found, _ in all_gates)
    unconfirmed = sum(found.state == INCONCLUSIVE and bool(found.suspected) for found, _ in all_gates)
    measured = np.array([of[MEASURE] for _, of in all_gates])
    confirming = np.array([of[CONFIRM] for _, of in all_gates])
    second = at.pairs * at.steps * STEP_S
    time = 2 * (measured + confirming) * (START_S + second)
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
    parser.add_argument("--steps", type=int, default=2, help="of a block")
    parser.add_argument("--detect", type=float, default=0.05)
    parser.add_argument("--max-rounds", type=int, default=28)
    at = parser.parse_args()
    print(f"simulated: {at.gates} gates each, {at.pairs} pairs of blocks of {at.steps} steps of {1000 * STEP_S:g} ms")
    print("noise          true %    FAIL    PASS  INCONC  of them  rounds that measure  confirm  seconds")
    print("                           %       %       %  unconf.%  median 90%  mean  mean  median 90%")
    for name in at.noise.split(","):
        for number, what in enumerate(at.true.split(",")):
            print(row(name, what, gates(NOISES[name], truth_of(what), at, number), at), flush=True)


if __name__ == "__main__":
    main()
