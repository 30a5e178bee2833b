"""Runs rounds of interleaved measurement: short blocks of both sides by turns, and counts of their steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median_high
from typing import Final

from profiler.check.model import BASE, CANDIDATE, CONFIRM, LOOK, PATIENCE_S, Conditions, Round, StepBlock
from profiler.check.speed.controlled_process import (
    ControlledProcess,
    ProcessEndedError,
    Program,
    StepBoundaryChangedError,
    aligned,
    process_starter,
)
from profiler.check.speed.processes import raise_deferred
from profiler.core.errors import ProfilerError
from profiler.core.procfs import PROC, Folder, cpu_times, runnable_threads
from profiler.record.kernel import cores, throttled_seconds

BLOCK_S: Final = 0.05
"""Target length of a block (at least one step): most changes of the machine's speed last longer."""
DEVICE_STEPS: Final = 10
"""Steps of a block if the program queues work on a device: the device is idle only at the ends of a block."""
PREFETCH_FACTOR: Final = 3
"""Steps of a block as a multiple of the loaders' prefetch depth, so that few batches were made before the block."""
MAX_STEPS: Final = 2_000
WARMUP: Final = 10
WARMUP_S: Final = 5.0
"""The first measured block follows WARMUP steps, or as many as take this long if these are fewer: if a step takes
seconds, caches and compilers have settled after a few."""
BLOCKS: Final = ((0.1, 36), (0.5, 20), (math.inf, 10))
"""Blocks of each side per round, by the largest length of a block (s). Of 300 simulated
checks, 11 missed a stall at every tenth step with 24 blocks of one step, 6 with 36, and none with 48
(tests/benchmarks/gate_simulation.py)."""
MIN_BLOCKS: Final = 8
"""Least blocks of each side in a round of limited time: twice the pairs below which a round measures nothing."""
_PROBE: Final = 2
"""Steps that determine the step time; the first of them may still compile."""
_THROTTLE_COUNTS: Final = "devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
_LOOKS, _LOOK_S = 10, 0.05
"""Samples by which a moment is found to be quiet, and seconds between them."""
_HINTS: Final = (
    ("out of memory", "both sides are in memory at once: give the command a smaller model"),
    (
        "address already in use",
        "both sides run at once: have the launcher or the program choose a free port (torchrun --standalone)",
    ),
)


class ShortProgramError(ProfilerError):
    """A program ended by itself before a round was complete."""


@dataclass(eq=False)
class RoundRunner:
    """Runs rounds of two programs, all with the same number of steps per block."""

    programs: Mapping[str, Program]
    """By side: BASE and CANDIDATE."""
    out: Path
    """Folder of the runs NN-base, NN-candidate."""
    _: KW_ONLY
    warmup: int | None = None
    """Steps; None: WARMUP, or as many as WARMUP_S allows."""
    patience: float = PATIENCE_S
    seed: int | None = None
    """Of the random orders."""
    gpus: Callable[[], tuple[str, ...]] | None = None
    """See SystemLoad."""
    admit: Callable[[ControlledProcess], None] = lambda _: None
    """Called with each process when it first waits at the end of a step; it may raise."""
    round_seconds: float | None = None
    """How long a round may take with the start of the programs: its blocks are fewer and shorter where it would take
    longer, but at least MIN_BLOCKS of each side. None: as many as BLOCKS says."""
    program_steps: int = 0
    """Steps after which the programs end by themselves; 0: not known. A round of limited time has blocks that fit into
    them."""
    may_end: bool = False
    """Whether a round ends early, with its blocks so far, where a program ends by itself."""
    is_alone: bool = False
    """Whether the time in which other programs kept a program from a core is left out of its steps."""
    steps: int = field(default=0, init=False)
    """Per block; 0: not chosen yet."""
    runs: dict[str, list[Path]] = field(default_factory=lambda: {BASE: [], CANDIDATE: []}, init=False)
    """Directories of the completed runs."""
    files: set[str] = field(default_factory=set, init=False)
    """Files of the modules that the programs have loaded, except installed ones."""

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._warmup, self._blocks = self.warmup, 0

    def run(self, number: int, kind: str, *, look: tuple[int, float] = (0, 0.0)) -> Round:
        """Run one round.

        :param look: of a round of the kind LOOK, the steps of each side, and after how many seconds it ends anyway. Its
            runs are not kept in `runs`.
        :raises ProfilerError: a program cannot be started, fails, or takes no step; its output is kept.
        """
        begin, is_look = time.monotonic(), kind == LOOK
        slots = start_order(number, swapped=kind == CONFIRM)
        with process_starter(patience=self.patience) as start:
            processes: dict[str, ControlledProcess] = {}
            try:
                for side in slots:
                    program = self.programs[side]
                    processes[side] = start(program, self.out / f"{LOOK * is_look}{number:02}-{program.side}")
                self._align(processes.values())
                while True:
                    try:
                        self._warm_up(processes, begin)
                        load = SystemLoad(self.gpus)
                        blocks = self._measure(processes, load, look if is_look else None)
                        break
                    except StepBoundaryChangedError as error:
                        self._realign(processes, error.process)
            except ProcessEndedError as error:
                kind_of_error = ProfilerError if error.exit_code else ShortProgramError
                raise kind_of_error(self._why_ended(error)) from error
            conditions = load.conditions()
        for side, process in processes.items() if not is_look else ():
            self.runs[side].append(process.folder)
        return Round(number, kind, slots, blocks, time.monotonic() - begin, conditions)

    def _align(self, processes: Iterable[ControlledProcess]) -> None:
        """Wait until all processes wait at the end of a step. They start up at the same time."""
        for process in aligned(processes, self.patience):
            process.freeze()
            self.files.update(process.controller.files)
            self.admit(process)

    def _realign(self, processes: Mapping[str, ControlledProcess], changed: ControlledProcess) -> None:
        """Return to before the warm-up, since an event of higher priority ends the steps of `changed`.

        The priority rises each time, so this happens at most twice.
        """
        if not self.runs[BASE]:  # later rounds use the step counts of the first one
            self.steps, self._warmup = 0, self.warmup
        for process in processes.values():
            process.discard_measured()
        self._align([changed])

    def _warm_up(self, processes: Mapping[str, ControlledProcess], begin: float) -> None:
        """Run the warm-up; the first round chooses its length and the steps of a block for all rounds.

        :param begin: when the round began (s).
        """
        step_s = [process.run_steps(_PROBE, measured=False).steps[-1] / 1e9 for process in processes.values()]
        if self._warmup is None:
            self._warmup = max(_PROBE, min(WARMUP, int(WARMUP_S / max(step_s))))
        if remaining := max(0, self._warmup - _PROBE):
            step_s = [
                median_high(process.run_steps(remaining, measured=False).steps) / 1e9 for process in processes.values()
            ]
        if self.steps:
            return
        controllers = [process.controller for process in processes.values()]
        least = max(
            PREFETCH_FACTOR * max(controller.prefetch for controller in controllers),
            DEVICE_STEPS if any(controller.uses_device for controller in controllers) else 1,
            1,
        )
        self.steps = min(MAX_STEPS, max(math.ceil(BLOCK_S / min(step_s) - 0.5), least))
        self._blocks = next(blocks for limit_s, blocks in BLOCKS if self.steps * min(step_s) <= limit_s)
        if self.round_seconds is not None:
            fit = int((self.round_seconds - (time.monotonic() - begin)) / sum(step_s))
            if self.program_steps:
                taken = self._warmup + max(controller.skipped_steps for controller in controllers)
                fit = min(fit, self.program_steps - taken)
            self.steps = max(least, min(self.steps, fit // (MIN_BLOCKS + 1)))  # one block is not measured
            self._blocks = max(MIN_BLOCKS, min(self._blocks, fit // self.steps - 1))

    def _measure(
        self, processes: Mapping[str, ControlledProcess], load: SystemLoad, look: tuple[int, float] | None = None
    ) -> tuple[StepBlock, ...]:
        begin = time.monotonic()
        for process in processes.values():  # the first block after other processes have started is not typical
            process.run_steps(self.steps, measured=False)
        blocks = list[StepBlock]()
        for side in block_order(self._blocks if look is None else math.ceil(look[0] / self.steps), self._random):
            if look is not None and len(blocks) % 2 == 0 and time.monotonic() - begin > look[1]:
                break
            throttled = throttled_seconds() if self.is_alone else None
            try:
                block = replace(processes[side].run_steps(self.steps), side=side)
                # a wait that the quota of the program's own group caused is none for other programs
                is_reduced = self.is_alone and throttled_seconds() == throttled
                blocks.append(_without(processes[side].kept_waiting, block) if is_reduced else block)
            except ProcessEndedError as error:
                if (self.may_end or look is not None) and error.exit_code == 0 and len(blocks) >= MIN_BLOCKS:
                    break
                raise
            raise_deferred()
            load.sample()
        return tuple(blocks)

    def _why_ended(self, error: ProcessEndedError) -> str:
        process, side = error.process, error.process.program.side
        if error.exit_code == 0 and not process.controller.reached_step:
            return f"{side}: {process.no_step_message()}"
        if error.exit_code == 0:
            driven = (self._warmup or WARMUP) + ((self._blocks or BLOCKS[-1][1]) + 1) * max(1, self.steps)
            taken, needed = (process.controller.skipped_steps + steps for steps in (process.steps, driven))
            return (
                f"{side} ended about {taken} steps after its start, and a round needs about {needed} (more if a step "
                f"takes less time): let it train for many more steps, ideally without an end (its output is in "
                f"{process.folder})"
            )
        output = process.last_output().lower()
        hint = next((hint for symptom, hint in _HINTS if symptom in output), error.hint)
        return f"{error}; {hint}" if hint else str(error)


def _without(kept_waiting: int, block: StepBlock) -> StepBlock:
    """Return the block with steps that are shorter by this time (ns) in all."""
    rest = max(0.0, 1 - kept_waiting / max(1, block.time))
    return replace(block, steps=tuple(round(step * rest) for step in block.steps))


def block_order(blocks: int, random: Random) -> list[str]:
    """Return the side of each block: `blocks` of each side, in random runs of ABBA or BAAB.

    A steady drift of the machine's speed over such a run affects both sides alike.
    """
    order: list[str] = []
    while len(order) < 2 * blocks:
        half = [BASE, CANDIDATE]
        random.shuffle(half)
        order += [*half, *reversed(half)]
    return order[: 2 * blocks]


def start_order(number: int, *, swapped: bool) -> tuple[str, str]:
    """Alternate the order in which the programs start from round to round; `swapped` exchanges them."""
    return (BASE, CANDIDATE) if bool(number % 2) != swapped else (CANDIDATE, BASE)


# ---------------------------------------------------------------- the state of the machine during a round


class SystemLoad:
    """Samples the state of the machine from its creation on.

    :param gpus: returns what throttles the GPUs' clocks; None: there are none.
    :param proc: in place of /proc.
    """

    def __init__(self, gpus: Callable[[], tuple[str, ...]] | None = None, proc: Folder = PROC) -> None:
        self._gpus = gpus
        self._proc = proc
        self._begin = cpu_times(proc)
        self._throttle_count = _throttle_count()
        self._runnable: list[int] = []
        self._throttled: dict[str, None] = {}

    def sample(self) -> None:
        """Take a sample, at least once a round; takes some 50 µs, with GPUs more."""
        runnable = runnable_threads(self._proc)
        if runnable is not None:
            self._runnable.append(runnable - 1)  # the thread that reads it is runnable itself
        if self._gpus is not None:
            self._throttled.update(dict.fromkeys(self._gpus()))

    def conditions(self) -> Conditions:
        """Return conditions since the creation."""
        begin, end = self._begin, cpu_times(self._proc)
        steal = None
        if begin is not None and end is not None and end.total > begin.total:
            steal = max(0, end.stolen - begin.stolen) / (end.total - begin.total)
        count = _throttle_count()
        if count is not None and self._throttle_count is not None and count > self._throttle_count:
            self._throttled["CPU: thermal"] = None
        load = sum(self._runnable) / len(self._runnable) if self._runnable else None
        return Conditions(load, steal, tuple(self._throttled), cores())


def await_quiet(seconds: float) -> None:
    """Return once other programs leave the cores, after `seconds` at the latest. Programs of ours must be paused."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        load = SystemLoad()
        for _ in range(_LOOKS):
            time.sleep(_LOOK_S)
            load.sample()
        if not load.conditions().is_busy:
            return


def _throttle_count(root: Path = Path("/sys")) -> int | None:
    counts = []
    for file in root.glob(_THROTTLE_COUNTS):
        with suppress(OSError, ValueError):
            counts.append(int(file.read_text(encoding="ascii")))
    return sum(counts) if counts else None


# ---------------------------------------------------------------- a program that is only counted

STEPS: Final = 20
"""Measured steps of a process: an event of every 10th step is counted twice."""


def record_steps(
    program: Program,
    out: Path,
    names: list[str],
    *,
    steps: int = STEPS,
    warmup: int = WARMUP,
    level: str = "standard",
    patience: float = PATIENCE_S,
    announce: Callable[[str], None] = lambda _: None,
    remedy: str = "let it run longer, or count fewer of them (`warmup`)",
) -> list[Path]:
    """Record one run below `out` for each of `names`, each of a fresh process, and return their directories.

    A program that ends by itself after the warm-up is counted over the steps it took.

    :param announce: is called with each name before its run.
    :param remedy: what the user can do where the program ends too early.
    :raises ProfilerError: the program fails, takes no step, or ends during the warm-up.
    """
    folders = [out / name for name in names]
    for folder in folders:
        announce(folder.name)
        with process_starter(level=level, patience=patience) as start:
            process = start(program, folder)
            warm = False
            try:
                while True:
                    for _ in aligned([process], patience):
                        pass
                    try:
                        warm = False
                        if warmup:
                            process.run_steps(warmup, measured=False)
                        warm = True
                        process.run_steps(steps)
                        break
                    except StepBoundaryChangedError:
                        process.discard_measured()
            except ProcessEndedError as error:
                _check_ended_usable(process, error)
                if not warm:
                    ended = f"the program ended during its {warmup} warm-up steps"
                    raise ProfilerError(f"{ended}: {remedy} (its output is in {process.folder})") from error
    return folders


def _check_ended_usable(process: ControlledProcess, error: ProcessEndedError) -> None:
    if error.exit_code:
        raise ProfilerError(f"the program {error.description}{error.hint and f'; {error.hint}'}") from error
    if not process.controller.reached_step:
        raise ProfilerError(process.no_step_message()) from error
