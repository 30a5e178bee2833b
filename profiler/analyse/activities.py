"""What a sampled stack was doing, in the words of a person who asks: waiting for data, blocked in a sync, idle."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profiler.analyse.frames import CHECKPOINT, DATA, USER, Stack, kind_of, relative
from profiler.analyse.model import ThreadState
from profiler.run.model import Site

_SYNCS: Final = re.compile(
    r"\.(item|tolist|cpu|numpy|nonzero|synchronize|wait_stream)\(|\bsynchronize\(|\b(bool|float|int|print)\("
    r"|\.to\(\s*['\"]cpu|torch\.(unique|nonzero|masked_select)\("
)
"""Text of a line that makes the host wait for the device: these calls are no Python, so no frame shows them."""
_SYNC_FRAMES: Final = re.compile(r"^torch/(cuda/(__init__|streams)|accelerator/__init__|_tensor_str|_tensor)\.py$")
_SYNC_FUNCTIONS: Final = (
    "synchronize",
    "wait",
    "query",
    "item",
    "tolist",
    "cpu",
    "_str",
    "_tensor_str",
    "tensor_totype",
)
_RANKS: Final = re.compile(r"^torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger)\.py$")
_COMPILER: Final = re.compile(
    r"^(torch/(_inductor|_functorch/_aot_autograd|fx/experimental)/|triton/(compiler|backends)/)"
)
_DYNAMO: Final = re.compile(r"^torch/_dynamo/(convert_frame|symbolic_convert|output_graph)\.py$")
_WAITS: Final = re.compile(
    r"^(threading|queue|selectors|multiprocessing/(connection|queues|synchronize|popen_\w+)|subprocess)\.py$"
)
_NETWORK: Final = re.compile(
    r"^(socket|ssl|http/client)\.py$|^(requests|urllib3|httpx|httpcore|aiohttp|grpc|botocore|fsspec)/"
)
_POOL: Final = re.compile(r"^(concurrent/futures/(thread|process)|multiprocessing/(pool|resource_tracker))\.py$")
_LOADER: Final = re.compile(r"^torch/utils/data/_utils/(worker|pin_memory)\.py$")
_ITERATOR: Final = "torch/utils/data/dataloader.py"
_TAKES: Final = ("_get_data", "_try_get_data", "_process_data", "_try_put_index")
"""Methods of the iterator that has workers, and of no other."""
_CHILDREN: Final = re.compile(r"^(subprocess|multiprocessing/popen_\w+)\.py$")
_LAUNCHER: Final = re.compile(r"^torch/distributed/(elastic/|launcher/|run\.py)")
_MOSTLY: Final = 0.5
"""Share of the time in which a thread held the GIL above which it was in Python itself, not in what Python called."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a stack beside its frames."""

    active: int
    """1: on a CPU; 0: not; -1: not known."""
    gil: float | None
    """Of the time of this stack, the share in which the GIL was held; None: not known."""
    text: str
    """The line of the user's code."""
    has_torch: bool
    """Whether the process uses torch."""
    has_device: bool
    """Whether there is a device to wait for."""


def what(frames: tuple[Site, ...], stack: Stack, known: Evidence) -> ThreadState:
    """The answer for one stack: its frames, outermost first, and what was read off them."""
    paths = [relative(site.file) for site in frames]
    leaf = next((path for path in reversed(paths) if not path.startswith("<")), "")
    waits = bool(_WAITS.match(leaf) or _LAUNCHER.match(leaf)) and known.active != 1
    said = _in_library(frames, paths, stack, waits=waits) or _waiting(paths, leaf, stack, waits=waits)
    return said or _own(stack, known)


def _in_library(frames: tuple[Site, ...], paths: list[str], stack: Stack, *, waits: bool) -> ThreadState | None:
    """What the frames of a library say by themselves; empty: nothing."""
    if any(map(_LOADER.match, paths)) and waits:
        return ThreadState.IDLE  # a worker or the thread that pins: nobody asked it for anything
    if stack.calls.startswith("import "):
        return ThreadState.IMPORTING
    if stack.cover == DATA:
        return (
            ThreadState.WAITING_FOR_DATA
            if waits
            else ThreadState.RECEIVING_DATA
            if _receives(frames, paths)
            else ThreadState.MAKING_DATA
        )
    if stack.cover == CHECKPOINT or stack.doing == "checkpoint":
        return ThreadState.CHECKPOINTING
    if stack.doing == "log":
        return ThreadState.LOGGING
    if any(map(_DYNAMO.match, paths)) or any(map(_COMPILER.match, paths)):
        return ThreadState.COMPILING
    if any(map(_RANKS.match, paths)):
        return ThreadState.WAITING_FOR_RANKS
    synced = any(
        _SYNC_FRAMES.match(path) and site.function.rpartition(".")[2] in _SYNC_FUNCTIONS
        for path, site in zip(paths, frames, strict=True)
    )
    return ThreadState.SYNC if synced else None


def _receives(frames: tuple[Site, ...], paths: list[str]) -> bool:
    """Whether the loader's iterator takes from its workers what they have made: queues, unpickling."""
    return any(
        path == _ITERATOR and site.function.rpartition(".")[2] in _TAKES
        for path, site in zip(paths, frames, strict=True)
    )


def _waiting(paths: list[str], leaf: str, stack: Stack, *, waits: bool) -> ThreadState | None:
    """Whom the thread waits for; a library's own thread that waits is one that nobody asked for anything."""
    if waits and (_LAUNCHER.match(leaf) or any(map(_CHILDREN.match, paths))):
        return ThreadState.CHILD
    network = any(map(_NETWORK.match, paths))
    if _POOL.match(leaf) or ((waits or network) and kind_of(stack.site.file) != USER):
        return ThreadState.IDLE
    if network:
        return ThreadState.NETWORK
    return ThreadState.LOCK if waits else None


def _own(stack: Stack, known: Evidence) -> ThreadState:
    """Of a stack that ends in the user's code or in a library's computation."""
    native = known.gil is not None and known.gil < _MOSTLY
    at_line = not stack.calls  # what the line called, if anything, was no Python
    if at_line and _SYNCS.search(known.text) and known.has_device and (known.active == 0 or native):
        return ThreadState.PROBABLY_SYNC
    held = known.gil is not None and not native
    if known.active == 0 and not held:  # held: others had its core
        return ThreadState.TORCH if stack.torch else ThreadState.IDLE
    if stack.torch or (native and known.has_torch):
        return ThreadState.TORCH
    return ThreadState.NATIVE if native else ThreadState.PYTHON
