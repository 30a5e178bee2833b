"""Declares the types of what the JSON of a run holds, and leaves out what is of another type.

Every reader of a run relies on these types. A fact that is not declared here is only shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from profiler.core.errors import Notice
from profiler.core.files import fitting

Natural = Annotated[int, 0]
Positive = Annotated[int, 1]
Rank = Annotated[int, range(1 << 31)]  # tables have 32 bits for it
Mask = Annotated[str, "[0-9a-f]{1,2048}"]
"""The cores on which a process may run, a bit each. Linux supports at most 8,192."""
Frame = tuple[str, int, str]
_Plain = int | bool | None


class Place(TypedDict):
    """A line of the program."""

    file: str
    line: int
    function: str


class _Nowhere(TypedDict, total=False):
    """What a library made, without a line of the program."""

    file: None


class HookCount(TypedDict):
    """How many hooks there were at a moment."""

    time: Natural
    registrations: Positive
    """How often the function had been registered."""
    held: Natural
    """Hooks of the module at which it was registered last."""


class ModuleHook(Place, total=False):
    """A function that is a hook of modules, tensors or optimizers."""

    is_outside: bool
    """Of a hook of modules that is the user's."""
    registered: Place
    """The only line of the user's that registers it; missing: there are several."""
    registrations: Natural
    times: list[HookCount]
    """After 1, 2, 4, 8, ... registrations."""


class CalledCollection(Place):
    """A line that collects garbage by a call."""

    count: Positive


class _LoaderSettings(TypedDict):
    variable: str
    num_workers: _Plain
    batch_size: _Plain
    prefetch_factor: _Plain
    pin_memory: _Plain
    persistent_workers: _Plain


class Loader(Place, _LoaderSettings, total=False):
    """The settings of a loader, and where it was made."""

    iterable: bool
    in_order: bool
    made_anew: bool


_OptimizerSettings = TypedDict(
    "_OptimizerSettings",
    {
        "class": str,
        "foreach": Any,
        "fused": Any,
        "differentiable": Any,
        "tensors": int,
        "elements": int,
        "devices": list[str],
    },
)


class Optimizer(_OptimizerSettings, total=False):
    """The settings of an optimizer."""

    groups: int
    settings: int
    variable: str


class OptimizerOfProgram(Place, Optimizer):
    """An optimizer that a line of the program made."""


class OptimizerOfLibrary(_Nowhere, Optimizer):
    """An optimizer that a library made."""


class ProfilerWindow(TypedDict, total=False):
    """A window of torch's profiler; times in ns."""

    state: str
    reason: str
    began: int | None
    begin: int | None
    end: int | None
    ended: int | None


class OperatorWindow(ProfilerWindow, total=False):
    """The window in which operators were counted: frames, whether backward, caller, count and seconds of all, and of
    the small ones. And the tables of which rows are looked up: frames, rows, rows that are taken, and seconds."""

    lines: list[tuple[list[Frame], bool | int, str, float, float, float, float]]
    tables: list[tuple[list[Frame], Positive, float, float]]


class _PaddedBatches(TypedDict):
    batches: Natural
    padded_batches: Natural
    elements: Positive
    padding: Natural
    ids: list[int]


class Padding(_PaddedBatches, total=False):
    """The padding in some batches of a loader, and the line that adds it."""

    line: Place | None


class _Sharded(TypedDict):
    code: Literal["sharded-parameters"]
    values: dict[str, Any]


class _Functions(TypedDict):
    functions: int


class _LargeGraph(TypedDict):
    code: Literal["large-graph"]
    values: _Functions


class NotJudged(TypedDict):
    """Why the search for unused gradients gave up."""

    not_judged: _Sharded | _LargeGraph


class _UnusedGradients(TypedDict):
    tensors: Natural
    bytes: Natural
    largest: list[int]
    share: float
    assumed: float


class _MaybeDiscarded(TypedDict, total=False):
    discarded: int


class UnusedGradients(Place, _UnusedGradients, _MaybeDiscarded):
    """Gradients that nothing reads, and a line that computes them."""


class UnusedGradientsNowhere(_Nowhere, _UnusedGradients, _MaybeDiscarded):
    """Gradients that nothing reads, which a library computes."""


class Process(TypedDict):
    """A process that the recorder listed."""

    pid: Natural
    rank: Rank | None
    command: str


class Facts(TypedDict, total=False):
    """The facts of a program that any code reads."""

    activation_checkpoints: list[Place]
    affinity: Mask
    compile: str
    cores: Positive
    counted: bool
    debug_variables: dict[str, str]
    default_dtype: str
    denormal: float
    device: str | None
    engine: str
    float64_parameters: float
    gc_calls: list[CalledCollection]
    graph_breaks: list[Place]
    loaders: dict[str, Loader]
    main: str
    module_hooks: list[ModuleHook]
    omp_wait_policy: str
    openmp: str
    operators: OperatorWindow
    optimizers: list[OptimizerOfProgram | OptimizerOfLibrary]
    package: str
    padding: dict[str, Padding]
    processes: list[Process]
    python_threads: list[str]
    rank: Rank
    rank_cores: Positive
    setting_lines: dict[str, Place]
    start_s: float
    torch: str
    torch_folder: str
    torch_threads: Positive
    trace: ProfilerWindow
    unused_gradients: NotJudged | UnusedGradients | UnusedGradientsNowhere | None
    virtual_card: str
    virtual_cuda: Positive
    world_size: Positive


class SourceMeta(TypedDict):
    """The file `source.json` of a process."""

    pid: Natural
    rank: Rank
    facts: dict[str, Any]


class Host(TypedDict, total=False):
    """The machine, in the manifest."""

    cpu: str
    cores: Positive
    cpu_quota: float | None
    cwd: str
    environment: dict[str, str]
    kernel: str
    memory_bytes: Natural
    os: str


class Device(TypedDict, total=False):
    """A GPU, in the manifest."""

    index: int
    name: str | None
    memory_bytes: float | None


class HooksLoaded(TypedDict):
    """The values of the status `hooks-loaded`."""

    python: Natural
    torch: Natural


def with_known_types(
    content: Mapping[str, Any], kind: type[Any], *, file: str, problems: list[Notice]
) -> dict[str, Any]:
    """Keep the entries of `content` that are of the types of `kind`. The names of the others become a problem."""
    kept, left_out = fitting(content, kind)
    if left_out:
        problems.append(Notice("values-left-out", {"file": file, "names": left_out}))
    return kept
