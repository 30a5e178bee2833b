"""Rounds: fresh programs of all sides that take turns, one running at a time."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from profiler.check.model import BASE, CANDIDATE, CONFIRM, CONTROL, Round, Turn
from profiler.check.speed import order
from profiler.check.speed.interrupts import held, obey
from profiler.check.speed.resident import PATIENCE_S, EndedError, OtherStepsError, Program, Resident
from profiler.check.speed.watchdog import guarded
from profiler.check.speed.weather import Weather
from profiler.core.errors import ProfilerError

TURN_S: Final = 0.05
"""A turn lasts about so long, or a step: what changes the machine's speed mostly takes longer."""
QUEUED_STEPS: Final = 10
"""Steps of a turn where a device works behind the host: only its ends wait for the device."""
PREFETCHED: Final = 3
"""Times the loaders' prefetch depth that a turn has steps: what was made ahead before it is then a small part."""
MOST_STEPS: Final = 2_000
WARMUP: Final = 10
WARMUP_S: Final = 5.0
"""Steps before the first turn that counts, or as many as take so long: where a step takes seconds, caches and compilers
have had their time after a few."""
PAIRS: Final = ((0.1, 36), (0.5, 20), (math.inf, 10))
"""Turns of each side in a round, by how long one takes at most (s). With 24 of one step each, a stall at every tenth
step was missed in 8 of 100 simulated gates, with 48 in 1 (tests/benchmarks/gate_simulation.py); each takes time."""
_PROBE: Final = 2
"""Steps by which lengths are chosen; the first of them may still compile."""
_LOOK_S: Final = 0.02


class Rounds:
    """Makes rounds of two programs, and remembers how long their turns are.

    :param programs: by side: BASE and CANDIDATE.
    :param out: where the runs go: NN-base, NN-candidate, NN-control.
    :param warmup: steps; None: WARMUP, or as many as WARMUP_S allows.
    :param seed: of the orders of turns.
    :param gpus: see Weather.
    :param admit: looks at each program when it stands at the end of a step, and raises what is wrong with it.
    """

    def __init__(
        self,
        programs: Mapping[str, Program],
        out: Path,
        *,
        warmup: int | None = None,
        patience: float = PATIENCE_S,
        seed: int | None = None,
        gpus: Callable[[], tuple[str, ...]] | None = None,
        admit: Callable[[Resident], None] = lambda _: None,
    ) -> None:
        self._programs = {**programs, CONTROL: replace(programs[BASE], side=CONTROL)}
        self._out = out
        self._warmup = self._given_warmup = warmup
        self._patience = patience
        self._random = Random(seed)
        self._gpus = gpus
        self._admit = admit
        self._pairs = 0
        self.steps = 0
        """Of a turn; 0: not chosen yet."""
        self.step_source: dict[str, str] = {}
        self.runs: dict[str, list[Path]] = {BASE: [], CANDIDATE: [], CONTROL: []}
        """Directories of the runs that are complete."""

    def make(self, number: int, kind: str) -> Round:
        """One round.

        :raises ProfilerError: a program cannot be started, fails, or takes no step; what it printed is kept.
        """
        begin = time.monotonic()
        sides = (BASE, CANDIDATE, CONTROL) if kind == CONFIRM else (BASE, CANDIDATE)
        slots = order.starts(sides, number, self._random, swapped=kind == CONFIRM)
        with held(), ExitStack() as stack:
            guard = stack.enter_context(guarded())
            sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gate-")))
            residents: dict[str, Resident] = {}
            try:
                for side in slots:
                    folder = self._out / f"{number:02}-{side}"
                    residents[side] = Resident(
                        self._programs[side], folder, sockets, patience=self._patience, guard=guard
                    )
                    stack.callback(residents[side].end)
                self._settle(residents)
                while True:
                    try:
                        self._choose(residents)
                        weather = Weather(self._gpus)
                        turns = self._turns(residents, sides, weather)
                        break
                    except OtherStepsError as error:
                        self._anew(residents, error.resident)
            except EndedError as error:
                raise self._why(error) from error
            conditions = weather.conditions()
        for side, resident in residents.items():
            self.runs[side].append(resident.folder)
            self.step_source[side] = resident.step_source
        return Round(number, kind, slots, turns, time.monotonic() - begin, conditions)

    def _settle(self, residents: Mapping[str, Resident]) -> None:
        """Until all stand still at the end of a step; they start at the same time, and none waits for another."""
        waiting, until = dict(residents), time.monotonic() + self._patience
        while waiting:
            for side, resident in list(waiting.items()):
                if resident.settle():
                    resident.freeze()
                    self._admit(resident)
                    del waiting[side]
            if waiting and time.monotonic() > until:
                late = next(iter(waiting.values()))
                raise ProfilerError(f"{late.program.side}: {late.late(self._patience)}")
            time.sleep(_LOOK_S)

    def _anew(self, residents: Mapping[str, Resident], other: Resident) -> None:
        """Back to before the first turn: what ends a step of `other` has only come now, and of a heavier kind, so that
        it happens twice at most."""
        if not self.runs[BASE]:  # later rounds count as the first one did
            self.steps, self._warmup = 0, self._given_warmup
        for resident in residents.values():
            resident.forget_turns()
        self._settle({other.program.side: other})

    def _choose(self, residents: Mapping[str, Resident]) -> None:
        """Warm up, and choose once for all rounds how many steps are warm-up and a turn: each round counts the same."""
        step_s = [resident.turn(_PROBE, measured=False).steps[-1] / 1e9 for resident in residents.values()]
        if self._warmup is None:
            self._warmup = max(_PROBE, min(WARMUP, int(WARMUP_S / max(step_s))))
        if more := max(0, self._warmup - _PROBE):
            step_s = [_middle(resident.turn(more, measured=False)) for resident in residents.values()]
        if self.steps:
            return
        prefetch = max(resident.prefetch for resident in residents.values())
        queued = QUEUED_STEPS if any(resident.queues for resident in residents.values()) else 1
        wanted = max(math.ceil(TURN_S / min(step_s) - 0.5), PREFETCHED * prefetch, queued, 1)
        self.steps = min(wanted, MOST_STEPS)
        self._pairs = next(pairs for most, pairs in PAIRS if self.steps * min(step_s) <= most)

    def _turns(self, residents: Mapping[str, Resident], sides: Sequence[str], weather: Weather) -> tuple[Turn, ...]:
        for resident in residents.values():  # the first turn behind the start of others
            resident.turn(self.steps, measured=False)
        done = []
        for side in order.turns(sides, self._pairs, self._random):
            done.append(residents[side].turn(self.steps))
            obey()
            weather.look()
        return tuple(done)

    def _why(self, error: EndedError) -> ProfilerError:
        resident = error.resident
        said = resident.last_words().lower()
        if error.code == 0 and not resident.stood:
            return ProfilerError(f"{resident.program.side}: {resident.stepless()}")
        if error.code == 0:
            driven = (self._warmup or WARMUP) + ((self._pairs or PAIRS[-1][1]) + 1) * max(1, self.steps)
            taken, needed = (resident.unseen + steps for steps in (resident.steps, driven))
            return ProfilerError(
                f"{resident.program.side} ended some {taken} steps after its start and a round needs about {needed}, "
                f"more where a step takes less time: give it many more steps to train, best without an end (its output "
                f"is in {resident.folder})"
            )
        hint = resident.program.hint
        if "out of memory" in said:
            hint = (
                "both sides are in memory at once, to confirm a FAIL three programs: give the command a smaller model"
            )
        if "address already in use" in said:
            hint = "both sides run at once: have the launcher or the program choose a free port (torchrun --standalone)"
        hint = hint and f"; {hint}"
        return ProfilerError(f"{resident.program.side} {error.in_words()}{hint}")


def _middle(turn: Turn) -> float:
    """Seconds of its step of middle length."""
    return sorted(turn.steps)[len(turn.steps) // 2] / 1e9
