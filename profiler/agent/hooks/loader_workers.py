"""torch's DataLoader where batches are made: in its workers, in its pin thread, or in the training process itself."""

from __future__ import annotations

import inspect
import multiprocessing.queues
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any, ClassVar, Final, cast

from profiler.agent.patching import STATE, is_user_code, patch
from profiler.agent.recorder import Recorder, Region, now
from profiler.run.tables import WORKER_OF, CallKind

_MAX_WRAPPERS: Final = 5
"""Wrappers around a dataset that are looked through: Subset of a Subset, a shard of those, ..."""
_COLLATE: Final = "_recorded_collate"
"""Attribute of a fetcher: the code of what it collates with."""


class _Thread(threading.local):
    """The fetcher whose origins this thread recorded last, and in which recorder."""

    fetcher: Callable[[], Any] | None = None
    serial = 0


_thread: Final = _Thread()


class _Pinning(threading.local):
    """Whether this thread is pinning: torch's function calls itself for each part of a batch."""

    def __init__(self) -> None:
        self.now = False


class Origins:
    """Records, once and whenever it changes, which function of the user a region stands for.

    The record is a call of no length, with the first line of the function, before the first region of each origin.
    """

    def __init__(self) -> None:
        self._thread = _OriginThread()

    def record(self, recorder: Recorder, name: str, code: CodeType | None) -> None:
        """From now on this thread's regions of that name come from `code`; None: from no code of the user."""
        origin = recorder.serial, code
        if self._thread.last.get(name) == origin:
            return
        self._thread.last[name] = origin
        site = -1 if code is None else recorder.site(cast("FrameType", _FirstLine(code)))
        recorder.call(CallKind.OTHER, name, now(), site=site)

    def record_dataset(self, recorder: Recorder, name: str, dataset: Any, methods: tuple[str, ...]) -> None:
        """As `record`, for the first of a dataset's `methods` that is the user's own; about 1 µs."""
        self.record(recorder, name, _dataset_code(dataset, methods))


class _OriginThread(threading.local):
    def __init__(self) -> None:
        self.last: dict[str, tuple[int, CodeType | None]] = {}


class _FirstLine:
    """The first line of a function, as a frame at it would be."""

    def __init__(self, code: CodeType) -> None:
        self.f_code = code
        self.f_lineno = code.co_firstlineno
        self.f_lasti = -1


def _dataset_code(dataset: Any, methods: tuple[str, ...]) -> CodeType | None:
    for _ in range(_MAX_WRAPPERS):
        for method in methods:
            code = getattr(getattr(type(dataset), method, None), "__code__", None)
            if isinstance(code, CodeType) and is_user_code(code):
                return code
        inner = getattr(dataset, "__dict__", {}).get("dataset")  # no getattr: a dataset may answer to any name
        if inner is None:
            return None
        dataset = inner
    return None


_origins: Final = Origins()


class LoaderWorkers:
    """Regions `dataset`, `collate`, `pin memory`; in workers `worker start`, `waiting for an index`, `send` too."""

    name: ClassVar[str] = "loader-workers"
    modules: ClassVar[tuple[str, ...]] = (
        "torch.utils.data._utils.fetch",
        "torch.utils.data._utils.worker",
        "torch.utils.data._utils.pin_memory",
    )
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

    def install(self, module: ModuleType) -> None:
        """Forked workers inherit the patches, spawned ones are patched when they import torch."""
        if module.__name__.endswith(".fetch"):
            patch(module._BaseDatasetFetcher, "__init__", _collating)
            patch(module._MapDatasetFetcher, "fetch", lambda fetch: _fetching(fetch, ("__getitems__", "__getitem__")))
            patch(module._IterableDatasetFetcher, "fetch", lambda fetch: _fetching(fetch, ("__iter__",)))
        elif module.__name__.endswith(".worker"):
            patch(module, "_worker_loop", _working)
        else:
            patch(module, "pin_memory", _pinned)


def _collating(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        collate = self.collate_fn
        code, reference = _code_of(collate), weakref.ref(self)
        setattr(self, _COLLATE, code)

        def timed(batch: Any) -> Any:
            recorder = STATE.recorder
            if recorder is None or not recorder.detailed:
                return collate(batch)
            if _thread.fetcher is not reference:  # a loader within the dataset has recorded its own meanwhile
                _origins.record(recorder, "collate", code)
            thread = recorder.thread
            depth = thread.depth
            thread.depth = depth + 1
            begin = now()
            try:
                return collate(batch)
            finally:
                recorder.region("collate", begin, depth)

        self.collate_fn = timed  # the fetcher is internal to torch

    return init


def _fetching(original: Callable[..., Any], methods: tuple[str, ...]) -> Callable[..., Any]:
    def fetch(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed:
            return original(self, *args, **kwargs)
        reference = weakref.ref(self)  # the same one each time
        if _thread.fetcher is not reference or _thread.serial != recorder.serial:
            _thread.fetcher, _thread.serial = reference, recorder.serial
            _origins.record_dataset(recorder, "dataset", self.dataset, methods)
            _origins.record(recorder, "collate", getattr(self, _COLLATE, None))
        thread = recorder.thread
        depth = thread.depth
        thread.depth = depth + 1
        begin = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            recorder.region("dataset", begin, depth)

    return fetch


def _code_of(function: Any) -> CodeType | None:
    """The code of the user's function, or of the function behind a partial or a callable object."""
    function = getattr(function, "func", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) and is_user_code(code) else None


def _pinned(original: Callable[..., Any]) -> Callable[..., Any]:
    pinning = _Pinning()

    def pin_memory(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed or pinning.now:
            return original(*args, **kwargs)
        pinning.now = True
        try:
            with Region(recorder, "pin memory"):
                return original(*args, **kwargs)
        finally:
            pinning.now = False

    return pin_memory


def _working(original: Callable[..., None]) -> Callable[..., None]:
    names = list(inspect.signature(original).parameters)
    queues = (names.index("index_queue"), names.index("data_queue"))

    def loop(*args: Any, **kwargs: Any) -> None:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed or len(args) <= max(queues):
            return original(*args, **kwargs)
        parent = multiprocessing.parent_process()
        # if one process started several ranks, only this tells whose worker it is
        recorder.call(CallKind.OTHER, WORKER_OF, now(), size=(parent and parent.pid) or os.getppid())
        indices, data = _Indices(args[queues[0]], recorder), _Results(args[queues[1]], recorder)
        arguments = [indices if at == queues[0] else data if at == queues[1] else arg for at, arg in enumerate(args)]
        try:
            with _sending(recorder):
                original(*arguments, **kwargs)
        finally:
            recorder.flush()  # the process ends without exit handlers

    return loop


class _Indices:
    """The queue of indices that a worker fetches."""

    def __init__(self, queue: Any, recorder: Recorder) -> None:
        self._queue = queue
        self._recorder = recorder
        self._started = False

    def get(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        if not self._started:
            self._started = True
            thread = recorder.thread
            recorder.regions.write(recorder.boundary[0], now(), thread.tid, recorder.names.intern("worker start"), 0)
        if self._queue.empty():
            recorder.flush()  # about 20 µs of an idle worker: it may be killed while it waits
        with Region(recorder, "waiting for an index"):
            return self._queue.get(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Results:
    """The queue of batches that a worker has fetched."""

    def __init__(self, queue: Any, recorder: Recorder) -> None:
        self._queue = queue
        self._recorder = recorder

    def put(self, *args: Any, **kwargs: Any) -> None:
        recorder = self._recorder
        with Region(recorder, "waiting for a place"):
            self._queue.put(*args, **kwargs)
        recorder.flush_if_due(now())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


@contextmanager
def _sending(recorder: Recorder) -> Iterator[None]:
    """Region `send` where a queue's thread serializes a batch; it takes the worker's GIL."""
    module: Any = multiprocessing.queues
    pickler = getattr(module, "_ForkingPickler", None)
    if pickler is None:
        yield
        return
    module._ForkingPickler = _Pickler(pickler, recorder)
    try:
        yield
    finally:
        module._ForkingPickler = pickler


class _Pickler:
    """The pickler of multiprocessing's queues."""

    def __init__(self, pickler: Any, recorder: Recorder) -> None:
        self._pickler = pickler
        self._recorder = recorder

    def dumps(self, *args: Any, **kwargs: Any) -> Any:
        with Region(self._recorder, "send"):
            return self._pickler.dumps(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pickler, name)


PLUGIN = LoaderWorkers()
