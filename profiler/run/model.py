"""Defines the types of a run: its manifest, its tables, and what a step is in it.

Everything is frozen and plain. Tables are NumPy structured arrays with the fields of `profiler.run.tables`
plus `pid` where the layout has none; they are read only. Times are integer nanoseconds of CLOCK_MONOTONIC;
durations in analysed values are float seconds. A `Measure` whose value is None was not measured: its
`reason` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from profiler.core.errors import Notice
from profiler.core.masking import PRIVATE, Privacy
from profiler.run.tables import COUNTED

Table = npt.NDArray[np.void]
CollectorState = Literal["ok", "unavailable", "failed", "off"]
HOOKS: Final = "hooks"
"""Name of the status that tells whether hooks came into the program."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The program to record, and the settings of the recording."""

    argv: tuple[str, ...]
    out: Path
    level: str = "light"
    label: str = ""
    """Name of the side or variant in reports; the program's name when empty."""
    sample_period: float = 0.1
    """Seconds between host and GPU samples."""
    stack_rate: int = 100
    """Stack samples a second, at most: deep stacks cost more each, and are sampled less (level standard and above)."""
    collectors: tuple[str, ...] | None = None
    """Names of the collectors to run; None: all that the level asks for."""
    timeout: float | None = None
    """Seconds after which the target is stopped; None: never."""
    quiet: bool = False
    """True: the target's output goes to output.log in the run directory, not to the terminal."""
    hooks: bool = True
    """Put hooks into every Python of the target, which find steps, waits and syncs; False: only what it marks."""
    privacy: Privacy = PRIVATE
    virtual_cuda: str = ""
    """Number and name of the virtual CUDA devices that the program sees, as in `1:h100`; empty: none."""
    count: bool = False
    """Count operators, memory and reads by line; times of such a run tell nothing."""
    cwd: Path | None = None
    """The working directory of the target; None: the current one."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that its environment has in addition to ours, or with other values."""


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """The state of one collector. One that is not `ok` has a reason, and the run goes on without it."""

    name: str
    """Name of the collector."""
    state: CollectorState
    """Whether it recorded: only one that is `ok` did."""
    reason: str = ""
    """The reason for people; code reads `code` and `values`."""
    records: int = 0
    """Number of records that it wrote."""
    dropped: int = 0
    """Number of records that it could not write."""
    cost_s: float | None = None
    """CPU seconds that the collector itself took; None: not known."""
    code: str = ""
    """`hooks-loaded` (values `python` and `torch`: numbers of processes), `hooks-not-loaded` (value `flag`: the option
    of Python that prevents loading them, if any), `ptrace-forbidden`; '' for all others."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values that belong to `code`."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The manifest (run.json)."""

    schema: int
    """Version of the format of run.json."""
    run_id: str
    """A random name of the run."""
    started_at: str
    """When it was started, ISO 8601, UTC."""
    argv: tuple[str, ...]
    """The command, with secrets masked as `***`; it cannot be started then."""
    label: str = ""
    """Name of the side or variant; empty: the program's name."""
    level: str = "light"
    """How much was recorded: `light`, `standard` or `full`."""
    state: str = "running"
    """`running`, `complete`, `failed`, `interrupted` or `attached`; `running` in a finished run means that the recorder
    was killed."""
    exit_code: int | None = None
    """The target's exit code; a negative one is minus the signal that ended it. None: it has not ended, or is not
    known."""
    begin: int = 0
    """Nanoseconds of the monotonic clock, just before the target was started."""
    end: int | None = None
    """Nanoseconds of the same clock, when the target ended; None: it was not seen."""
    git_commit: str | None = None
    """The commit of the program, followed by `+changes` if tracked files differed from it, by `+unknown` if git did not
    tell; None: no git checkout."""
    cwd: str = ""
    """The working directory of the target; empty: not recorded."""
    project: str = ""
    """The folder to which files of the target are relative: the root of its git checkout, if it has one; empty: not
    recorded."""
    host: Mapping[str, Any] = field(default_factory=dict)
    """Processor, cores, memory, operating system and kernel, without the name of the machine."""
    devices: tuple[Mapping[str, Any], ...] = ()
    """GPUs as NVML saw them."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Name of a package -> its version."""
    collectors: tuple[CollectorStatus, ...] = ()
    """The state of each collector."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts that the program stated with `profiler.describe`: `device`, `corpus`, `preset`, `step`, ..."""

    def collector(self, name: str) -> CollectorStatus | None:
        """Return the status of the collector `name`; None if the run has none of that name."""
        return next((status for status in self.collectors if status.name == name), None)

    @property
    def is_counted(self) -> bool:
        """Return whether the program was counted, or saw virtual CUDA devices: the run has counts, and its times tell
        nothing."""
        return COUNTED in self.facts or "virtual_cuda" in self.facts

    @property
    def python_processes(self) -> tuple[int, int] | None:
        """Python processes that our hooks came into, and how many of these imported torch; None without hooks."""
        status = self.collector(HOOKS)
        if status is None or status.code != "hooks-loaded":
            return None
        return int(status.values["python"]), int(status.values["torch"])


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """A line of the user's own code (or a stack frame)."""

    file: str
    """Path of the file, relative to the folder of the project where it lies in that."""
    line: int
    """Number of the line."""
    function: str
    """Name of the function that contains it; empty: not known."""
    source: str = field(default="", compare=False, repr=False)
    """Text of the line, without indentation; empty: it was not recorded."""

    @classmethod
    def from_fact(cls, fact: Mapping[str, Any]) -> Site:
        """Return the line that a fact of the program names by `file`, `line` and `function`."""
        return cls(fact["file"], fact["line"], fact["function"], fact.get("source", ""))

    @property
    def place(self) -> tuple[str, int]:
        """Return the file and line: two sources may name the function differently, and a lambda is a function of its
        own."""
        return self.file, self.line

    def is_in_file_of(self, sampled: Site) -> bool:
        """Return whether a recorded line is in the file of a sampled one: hooks may name files by their whole path,
        samples within the project."""
        return self.file == sampled.file or self.file.endswith(f"/{sampled.file}")

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})" if self.function else f"{self.file}:{self.line}"


class StepKind(StrEnum):
    """The kind of event that ends a step."""

    MARKED = "marked"
    """The program marks its steps."""
    OPTIMIZER = "optimizer"
    BACKWARD = "backward"
    """Gradients were computed, and no optimizer stepped: the program updates its parameters by hand, or by a library
    with optimizers of its own."""
    LOADER = "loader"
    WHOLE_RUN = "whole-run"
    """Nothing ended a step: the whole run counts as one."""
    ANNOTATION = "annotation"
    """ProfilerStep annotations in a trace of torch's profiler."""
    WHOLE_TRACE = "whole-trace"


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """The definition of a step in a run, and what it was derived from."""

    kind: StepKind
    """The kind of event that ends a step."""
    phases: tuple[tuple[str, ...], ...] = ()
    """The optimizers, loaders or lines of backward passes that end steps, for each phase of the training; several of
    one phase take turns."""
    nested: tuple[str, ...] = ()
    """Optimizers that step within these steps."""
    skipped: int = 0
    """Optimizer steps that GradScaler skipped."""
    optimizer_steps: int | None = None
    """The number of optimizer steps, if there were too few to define the steps; None: not counted."""
    loader_asked: bool = False
    """Whether batches were requested from a loader, but too few to define the steps."""

    @property
    def is_whole_run(self) -> bool:
        """Return whether nothing ended a step."""
        return self.kind is StepKind.WHOLE_RUN

    @property
    def is_trace(self) -> bool:
        """Return whether the run is a foreign trace of torch's profiler."""
        return self.kind in (StepKind.ANNOTATION, StepKind.WHOLE_TRACE)

    @property
    def label(self) -> str:
        """Return a short name without lines of the program, equal for two versions of it: `steps of AdamW`."""
        if self.kind in (StepKind.OPTIMIZER, StepKind.LOADER):
            unit = "steps" if self.kind is StepKind.OPTIMIZER else "batches"
            return f"{unit} of {self.phases[0][0].partition(' (')[0]}"
        return _STEP_LABELS[self.kind]


_STEP_LABELS: Final = {
    StepKind.MARKED: "steps as the program marks them",
    StepKind.BACKWARD: "backward passes",
    StepKind.WHOLE_RUN: "the whole run as one step",
    StepKind.ANNOTATION: "ProfilerStep annotations",
    StepKind.WHOLE_TRACE: "the whole trace as one step",
}


@dataclass(frozen=True, slots=True)
class StatedResult:
    """A result that the program stated by one call of `profiler.result`."""

    name: str
    count: int
    """Number of its values, of which `values` are those at `tables.result_positions`."""
    values: tuple[float, ...]
    integer: bool
    checksum: int
    """CRC-32 of all values, if they are integers."""
    rtol: float
    atol: float
    margins: tuple[float, ...] = ()
    """For each of `values`, the gap between the two largest scores of which it is the index of the largest; or none."""


class MadeObject(NamedTuple):
    """An object that a line uses, such as the layer that it calls."""

    site: Site
    """The line that makes it; of line 0: not known."""
    called: str
    """The class, or the function, that this line calls for it; empty: not known."""


def maker_of(objects: Sequence[MadeObject], function: str) -> Site | None:
    """Return the line that makes the object whose method takes a line's time.

    :param objects: those that the line uses.
    :param function: the function of a library that takes the time, as in `tabfold.Encoder.forward`.
    """
    names = function.split(".")
    own = [each.site for each in objects if each.called in names] or [each.site for each in objects]
    return own[0] if len(own) == 1 and own[0].line else None


@dataclass(frozen=True, eq=False)
class Run:
    """One recorded execution, whatever recorded it."""

    path: Path
    info: RunInfo
    steps: Table
    regions: Table
    calls: Table
    activities: Table
    values: Table
    samples: Table
    stacks: Table
    boundaries: Table
    """Moments at which a step may end, as hooks saw them."""
    gil_stacks: Table
    """Samples of other windows than `stacks`: of the thread that held the GIL, where one did."""
    stages: Table
    """What hooks saw of the program's stages: modules in evaluation mode, times without gradients, compilations."""
    thread_clocks: Table
    """Clocks of the stepping threads: CPU time, and time without a core although they could have run."""
    counts: Table
    """What was counted by line and kind until each boundary, in a run that counts."""
    library_calls: Table
    """The lines of libraries that make `calls` which a line of the program asks a library for."""
    names: tuple[str, ...]
    """Text of every `name` column."""
    sites: tuple[Site, ...]
    """The lines that `calls.site`, `counts.site` and `library_calls.site` point to."""
    stack_frames: tuple[tuple[Site, ...], ...]
    """The stacks that `stacks.stack` points to: frames, outermost first."""
    problems: tuple[Notice, ...] = ()
    """Damaged or missing parts: torn tables, a recorder that was killed."""
    step: StepDefinition | None = None
    """The definition of a step in this run; None if it has no steps."""
    results: tuple[StatedResult, ...] = ()
    """The results that the program stated, in the order in which each process stated them."""
    made: Mapping[tuple[str, int], tuple[MadeObject, ...]] = field(default_factory=dict)
    """File and number of a line -> the objects that it uses, where the lines that make them are known."""

    @property
    def is_trace(self) -> bool:
        """Return whether it is a foreign trace of torch's profiler, which has no stack samples."""
        return self.step is not None and self.step.is_trace


@dataclass(frozen=True, eq=False)
class Traced:
    """The operators in torch's traces of a run, on the run's clock; they are read only for a timeline."""

    operators: Table
    """begin, end, pid, tid, name, annotation (1: a name that the program or torch gave to a stretch)."""
    names: tuple[str, ...]
    """The texts that `operators.name` points to."""
    pids: frozenset[int]
    """Processes whose activities, and calls with a correlation, are the trace's too."""
    files: tuple[str, ...]
    """The traces, as paths in the run directory."""
    problems: tuple[Notice, ...] = ()
