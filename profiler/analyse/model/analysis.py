"""Defines the results of analysing one run.

Facts are codes and values, from which `profiler.report.text` makes sentences. The only sentences here are `verdict`,
`headline` and `details`: `profiler.report.verdict_text` adds them after the diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from profiler.analyse.model.device import CallSite, DevicePart, IdleBlame, KernelTime, Timeline
from profiler.analyse.model.finding import Finding, JudgedRun, NotJudged, Predictor
from profiler.analyse.model.host import (
    Driver,
    FlameNode,
    LibraryFunction,
    LineCost,
    OperatorLine,
    Phase,
    Preparation,
    Spikes,
    Stage,
    StageCost,
    StageTime,
    TableGradient,
    ThreadActivity,
    UnmeasuredPeriod,
)
from profiler.analyse.model.input import BatchCurve, InputPart, LoaderUse
from profiler.analyse.model.ledger import Ledger
from profiler.analyse.model.measures import CORELESS_CATEGORIES, UNATTRIBUTED, Measure, Missing, Series
from profiler.analyse.model.ranks import RankLedger
from profiler.core.errors import Notice
from profiler.run.model import MadeObject, RunInfo, StatedResult, StepDefinition

DAMAGE = (
    "run-not-ended", "process-stopped", "metadata-damaged", "damaged-line", "damaged-lines", "file-unreadable",
    "impossible-records", "values-left-out", "lost-texts", "events-without-time", "trace-damaged",
)  # fmt: skip
"""Codes of problems of a run that was read in part. A torn last record is none: it is of the moment of a crash."""
LOADED_MACHINE = ("other-programs", "other-machines")
"""Codes of warnings about other work on the machine: reports show them beside the verdict, which they qualify."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The results of one run. docs/json.md explains the names of its measures."""

    info: RunInfo
    """What was recorded, how and where."""
    measures: Mapping[str, Measure]
    """Name -> measure of the run."""
    breakdown: Mapping[str, Measure]
    """Host category -> seconds per step; the categories exclude each other, and sum to `step_time`."""
    device_breakdown: Mapping[str, Measure]
    """Device category -> seconds per step; the categories exclude each other."""
    device_parts: tuple[DevicePart, ...] = ()
    """The device's time by kind of work, with what is hidden behind other work."""
    kernels: tuple[KernelTime, ...] = ()
    """The kernels with most time, the most seconds first."""
    float32_products: float = 0.0
    """The share of the wall time in which the device computes products and convolutions in float32 without tensor
    cores; 0 where the names of kernels do not tell."""
    memory_fills: tuple[float, float] = (0.0, 0.0)
    """Seconds per step in which a device, or in a trace of the CPU the host, only fills new memory, as deterministic
    algorithms do, and how often per step; 0 where that is not recorded."""
    steady_launches: float = 0.0
    """The launches that three of four measured steps have at least; 0 where that is not known, or of a single step."""
    idle: tuple[IdleBlame, ...] = ()
    """Idle time of the device by what the host was doing, the most seconds first."""
    call_sites: tuple[CallSite, ...] = ()
    """Calls toward the device by line, the most seconds first."""
    series: tuple[Series, ...] = ()
    flame: FlameNode | None = None
    missing: tuple[Missing, ...] = ()
    """What was not measured."""
    warnings: tuple[Notice, ...] = ()
    """Facts that make the numbers of this run less certain: few steps, other load on the machine, torn tables, ..."""
    verdict: str = ""
    """Why the program is slow, or that it is not, as a sentence; empty before the diagnosis."""
    headline: str = ""
    """The first sentence of `verdict`."""
    details: tuple[str, ...] = ()
    """The other sentences of `verdict`, for a line each."""
    unknown_reason: str = ""
    """Why what ran in a large part of a step is not known, as a sentence; empty where it is known."""
    outcome: str = ""
    """What `verdict` concludes, as a code of `profiler.diagnose.model.RunVerdict` such as `device-idle`."""
    outcome_share: float = 0.0
    """The share that belongs to `outcome`, such as that of idle time."""
    findings: tuple[Finding, ...] = ()
    """What takes the time, in the order in which a verdict tells it; empty before the diagnosis."""
    not_judged: tuple[NotJudged, ...] = ()
    """The rules that cannot judge this run."""
    step: StepDefinition | None = None
    """The definition of a step in this run, and how it was detected; None: the run has no steps."""
    lines: tuple[LineCost, ...] = ()
    """The time of the stepping thread by line of the user's code, the most seconds first."""
    library: tuple[LibraryFunction, ...] = ()
    """The time of the stepping thread in functions that are not the user's, the most seconds first."""
    recording: float = 0.0
    """Seconds of the stepping thread per step that the hooks took, estimated by the number of their records."""
    blocked: float | None = None
    """Seconds of the stepping thread per step in which it could not run, by its clocks; None: they were not read."""
    operators: tuple[OperatorLine, ...] = ()
    """The operators of one step by line, the most seconds first; empty if they were not counted."""
    tables: tuple[TableGradient, ...] = ()
    """The gradients of tables of which rows are looked up, the most seconds first."""
    made: Mapping[tuple[str, int], tuple[MadeObject, ...]] = field(default_factory=dict)
    """File and number of a line -> the objects that it uses, where the lines that make them are known."""
    preparation: Preparation | None = None
    """None: nothing is computed before the model, or it is not known."""
    driver: Driver | None = None
    """Where a library runs the steps; None: the program does so itself, or it is not known."""
    phases: tuple[Phase, ...] = ()
    """The step in coarse parts, in their order; of runs whose steps hooks found."""
    input: tuple[InputPart, ...] = ()
    """The parts of the loader's time, the most seconds first."""
    loader: LoaderUse | None = None
    """How the training process uses its loaders; None: no loader was seen in the measured steps."""
    batches: BatchCurve | None = None
    """How the time of a step depends on the items of its batches; None: the items were not counted."""
    startup_teardown: tuple[UnmeasuredPeriod, ...] = ()
    """Time before the first step, in warm-up and pauses, and after the last step."""
    stages: tuple[StageTime, ...] = ()
    """The time of the whole run by stage; empty if no steps were detected."""
    stage_costs: Mapping[Stage, StageCost] = field(default_factory=dict)
    """Of evaluations and checkpoints that some steps have and others have not."""
    spikes: Spikes | None = None
    """The few steps that take much longer than the others; None: there are none."""
    one_offs: Spikes | None = None
    """The steps that did work which occurs once, and are no measured steps; None: there are none."""
    threads: tuple[ThreadActivity, ...] = ()
    """The activity of each thread, the main process and its main thread first."""
    timeline: Timeline | None = None
    """It is None if it was not requested."""
    ranks: RankLedger | None = None
    """The ranks of the program; None: it has one rank."""
    results: tuple[StatedResult, ...] = ()
    """The results that the program stated with `profiler.result`."""
    path: Path | None = field(default=None, compare=False)
    """What it was loaded from: a run directory, an archive of one, or a trace."""
    ledger: Ledger | None = field(default=None, compare=False, repr=False)
    """All time of the run; None: it could not be divided into cells."""
    replay: Predictor | None = field(default=None, compare=False, repr=False)
    """Simulates the steps with changes; None where the activities of a device were not recorded, and after the findings
    were made, since it holds all records of the run."""

    @property
    def is_trace(self) -> bool:
        """Return whether the run is a foreign trace of torch's profiler."""
        return self.step is not None and self.step.is_trace

    @property
    def job_size(self) -> int:
        """Return the number of ranks of the job, of which this run may hold only some."""
        if self.ranks is not None:
            return max(self.ranks.size, len(self.ranks.ranks) + len(self.ranks.few_steps))
        size = self.info.facts.get("world_size")
        return size if isinstance(size, int) else 1

    @property
    def judged(self) -> JudgedRun | None:
        """Return what the rules say about it; None where nothing tells what its steps are spent on."""
        step = self.value("step_time")
        return JudgedRun(self.findings, self.not_judged, step) if step and self.info.level != "light" else None

    def value(self, name: str) -> float | None:
        """Return the value of a measure; None: the run does not have it, or it was not measured."""
        measure = self.measures.get(name)
        return measure.value if measure else None

    @property
    def core_wait(self) -> float:
        """Return the known seconds of a step in which the stepping thread could run and had no core."""
        measures = (self.breakdown.get(name) for name in CORELESS_CATEGORIES)
        return sum(measure.value or 0.0 for measure in measures if measure is not None)

    @property
    def own_time(self) -> float:
        """Return the seconds of a step that are the program's own: without waits for a core, and without recording."""
        step = self.value("step_time") or 0.0
        if self.idle:  # of a device, the host's waits are a part of its idle time
            return step
        with_core = max(0.0, step - self.core_wait)
        return with_core - min(self.recording, with_core / 2)

    @property
    def is_undivided(self) -> bool:
        """Return whether stack samples are too few to divide any time of a step: only what hooks record is known."""
        return any(each.code == "unrecorded-time" and each.values["of"] == "anything" for each in self.warnings)

    @property
    def samples(self) -> int:
        """Return the stack samples within the measured steps."""
        return sum(line.samples for line in self.lines)

    @property
    def unattributed_share(self) -> float | None:
        """Return the share of a step in which nothing tells what ran; None if the breakdown of the step was not
        measured."""
        part, step = self.breakdown.get(UNATTRIBUTED), self.value("step_time")
        return part.value / step if part and part.value is not None and step else None
