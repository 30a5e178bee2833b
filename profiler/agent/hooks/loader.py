"""torch's DataLoader on the training side: the wait for each batch, and the moment at which it was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.hooks._loader_names import LoaderNames
from profiler.agent.patching import STATE, caller, patch
from profiler.agent.recorder import Region, now
from profiler.run.tables import BoundaryKind

_NAME: Final = "_recorded_name"
"""Attribute of a loader's iterator: what its batches are called."""
_WORKER: Final = "_worker_info"


class _Asking(threading.local):
    """Whether this thread is inside of a loader: a loader within a dataset is a part of that one's time."""

    def __init__(self) -> None:
        self.now = False


class Loader:
    """Region `data` around each next batch, `loader start` around each start; a boundary at each question.

    Within `data`, `receive` is what is not a wait for workers: unpacking, and fetching shared memory tensor by tensor.
    """

    name: ClassVar[str] = "loader"
    modules: ClassVar[tuple[str, ...]] = ("torch.utils.data.dataloader",)
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        """Batches of workers' own loaders, and of loaders within a dataset, end no step."""
        names, asking = LoaderNames(), _Asking()
        worker = vars(module._utils.worker)  # torch keeps there, in a worker, which one it is

        patch(module.DataLoader, "__init__", lambda original: _made(original, names))
        patch(module.DataLoader, "__iter__", lambda original: _started(original, asking, worker))
        patch(module._BaseDataLoaderIter, "__init__", lambda original: _named(original, names))
        patch(module._BaseDataLoaderIter, "__next__", lambda original: _asked(original, asking, worker))
        if STATE.recorder is not None and STATE.recorder.detailed:
            patch(ForkingPickler, "loads", lambda original: _received(original, asking))


def _made(original: Callable[..., None], names: LoaderNames) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if STATE.recorder is not None:
            names.made(self, caller(1))

    return init


def _named(original: Callable[..., None], names: LoaderNames) -> Callable[..., None]:
    def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        original(self, loader, *args, **kwargs)
        recorder = STATE.recorder
        if recorder is not None:
            setattr(self, _NAME, names.asked(loader))
            ahead = getattr(self, "_num_workers", 0) * (getattr(loader, "prefetch_factor", None) or 1)
            recorder.prefetch = max(recorder.prefetch, ahead)

    return init


def _started(original: Callable[[Any], Any], asking: _Asking, worker: Mapping[str, Any]) -> Callable[[Any], Any]:
    def start(self: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed or asking.now or worker.get(_WORKER) is not None:
            return original(self)
        with Region(recorder, "loader start"):
            return original(self)

    return start


def _asked(original: Callable[[Any], Any], asking: _Asking, worker: Mapping[str, Any]) -> Callable[[Any], Any]:
    def ask(self: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or asking.now or worker.get(_WORKER) is not None:
            return original(self)
        at, ended, begin, thread, depth = None, 0, 0, recorder.thread, 0
        name = getattr(self, _NAME, "DataLoader")
        asking.now = True
        try:
            if not recorder.index:  # else the program marks its steps
                at = recorder.begin_boundary(BoundaryKind.LOADER, name)
            if recorder.detailed:
                depth = thread.depth
                thread.depth = depth + 1
                begin = now()
            return original(self)
        except StopIteration:
            ended = 1
            raise
        finally:
            asking.now = False
            if begin:
                recorder.region("data", begin, depth)
            if at is not None:
                recorder.end_boundary(BoundaryKind.LOADER, name, at, ended)

    return ask


def _received(original: Callable[..., Any], asking: _Asking) -> Callable[..., Any]:
    def loads(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not asking.now:
            return original(*args, **kwargs)
        with Region(recorder, "receive"):
            return original(*args, **kwargs)

    return loads


PLUGIN = Loader()
