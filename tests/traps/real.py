"""Measures the real cure of a case: how many times as fast its steps are without the illness."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from profiler.check.model import BASE, CANDIDATE, MEASURE, Round
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.interleave import RoundRunner
from profiler.knockout.trial import measured_gain
from tests.traps.cases import ROOT, Case

ROUNDS: Final = 6
"""The most rounds. Each starts both programs anew, since two starts of a program differ by several percent."""
_ROUND_S: Final = 9.0
_ENDLESS: Final = 10**9
_NARROW: Final = 0.05
"""Half width of the interval of the log gain at which no further round is measured."""


class RealCure:
    """Measures how many times as fast steps are without the illness of a case."""

    def __init__(self, case: Case, folder: Path) -> None:
        cured = replace(case, ill=(), cured=case.ill)
        environment = {"OMP_NUM_THREADS": "1"}
        programs = {
            side: Program(side, tuple(each.command(_ENDLESS)), ROOT, environment)
            for side, each in ((BASE, case), (CANDIDATE, cured))
        }
        self._runner = RoundRunner(programs, folder / "real", round_seconds=_ROUND_S, is_alone=True)
        self._rounds: list[Round] = []

    def measure(self, rounds: int = ROUNDS) -> None:
        """Measure until there are so many rounds, or the gain is known well."""
        while len(self._rounds) < rounds:
            self._rounds.append(self._runner.run(len(self._rounds) + 1, MEASURE))
            if (gain := measured_gain(self._rounds)) and (gain.high - gain.low) / 2 <= _NARROW:
                break

    def result(self) -> dict[str, Any]:
        """The gain by all rounds, the log gain of each of them, and how many threads were runnable meanwhile."""
        gain = measured_gain(self._rounds)
        assert gain is not None
        loads = [each.conditions.load for each in self._rounds if each.conditions.load is not None]
        ends = {"real": gain.log, "real_low": gain.low, "real_high": gain.high}
        load = round(fmean(loads), 1) if loads else None
        each = [round(one.log, 3) for one in map(measured_gain, ([each] for each in self._rounds)) if one]
        return {name: math.exp(log) for name, log in ends.items()} | {"real_logs": each, "load": load}
