"""Settings of torch and of the machine: precision, threads, debugging, compilation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from profiler.analyse.model.analysis import LOADED_MACHINE, Analysis
from profiler.analyse.model.comparison import WITHOUT_CORE
from profiler.analyse.model.device import FILLING
from profiler.analyse.model.finding import Confidence, GainMethod, KnockOut
from profiler.analyse.model.host import Stage
from profiler.analyse.model.measures import CORELESS_CATEGORIES
from profiler.diagnose.device import program_blame
from profiler.diagnose.model import MOST, NAMED
from profiler.diagnose.rule import (
    ON_CORE,
    Claim,
    Cost,
    Order,
    RunClaim,
    StepCosts,
    exactly,
    largest_sites,
    phase_costs,
    rule,
    take,
    total_seconds,
)
from profiler.diagnose.rules._input import rank_count
from profiler.diagnose.rules._lines import frame_costs, frame_sites, lines_above
from profiler.run.model import Site
from profiler.run.tables import MADE_BY, MEMORY_FILL, OPERATORS, SETTINGS


def setting_line(costs: StepCosts, name: str) -> tuple[Site, ...]:
    """Return the line that changes a setting, such as `threads` (`profiler.agent.hooks.settings`); nothing if not
    known."""
    lines = costs.fact(SETTINGS)
    return (Site.from_fact(lines[name]),) if isinstance(lines, Mapping) and name in lines else ()


_OF_FLOAT64: Final = 0.5
"""Part of the time that float32 saves: a core does half as many float64 operations at a time. Measured: 2.0 times the
CPU time of matrix products (tests/clinic, case wild/float64); 2.3 to 2.7, 3.5 to 3.8 and 9 to 11 times that of
convolutions with kernels of 1, 3 and 5 (torch 2.13, one core of an AMD EPYC)."""


@rule(
    "float64",
    "The model computes in float64",
    ("{double:share} of its parameters are in float64, twice as wide as float32.",),
    "Use float32 for the model and for its inputs: look for torch.set_default_dtype, .double(), and arrays of NumPy, "
    "which are float64 by default.",
    code="model.float(); inputs = inputs.float()",
)
def float64(costs: StepCosts) -> Claim | None:
    """Half of the computing with these parameters, or more with convolutions, whose kernels for float64 are slow."""
    double = costs.number("float64_parameters")
    if not double or double < MOST or costs.has_queue:
        return None
    return Claim(
        {"compute": costs.cost("compute").part(_OF_FLOAT64 * double)},
        largest_sites([*setting_line(costs, "float64"), *costs.sites("compute")]),
        {"double": double},
        method=GainMethod.ESTIMATE,
        is_least=bool(lines_above(costs, lambda each: each.file == "torch/nn/modules/conv.py")),
    )


@rule(
    "debug-mode",
    "Anomaly detection is on",
    (
        "{stacks:share} of each step goes to the stacks that torch records, one for each operator.",
        "{checks:share} of each step looks for NaN in each gradient.",
    ),
    "Turn it on only while you look for the source of a NaN.",
    code="torch.autograd.set_detect_anomaly(False)",
    knock_out=KnockOut.SETTINGS,
    settings={"anomaly": False},
)
def debug_mode(costs: StepCosts) -> Claim | None:
    """The time in which anomaly detection records a stack for each operator, and looks for NaN in each gradient."""
    if not costs.fact("anomaly_detection") or costs.has_queue:
        return None
    # torch calls this function for each operator: the one of the standard library, or torch.fx's of the same name
    lines = lines_above(costs, lambda each: each.name == "format_stack" and each.file.endswith("traceback.py"))
    claimed = frame_costs(lines, "python")
    operators = costs.fact(OPERATORS)
    checks = operators.get("nan_checks", 0.0) if isinstance(operators, Mapping) else 0.0
    values = {"stacks": costs.share(total_seconds(claimed)) or None, "checks": costs.share(checks) or None}
    if checks:
        claimed["compute"] = exactly(min(checks, costs.cost("compute").seconds))
    sites = largest_sites([*setting_line(costs, "anomaly"), *frame_sites(lines)])
    return Claim(claimed, sites, values, is_least=True) if claimed else None


@rule(
    "memory-fills",
    "Deterministic algorithms fill all new memory with values that nothing reads",
    (
        "torch.use_deterministic_algorithms(True) turns that on.",
        "torch fills new memory {fills:n time} per step.",
        "The device only fills it {filling:share} of the time.",
    ),
    "Set torch.utils.deterministic.fill_uninitialized_memory = False. The algorithms stay deterministic. Only a "
    "program that reads memory which it never wrote needs these values.",
)
def memory_fills(costs: StepCosts) -> Claim | RunClaim | None:
    """The time of a device that fills new memory or is idle until that is launched; in a run only the setting."""
    if costs.fact("fills_memory"):
        sites = setting_line(costs, "deterministic")
        return RunClaim(sites=sites, confidence=Confidence.MEDIUM)
    seconds, count = costs.analysis.memory_fills
    if not count or costs.is_device_unseen:
        return None
    if not costs.has_queue:
        return Claim({"compute": exactly(seconds)}, values={"fills": count})
    rows = [row for row in program_blame(costs.analysis) if row.subject == MEMORY_FILL and not row.is_once]
    claimed = {FILLING: exactly(seconds), "framework": exactly(sum(row.seconds_per_step for row in rows))}
    return Claim(
        {name: cost for name, cost in claimed.items() if cost.seconds},
        largest_sites(row.site for row in rows),
        {"fills": count, "filling": costs.share(seconds)},
    )


_FILE: Final = "torch/profiler/profiler.py"
_FUNCTIONS: Final = ("profile.step", "_KinetoProfile.start", "profile.start", "_KinetoProfile.stop", "profile.stop")
"""Functions of that file that a program calls in its steps: they start and stop the profiler, and make its results."""


@rule(
    "profiler-left-on",
    "torch's profiler runs in the steps",
    ("{share:share} of each step goes to its starts, its ends and its results. It also makes operators slower.",),
    "Profile a few steps only, and turn it off afterwards.",
    code="schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)",
)
def profiler_left_on(costs: StepCosts) -> Claim | None:
    """The time in which the profiler starts, stops and makes its results. What it takes in operators is not known."""
    if costs.has_queue:
        return None
    lines = lines_above(costs, lambda each: each.file == _FILE and each.name in _FUNCTIONS)
    claimed = frame_costs(lines)
    sites = largest_sites([*setting_line(costs, "profiler"), *frame_sites(lines)])
    return Claim(claimed, sites, is_least=True) if claimed else None


def _own_waits(costs: StepCosts) -> dict[str, Cost]:
    """Return the waits for a core, at most as long as other threads and processes of the program run."""
    claimed, cpu = take(costs, *CORELESS_CATEGORIES), costs.analysis.value("host_cpu")
    if cpu is None or "core" not in claimed:
        return claimed
    used = (cpu + (costs.analysis.value("children_cpu") or 0.0)) * costs.seconds
    found = costs.input
    waiting = (found.waits + found.around_starts) * costs.seconds if found else 0.0  # for workers, without a core
    others = max(0.0, used - sum(costs.cost(name).seconds for name in ON_CORE) + waiting)
    return claimed | {"core": claimed["core"].part(min(1.0, others / claimed["core"].seconds))}


_BESIDE: Final = 0.5
"""Cores that other processes of the program use on average from which its threads lack them. A choice: half of one."""


class _Excess(NamedTuple):
    """More threads than cores, which are one at least."""

    threads: int
    cores: float
    """Those that there are for them; one at least."""
    others: float = 0.0
    """Cores of these that other programs use, where there would be enough without them."""

    @property
    def is_any(self) -> bool:
        """Return whether there are fewer cores, to the nearest whole one."""
        return self.threads > round(self.cores)


def _excess_threads(costs: StepCosts, category: str) -> _Excess | None:
    """Compare the threads that compute with the cores for them, or the quota; None where these are enough."""
    analysis = costs.analysis
    facts, host = analysis.info.facts, analysis.info.host
    threads, cores, quota = facts.get("torch_threads"), costs.number("cores"), costs.number("cpu_quota")
    if not isinstance(threads, int) or cores is None:
        return None
    of_all = threads * rank_count(costs)
    if category == "throttled":
        return _Excess(of_all, quota) if quota is not None and of_all > max(1, quota) else None
    shared = facts.get("rank_cores")
    if analysis.ranks and isinstance(shared, int):
        threads, cores = of_all, shared
    elif analysis.ranks and threads <= cores:  # each rank may be bound to cores of its own
        threads, cores = of_all, max(cores, host.get("cores", 0))
    if analysis.ranks or threads > cores:
        return _Excess(threads, cores) if threads > cores else None
    beside = analysis.value("children_cpu") or 0.0
    left = cores - (beside if beside >= _BESIDE else 0.0)
    # as many of the others may be on cores on which this program may not run
    others = max(0.0, _others(analysis) - (host.get("cores", cores) - cores))
    found = _Excess(threads, max(1.0, left)), _Excess(threads, max(1.0, left - others), others)
    return next((each for each in found if each.is_any), None)


def _others(analysis: Analysis) -> float:
    """Cores that other programs use, if they are enough to delay this one."""
    return sum(float(each.values["used"]) for each in analysis.warnings if each.code == LOADED_MACHINE[0])


@rule(
    "more-threads-than-cores",
    "More threads compute than there are cores for them",
    (
        "Threads that compute: {threads:count}. Cores that are left for them: {limit:number}.",
        "Other programs use {others:n core}.",
        "{share:share} of each step waits for a core while they run.",
    ),
    "Use at most as many threads as there are cores for them: with several ranks on a machine, the cores divided by "
    "the ranks; beside worker processes, the cores that these leave.",
    code="torch.set_num_threads({own:plain})",
    # one thread was 1.2 to 200 times as fast as two beside two busy loops on two cores (networks of 64, 256 and 768
    # units, torch 2.13), and 0.55 to 8 times as fast without them
    fixes=(
        (
            "While other programs use {others:n core}, start it with OMP_NUM_THREADS={left:plain}. An operator "
            "ends only when each of its threads has had a core."
        ),
    ),
    knock_out=KnockOut.SETTINGS,
    settings={"threads": "left"},
)
def more_threads_than_cores(costs: StepCosts) -> Claim | None:
    """The waits for a core, where the program has more threads than cores or than its CPU quota."""
    for category in CORELESS_CATEGORIES:
        if excess := _excess_threads(costs, category):
            left = max(1, int(excess.cores / rank_count(costs)))
            values: dict[str, float] = {"threads": excess.threads, "limit": excess.cores, "left": left}
            lines = setting_line(costs, "threads") or setting_line(costs, "processes")
            if excess.others:  # they delay one thread too, by how much is not known; on a quiet machine more are faster
                return Claim(take(costs, category), lines, values | {"others": excess.others}, has_gain=False)
            values["own"] = left
            # processes of the program compute beside it, and take their time on the cores with fewer threads too
            is_beside = (costs.analysis.value("children_cpu") or 0.0) >= _BESIDE
            return Claim(_own_waits(costs), lines, values, is_least=not is_beside, is_most=is_beside)
    return None


_LEAST_BESIDE: Final = 0.2
"""Cores that other processes of the program use on average from which they may delay it. A choice."""
_FULL: Final = 2 / 3
"""Part of the cores that must be in use on average: the thread waits while all of them are. A choice."""


@rule(
    "processes-share-cores",
    "Other processes of the program take the cores from the training thread",
    (
        "Because of them it waits for a core in {share:share} of each step.",
        "These processes use {beside:number} of {cores:n core} on average.",
    ),
    "Start fewer processes, or let each compute with fewer threads: call torch.set_num_threads(1) in each process, or "
    "set OMP_NUM_THREADS=1 before the program starts.",
    fixes=("Start fewer processes, or let {alone} compute less: OMP_NUM_THREADS=1 is set already.",),
    threshold=NAMED,  # processes of one program wait for each other now and then
    order=Order.REST,
)
def processes_share_cores(costs: StepCosts) -> Claim | None:
    """The waits for a core that neither an excess of threads nor another program explains, at most as long as the other
    processes run. Other ranks and workers of a loader have rules of their own."""
    analysis, waits = costs.analysis, take(costs, "core").get("core")
    beside, others, own = (analysis.value(name) or 0.0 for name in ("children_cpu", WITHOUT_CORE, "host_cpu"))
    cores = costs.number("cores")
    if waits is None or analysis.ranks or analysis.measures.get(WITHOUT_CORE) is None or cores is None:
        return None
    has_workers = analysis.loader is not None and analysis.loader.workers > 0
    if has_workers or beside < _LEAST_BESIDE or own + beside + _others(analysis) < _FULL * cores:
        return None
    claimed = min(waits.seconds - others * costs.seconds, beside * costs.seconds)
    if claimed <= 0:
        return None
    values = {"beside": beside, "cores": cores, "alone": "them" if costs.fact("omp_num_threads") == "1" else None}
    sites = (*setting_line(costs, "processes"), *setting_line(costs, f"processes{MADE_BY}"))
    return Claim({"core": waits.part(claimed / waits.seconds)}, sites, values, is_most=True)


@rule(
    "noisy-machine",
    "The training thread waits for a free core",
    (
        "{share:share} of each step waits for a core.",
        "OMP_WAIT_POLICY={policy}: torch's threads stay on their cores also while they wait.",
    ),
    "Other programs take the cores, or its own workers and threads do: use a machine or a time with more free cores.",
    order=Order.REST,
)
def noisy_machine(costs: StepCosts) -> Claim | None:
    """The waits for a core that no excess of threads explains."""
    claimed, policy = take(costs, "core"), costs.fact("omp_wait_policy")
    if policy != "active" or not (costs.number("torch_threads") or 0) > 1:
        policy = None
    return Claim(claimed, (), {"policy": policy}, has_gain=False) if claimed else None


@rule(
    "throttled",
    "The container's CPU quota is used up",
    ("{share:share} of each step has no core because of the quota.", "The quota is {quota:n core}."),
    "Give the container more CPU, or use fewer threads and workers.",
    order=Order.REST,
)
def throttled(costs: StepCosts) -> Claim | None:
    """The time without a core because of the quota, which no excess of threads explains."""
    claimed = take(costs, "throttled")
    return Claim(claimed, (), {"quota": costs.number("cpu_quota")}) if claimed else None


@rule(
    "graph-breaks",
    "torch.compile cannot put the model into one graph",
    (
        "Lines at which it ends a graph: {breaks:count}.",
        "What lies between two graphs runs in Python, and nothing is fused across it.",
    ),
    "Take reads of values, prints and branches on tensors out of the compiled code; fullgraph=True tells the reason.",
)
def graph_breaks(costs: StepCosts) -> RunClaim | None:
    """The graph breaks of compiled code. What they cost is not known: a compiler would fuse across them."""
    breaks = costs.fact("graph_breaks") or ()
    if not breaks or not costs.fact("compile"):
        return None
    sites = [Site.from_fact(line) for line in breaks]
    return RunClaim(sites=largest_sites(sites), values={"breaks": len(sites)}, confidence=Confidence.MEDIUM)


_OFTEN_COMPILED: Final = 3.0
"""Compilations again in the measured steps from which they go on. A choice: torch compiles again once for each shape
that it then takes to be dynamic, such as that of a last batch."""


@rule(
    "recompilation",
    "torch.compile compiles code again within the steps",
    ("{share:share} of each step is compilation.", "Code is compiled again {times:n time} in {steps:n step}."),
    "Keep shapes and Python values that the compiled code depends on the same, or mark those that change as dynamic.",
    code="torch.compile(model, dynamic=True)",
)
def recompilation(costs: StepCosts) -> Claim | None:
    """The time in which torch.compile compiles within measured steps, where it compiles the same code repeatedly."""
    phase, times = costs.phase(Stage.COMPILE), costs.analysis.value("recompilations_per_step") or 0.0
    steps = costs.analysis.value("steps") or 0.0
    if phase is None or costs.has_queue or times * steps < _OFTEN_COMPILED:
        return None
    values = {"times": times * steps, "steps": steps}
    # each call also searches the versions that were compiled before
    return Claim(*phase_costs(costs, phase), values, is_least=True)
