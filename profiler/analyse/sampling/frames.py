"""Classifies the frames of a stack: the user's line, what it calls, the recorded stretch around it, the step's phase.

A sampler's clock is accurate to milliseconds, so what a sample belongs to is read from its frames, not from its time.
This is the one place that knows files and functions of torch and other libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from profiler.run.code_origin import (
    COMPILED_FOLDER,
    LIBRARY,
    OURS,
    TORCH,
    UNKNOWN_FOLDERS,
    USER,
    PackageFolders,
    code_owner,
    is_standard_library,
    relative_path,
)
from profiler.run.model import Site

DATA, BACKWARD, OPTIMIZER, TOKENIZE, CHECKPOINT, FSYNC = (
    "data", "backward", "optimizer", "tokenize", "checkpoint", "fsync",
)  # fmt: skip
"""Names of regions that hooks record, and so of the strata of samples."""
CALL: Final = "call"
"""Stratum of a hook around a single call that may wait for the device."""
COPY: Final = "copy"
"""Stratum of a hook around a single call that may copy."""
FORWARD, BETWEEN = "forward", "between"

_HOOKS: Final = ("/agent/hooks/", "/inside/hooks/")  # the second one in runs recorded by version 0.1
_CATEGORIES: Final = (
    ("log", re.compile(r"(^|/)(logging|tqdm|tensorboard|tensorboardX|wandb|mlflow|comet_ml|neptune|aim|clearml)/")),
    ("log", re.compile(r"^torch/_tensor_str\.py")),  # the text of a tensor is for readers
    ("log", re.compile(r"^(torch/utils/tensorboard/|(pytorch_lightning|lightning/pytorch|lightning/fabric)/loggers/)")),
    ("log", re.compile(r"^((pytorch_lightning|lightning/pytorch)/callbacks/progress/|ipykernel/iostream\.py|rich/)")),
    ("checkpoint", re.compile(r"^(torch/serialization\.py|torch/distributed/checkpoint/|safetensors/)")),
    ("input", re.compile(r"^(datasets|tokenizers|sentencepiece|tiktoken|webdataset|PIL|albumentations|torchaudio)/")),
    ("input", re.compile(r"^(torch/utils/data/|torchvision/(transforms|datasets|io)/)")),
    ("input", re.compile(r"^transformers/((image|video|audio)_(transforms|processing|utils)|feature_extraction_)")),
    ("input", re.compile(r"^transformers/(tokenization_|processing_utils|data/|models/\w+/(\w+_)?process(or|ing)_)")),
    ("input", re.compile(r"^(transformers/models/\w+/(tokenization|feature_extraction)_|av/|decord/|librosa/)")),
    ("sync", re.compile(r"^torch/cuda/streams\.py")),
    ("ranks", re.compile(r"^torch/distributed/distributed_c10d\.py")),
)
"""Host category of library code by its path below the packages' folder."""
_ROLES: Final = (
    (
        "wait",
        re.compile(r"^(threading|queue|selectors|multiprocessing/(connection|queues|synchronize)|subprocess)\.py$"),
    ),
    ("wait", re.compile(r"^multiprocessing/popen_\w+\.py$")),
    ("child", re.compile(r"^(subprocess|multiprocessing/popen_\w+)\.py$")),
    ("launcher", re.compile(r"^torch/distributed/(elastic/|launcher/|run\.py)")),
    ("network", re.compile(r"^(socket|ssl|http/client)\.py$")),
    ("network", re.compile(r"^(requests|urllib3|httpx|httpcore|aiohttp|grpc|botocore|fsspec)/")),
    ("pool", re.compile(r"^(concurrent/futures/(thread|process)|multiprocessing/(pool|resource_tracker))\.py$")),
    (
        "compiler",
        re.compile(r"^(torch/(_inductor|_functorch/_aot_autograd|fx/experimental)/|triton/(compiler|backends)/)"),
    ),
    ("compiler", re.compile(r"^torch/_dynamo/(convert_frame|symbolic_convert|output_graph)\.py$")),
    ("ranks", re.compile(r"^torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger)\.py$")),
)
"""The role of a thread that a frame reveals, by the path of the frame."""
_SYNC_FILES: Final = re.compile(r"^torch/(cuda/(__init__|streams)|accelerator/__init__|_tensor_str|_tensor)\.py$")
_SYNC_FUNCTIONS: Final = frozenset(
    ("synchronize", "wait", "query", "item", "tolist", "cpu", "_str", "_tensor_str", "tensor_totype")
)
_DATALOADER: Final = "torch/utils/data/dataloader.py"
_LOADER_FOLDER: Final = "torch/utils/data/_utils/"
_LOADER_LOOPS: Final = {"_worker_loop": ("loader", "worker"), "_pin_memory_loop": ("loader",)}
"""The roles of what a loader's workers, and its thread that pins memory, run all their life. Other functions of those
files run in any process: `get_worker_info` in the main process, for an IterableDataset without workers."""
_RECEIVE_FUNCTIONS: Final = frozenset(("_get_data", "_try_get_data", "_process_data", "_try_put_index"))
"""Methods of the iterator that has workers, and of no other."""
_PASSES_ON: Final = ("__iter__", "__next__", "track")
"""Functions of progress bars that only hand the next item on: what runs below them is not logging."""
_WRITES_IMAGES: Final = ("save", "_save", "_save_all", "_encode_tile")
"""Functions of PIL that write an image, which is no data for the training."""
_CLOSURES: Final = ("closure", "closure_fn", "wrap_closure", "_wrap_closure", "wrapped_closure")
"""Names of closures through which an optimizer calls the model again."""
_STEP_NAMING: Final = "torch/autograd/profiler.py", ("__init__", "__enter__", "__exit__")
"""Through these functions torch records the name of an optimizer's step, before its hooks begin and after they end.
They take about 30 µs, which belong to the optimizer but are outside its recorded region."""
CLOSURE: Final = "closed"
"""The profiler's function that calls the closure of an optimizer."""
_TIMED_CLOSURE: Final = (("/optimizers.py", "/_optimizer_steps.py"), (CLOSURE, "end"))
"""The profiler's frames around such a closure, and at the end of a step: what runs below them is not recorded as part
of the optimizer."""
_HOOK_STRATA: Final = {
    "loader": DATA,
    "regions._tokenized": TOKENIZE,
    "regions.dataset": DATA,
    "regions.dataset map": DATA,
    "regions.checkpoint": CHECKPOINT,
    "regions.fsync": FSYNC,
    "backward": BACKWARD,
    "tensors._explicit": CALL,
    "tensors._leaf": CALL,
    "tensors.waiting": CALL,
    "tensors._copying": COPY,
    # in runs that an earlier version recorded
    "tokenizers": TOKENIZE,
    "_tokenizing": TOKENIZE,
    "datasets": DATA,
    "checkpoints": CHECKPOINT,
    "regions.backward": BACKWARD,
    "functions._explicit": CALL,
    "functions._waiting": CALL,
    "tensors._waiting": CALL,
    "tensors.repeating": CALL,
}
"""Hooks whose frame lies around what they record, by file, and by the function that made the wrapper or, in regions.py,
the region: what they call may be native, and then leaves no frame of its own."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A classified stack."""

    site: Site
    """The innermost line of the user's code; without any, the outermost frame."""
    owner: str
    """The owner of that line; without a line of the user, the owner of the outermost frame."""
    calls: str
    """The innermost library function below that line (of an import: what is imported); empty: the line itself."""
    imports: str
    """The package that is imported below that line; empty: none."""
    package: str
    """The package of the innermost frame below that line that is of a library, neither torch nor Python; or empty."""
    inside: str
    """The function of that frame, as its module and name; empty: there is no such frame."""
    called_by: str
    """The innermost function of another library that calls that library, as its module and name; empty: none does."""
    calls_torch: bool
    """Whether a frame below that line is torch's."""
    is_recorder: bool
    """Whether the profiler comes into the program below that line."""
    stratum: str
    """The innermost stretch that hooks record exactly: DATA, BACKWARD, ...; empty: none."""
    category: str
    """Host category that library frames inside of that stretch stand for: log, checkpoint, input; empty: none."""
    in_torch: bool
    """Whether the innermost frame is torch's Python."""
    strata: tuple[tuple[str, str], ...]
    """All recorded stretches around it, from the inside out, with the category of the library frames within each; ''
    comes last."""
    phase: str
    """DATA, FORWARD, BACKWARD, OPTIMIZER or BETWEEN."""
    in_optimizer: bool
    """Whether it lies in what is recorded of an optimizer's step: closures run the model inside of it."""
    roles: frozenset[str]
    """The roles of its thread that any of its frames indicates: wait, network, compiler, ..."""
    leaf_roles: frozenset[str]
    """The same for its innermost frame that is in a file."""


class _Frame(NamedTuple):
    owner: str
    stratum: str
    category: str
    roles: frozenset[str]
    calls_user: bool
    """Whether it calls user code to do its work, for example to make data or format a log record."""
    passes_on: bool
    is_model: bool
    is_closure: bool
    is_timed_closure: bool
    names_step: bool
    package: str
    """That of a library; empty for torch's and Python's own code."""


_NO_ROLES: Final[frozenset[str]] = frozenset()


@lru_cache(maxsize=1 << 16)
def _classify_frame(file: str, function: str, folders: PackageFolders) -> _Frame:
    owner, path, name = code_owner(file, folders), relative_path(file, folders), function.rpartition(".")[2]
    if file == "<string>" and name.startswith("__"):
        owner = LIBRARY  # what dataclasses and named tuples generate; with `python -c` it is the user's code
    category = ""
    if owner in (TORCH, LIBRARY):
        category = _path_category(path, name)
    is_call = path == "torch/nn/modules/module.py" and name in ("_call_impl", "_wrapped_call_impl")
    is_call = is_call or (path == "torch/autograd/function.py" and name == "apply")  # operators of the program's own
    roles = {role for role, pattern in _ROLES if pattern.match(path)}
    if name in _SYNC_FUNCTIONS and _SYNC_FILES.match(path):
        roles.add("sync")
    if path == _DATALOADER and name in _RECEIVE_FUNCTIONS:
        roles.add("receive")
    if path.startswith(_LOADER_FOLDER):
        roles.update(_LOADER_LOOPS.get(name, ()))
    return _Frame(
        owner,
        stratum=_frame_stratum(owner, file if owner == OURS else path, function),
        category=category,
        roles=frozenset(roles) if roles else _NO_ROLES,
        calls_user=category == "input" or path.startswith("logging/"),
        passes_on=category == "log" and name in _PASSES_ON,
        is_model=is_call or path == "torch/_dynamo/eval_frame.py",
        is_closure=name in _CLOSURES,
        is_timed_closure=owner == OURS and file.endswith(_TIMED_CLOSURE[0]) and name in _TIMED_CLOSURE[1],
        names_step=path == _STEP_NAMING[0] and name in _STEP_NAMING[1],
        package=path.lstrip("/").partition("/")[0].removesuffix(".py")
        if owner == LIBRARY and not is_standard_library(file)
        else "",
    )


def _frame_stratum(owner: str, path: str, function: str) -> str:
    name = function.rpartition(".")[2]
    if owner == OURS:
        stem = PurePosixPath(path).stem if any(folder in path for folder in _HOOKS) else ""
        return _HOOK_STRATA.get(stem) or _HOOK_STRATA.get(f"{stem}.{function.partition('.')[0]}", "")
    if path == _DATALOADER and name in ("__next__", "__iter__"):
        return DATA
    if path == "torch/autograd/__init__.py" and name in ("backward", "grad"):
        return BACKWARD
    if path == "torch/optim/optimizer.py" and name == "wrapper":
        return OPTIMIZER
    return CHECKPOINT if path == "torch/serialization.py" and name == "save" else ""


def library_category(path: str, function: str) -> str:
    """Return the host category that a function of a library stands for by its path below the packages' folder; empty:
    none."""
    name = function.rpartition(".")[2]
    category = _path_category(path, name)
    if not category and path.startswith("transformers/pipelines/") and function == "preprocess":
        return "input"
    if category == "log" and name in _PASSES_ON:
        return ""
    return (
        "" if category == "input" and name.startswith("post_process") else category
    )  # it processes the model's output


def _path_category(path: str, name: str) -> str:
    if path.startswith("PIL/") and name in _WRITES_IMAGES:
        return ""
    return next((category for category, pattern in _CATEGORIES if pattern.search(path)), "")


def classify_stack(sites: tuple[Site, ...], folders: PackageFolders = UNKNOWN_FOLDERS) -> Stack:
    """Classify a stack whose frames come outermost first."""
    if not sites:
        return Stack(
            Site("", 0, ""), LIBRARY, calls="", imports="", package="", inside="", called_by="", calls_torch=False,
            is_recorder=False, stratum="", category="", in_torch=False, strata=(("", ""),), phase=BETWEEN,
            in_optimizer=False, roles=_NO_ROLES, leaf_roles=_NO_ROLES,
        )  # fmt: skip
    frames = [_classify_frame(site.file, site.function, folders) for site in sites]
    leaf = len(frames) - 1
    user = next((number for number in range(leaf, -1, -1) if frames[number].owner == USER), None)
    in_file = next((number for number in range(leaf, -1, -1) if not sites[number].file.startswith("<")), None)
    strata = _strata(frames)
    phase, in_optimizer = _phase(frames)
    inner = 0 if user is None else user + 1
    below, called = sites[inner:], frames[inner:]
    imported = _imported(below)
    imports = _module_name(imported.file, folders).partition(".")[0] if imported else ""
    # a progress bar around a loader takes no time for what it passes on
    own = [number for number, frame in enumerate(called) if frame.package and not frame.passes_on]
    of_library = max(own, default=None)
    package = "" if of_library is None else called[of_library].package
    caller = max((number for number in own if called[number].package != package), default=None)
    return Stack(
        site=sites[0 if user is None else user],
        owner=frames[0 if user is None else user].owner,
        calls=f"import {imports}" if imports else _callee(below, folders),
        imports=imports,
        package=package,
        inside="" if of_library is None else callee_name(below[of_library], folders),
        called_by="" if caller is None else callee_name(below[caller], folders),
        calls_torch=any(frame.owner == TORCH for frame in called),
        is_recorder=imported is not None and code_owner(imported.file, folders) == OURS,
        stratum=strata[0][0],
        category=strata[0][1],
        in_torch=frames[leaf].owner == TORCH,
        strata=strata,
        phase=phase,
        in_optimizer=in_optimizer,
        roles=_NO_ROLES.union(*(frame.roles for frame in frames if frame.roles)),
        leaf_roles=_NO_ROLES if in_file is None else frames[in_file].roles,
    )


def _strata(frames: Sequence[_Frame]) -> tuple[tuple[str, str], ...]:
    """Return the recorded stretches from the inside out, each with the category of the library frames inside of it.

    Libraries call user code too: an agent that tunes hyperparameters runs the entire training. So frames outside of the
    user's innermost frame, or of a model, tell nothing; but those that make data or log records call the user to do
    just that.
    """
    strata, category, outside = [], "", False
    for number in range(len(frames) - 1, -1, -1):
        frame = frames[number]
        if frame.is_timed_closure or (frame.names_step and number and frames[number - 1].stratum == OPTIMIZER):
            break
        outside = outside or frame.owner == USER or frame.is_model
        if frame.stratum:
            strata.append((frame.stratum, category))
        elif not category and frame.category and (not frame.passes_on or number == len(frames) - 1):
            category = frame.category if frame.calls_user or not outside else ""
    return (*strata, ("", category))


def _phase(frames: Iterable[_Frame]) -> tuple[str, bool]:
    """Return the phase of a stack, and whether it is in an optimizer. Data and backward take precedence, since they are
    recorded exactly; a model that an optimizer calls is forward."""
    phase, in_optimizer = BETWEEN, False
    above = None
    for frame in frames:
        if frame.names_step and above is not None and above.stratum == OPTIMIZER:
            in_optimizer = False
        above = frame
        if frame.stratum in (DATA, BACKWARD):
            return frame.stratum, in_optimizer
        if frame.stratum == OPTIMIZER:
            phase, in_optimizer = OPTIMIZER, True
        elif frame.is_model:
            phase = FORWARD
        elif frame.is_timed_closure:
            phase, in_optimizer = BETWEEN, False
        elif frame.is_closure and phase == OPTIMIZER:
            phase = BETWEEN
    return phase, in_optimizer


def _imported(sites: Iterable[Site]) -> Site | None:
    """Return the first frame in a file below the first one of Python's import: the outermost module that is
    imported."""
    importing = False
    for site in sites:
        importing = importing or site.file.startswith("<frozen importlib")
        if importing and not site.file.startswith("<"):
            return site
    return None


def _callee(sites: tuple[Site, ...], folders: PackageFolders) -> str:
    """Return the innermost function of `sites` that is not ours, as module.function."""
    for site in reversed(sites):
        if code_owner(site.file, folders) != OURS:
            return callee_name(site, folders)
    return ""


def callee_name(site: Site, folders: PackageFolders) -> str:
    """Return a function with its module: `torch.nn.functional.linear`."""
    return f"{_module_name(site.file, folders)}.{site.function}".lstrip(".")


def _module_name(file: str, folders: PackageFolders) -> str:
    if file.startswith("<frozen "):
        return file[len("<frozen ") :].rstrip(">")
    if file.startswith("<") or COMPILED_FOLDER in file:
        return "compiled" if COMPILED_FOLDER in file else ""
    path = PurePosixPath(relative_path(file, folders))
    parts = [part for part in path.with_suffix("").parts if part != "/"]
    if parts and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if not path.is_absolute() else parts[-1:])
