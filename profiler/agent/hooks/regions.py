"""Records library functions as regions: checkpoints, waits for the disk, reads of Hugging Face datasets, pinning.

The map of a streamed dataset is lazy: its time is part of the reads.
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from profiler.agent.hooks import _syncs
from profiler.agent.patching import DETAILED, STATE, Hook, caller, is_user_file, patch
from profiler.agent.recorder import Recorder, now
from profiler.core.syntax import Block, block_of
from profiler.run.tables import BLOCK_OF_CHECKPOINT, CALLER_OF_CHECKPOINT, LINE_OF

_FUNCTIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "torch": {"checkpoint": ("save", "load")},
    "os": {"fsync": ("fsync", "fdatasync")},
    "torch.distributed.checkpoint": {"checkpoint": ("save", "load")},
    "safetensors.torch": {"checkpoint": ("save_file", "load_file", "save_model", "load_model")},
    "torch.utils.data._utils.pin_memory": {"pin memory": ("pin_memory",)},
    "datasets.arrow_dataset": {
        "dataset map": ("Dataset.map",),
        "dataset": ("Dataset.__iter__", "Dataset.__getitem__", "Dataset.__getitems__"),
    },
    "datasets.iterable_dataset": {"dataset": ("IterableDataset.__iter__",)},
}
"""Module -> region -> functions whose calls are recorded as that region."""
_REQUIRED: Final = {"pin_memory", "Dataset.map", "Dataset.__iter__", "IterableDataset.__iter__"}
"""Functions that every version of their library has: without one of them the hook fails. Others may be missing."""
_OUTERMOST: Final = {"dataset": "dataset", "dataset map": "dataset", "pin memory": "pin memory"}
"""Region -> group. Of nested calls in one group, only the outermost is recorded: one way of reading a dataset uses
another, and a batch is pinned part by part."""

_MAX_CALLERS: Final = 8
"""Functions of the program from the one that makes a checkpoint outwards. Few lie within the loop of the training."""
_MAX_BLOCKS: Final = 100
"""Lines that make checkpoints whose blocks are remembered. A block takes some ms: its file is parsed."""
_blocks: Final[dict[int, tuple[CodeType, Block | None]]] = {}
"""By `id(code)` plus the instruction. The code is kept, so that its id is not reused."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: set[str] = set()
        """Groups (see _OUTERMOST) in which this thread has an open region."""


_thread: Final = _Thread()


def _install(module: ModuleType) -> None:
    for region, paths in _FUNCTIONS[module.__name__].items():
        for path in paths:
            owner, _, name = path.rpartition(".")
            target = attrgetter(owner)(module) if owner else module
            if path in _REQUIRED or callable(getattr(target, name, None)):
                make = _iterated if name == "__iter__" else _outermost if region in _OUTERMOST else _timed
                patch(target, name, partial(make, region))


def _timed(region: str, original: Callable[..., Any]) -> Callable[..., Any]:
    line = LINE_OF.get(region)

    def timed(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed:
            return original(*args, **kwargs)
        thread = recorder.thread
        if line is not None:
            recorder.instant(line, site=_syncs.site(recorder, caller(1)))
            if recorder.on_mode:
                _record_callers(recorder, caller(1))
            recorder.split()
        depth = thread.depth
        thread.depth = depth + 1
        begin = now()
        try:
            return original(*args, **kwargs)
        finally:
            if line is not None:
                recorder.split()
            recorder.region(region, begin, depth)

    # samples of stacks show a frame by the name of its code, and are classified by it (analyse/sampling/frames)
    timed.__code__ = timed.__code__.replace(co_name=region, co_qualname=region)
    return timed


def _record_callers(recorder: Recorder, frame: FrameType | None) -> None:
    """Record the lines of the program that are on the stack: what their functions do belongs to the checkpoint."""
    number = 0
    while frame is not None and number < _MAX_CALLERS:
        if is_user_file(frame.f_code.co_filename):
            recorder.instant(CALLER_OF_CHECKPOINT, size=number, site=recorder.site(frame))
            block = _block(frame)
            if block is not None:
                code = frame.f_code
                first = recorder.site_of(code.co_filename, block.lines.start, code.co_qualname)
                recorder.instant(BLOCK_OF_CHECKPOINT, size=len(block.lines), site=first)
                if not block.is_whole:
                    return
            number += 1
        frame = frame.f_back


def _block(frame: FrameType) -> Block | None:
    code = frame.f_code
    key = id(code) + frame.f_lasti
    if key not in _blocks and len(_blocks) < _MAX_BLOCKS:
        linecache.checkcache(code.co_filename)
        source = "".join(linecache.getlines(code.co_filename, frame.f_globals))
        _blocks[key] = code, block_of(source, frame.f_lineno)
    return _blocks[key][1] if key in _blocks else None


def _outermost(region: str, original: Callable[..., Any]) -> Callable[..., Any]:
    timed, group = _timed(region, original), _OUTERMOST[region]

    def outermost(*args: Any, **kwargs: Any) -> Any:
        if group in _thread.open:
            return original(*args, **kwargs)
        _thread.open.add(group)
        try:
            return timed(*args, **kwargs)
        finally:
            _thread.open.discard(group)

    return outermost


def _iterated(region: str, original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    read = _outermost(region, next)

    def iterate(self: Any) -> Iterator[Any]:
        rows = original(self)
        return rows if STATE.recorder is None or _OUTERMOST[region] in _thread.open else _timed_reads(rows, read)

    return iterate


def _timed_reads(rows: Iterator[Any], read: Callable[..., Any]) -> Iterator[Any]:
    end = object()
    while (row := read(rows, end)) is not end:
        yield row


PLUGIN = Hook("regions", dict.fromkeys(_FUNCTIONS, _install), levels=DETAILED)
