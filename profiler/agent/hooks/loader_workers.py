"""Records torch's DataLoader where batches are made: in its workers, or in the training process itself.

Regions `dataset` and `collate`; in workers `worker start`, `waiting for an index`, `waiting for a place`, `send` too.
"""

from __future__ import annotations

import inspect
import multiprocessing.queues
import os
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final, cast

from profiler.agent.clocks import Region, now
from profiler.agent.hooks.syncs import OPEN, enter_worker
from profiler.agent.patching import STATE, Hook, is_user_code, own_code, patch
from profiler.agent.recorder import Recorder
from profiler.run.tables import WORKER_OF, CallKind

_MAX_WRAPPERS: Final = 5
"""Wrappers around a dataset that are looked through: Subset of a Subset, a shard of those, ..."""
_COLLATE: Final = "_recorded_collate"
"""Attribute of a fetcher: the code of what it collates with."""
_PICKLER: Final = "_ForkingPickler"
"""The attribute of multiprocessing.queues that holds its pickler."""


class _Thread(threading.local):
    """The fetcher whose origins this thread recorded last, their recorder, and the last origin of each region."""

    fetcher: Callable[[], Any] | None = None
    serial = 0

    def __init__(self) -> None:
        self.origins: dict[str, tuple[int, CodeType | None]] = {}


_thread: Final = _Thread()


class _FirstLine:
    """The first line of a function, as a frame at it would be."""

    def __init__(self, code: CodeType) -> None:
        self.f_code = code
        self.f_lineno = code.co_firstlineno
        self.f_lasti = -1


def _record_origin(recorder: Recorder, region: str, code: CodeType | None) -> None:
    """Record, once and whenever it changes, that this thread's regions of that name come from the user's `code`.

    The record is a call of no length, with the first line of the function, before the first region of each origin.

    :param code: None: no code of the user.
    """
    origin = recorder.serial, code
    if _thread.origins.get(region) != origin:
        _thread.origins[region] = origin
        site = -1 if code is None else recorder.site(cast("FrameType", _FirstLine(code)))
        recorder.call(CallKind.OTHER, region, now(), site=site)


def _dataset_code(dataset: Any, methods: tuple[str, ...]) -> CodeType | None:
    """Return the code of the first of a dataset's `methods` that is the user's own; about 1 µs."""
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


def _install_fetchers(module: Any) -> None:
    """Forked workers inherit the patches, spawned ones are patched when they import torch."""
    if STATE.recorder is None or not STATE.recorder.detailed:
        return
    patch(module._BaseDatasetFetcher, "__init__", _collating)
    patch(module._MapDatasetFetcher, "fetch", lambda fetch: _fetching(fetch, ("__getitems__", "__getitem__")))
    patch(module._IterableDatasetFetcher, "fetch", lambda fetch: _fetching(fetch, ("__iter__",)))


def _collating(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        collate = self.collate_fn
        code, reference = own_code(collate), weakref.ref(self)
        setattr(self, _COLLATE, code)

        def timed(batch: Any) -> Any:
            recorder = STATE.recorder
            if recorder is None or not recorder.detailed:
                return collate(batch)
            if _thread.fetcher is not reference:  # a loader within the dataset has recorded its own meanwhile
                _record_origin(recorder, "collate", code)
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
            _record_origin(recorder, "dataset", _dataset_code(self.dataset, methods))
            _record_origin(recorder, "collate", getattr(self, _COLLATE, None))
        thread = recorder.thread
        depth = thread.depth
        is_counted = bool(recorder.on_mode) and OPEN.is_worker and not depth  # a batch has counts of its own
        if is_counted:
            recorder.split()
        thread.depth = depth + 1
        begin = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            if is_counted:
                recorder.split()
            recorder.region("dataset", begin, depth)

    return fetch


def _working(original: Callable[..., None]) -> Callable[..., None]:
    names = list(inspect.signature(original).parameters)
    queues = (names.index("index_queue"), names.index("data_queue"))

    def loop(*args: Any, **kwargs: Any) -> None:
        enter_worker()
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed or len(args) <= max(queues):
            return original(*args, **kwargs)
        parent = multiprocessing.parent_process()
        # if one process started several ranks, only this tells whose worker it is
        recorder.call(CallKind.OTHER, WORKER_OF, now(), size=(parent and parent.pid) or os.getppid())
        indices, data = _Indices(args[queues[0]], recorder), _Results(args[queues[1]], recorder)
        arguments = [indices if at == queues[0] else data if at == queues[1] else arg for at, arg in enumerate(args)]
        module: Any = multiprocessing.queues
        pickler = getattr(module, _PICKLER, None)
        if pickler is not None:
            setattr(module, _PICKLER, _Pickler(pickler, recorder))
        try:
            original(*arguments, **kwargs)
        finally:
            if pickler is not None:
                setattr(module, _PICKLER, pickler)
            recorder.flush()  # the process ends without exit handlers

    return loop


class _Proxy:
    """Stands for `target`, and records what a worker does with it."""

    def __init__(self, target: Any, recorder: Recorder) -> None:
        self._target = target
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class _Indices(_Proxy):
    """The queue of indices that a worker fetches."""

    _started = False

    def get(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        if not self._started:
            self._started = True
            thread = recorder.thread
            recorder.regions.write(recorder.boundary[0], now(), thread.tid, recorder.names["worker start"], 0)
        if self._target.empty():
            recorder.flush()  # about 20 µs of an idle worker: it may be killed while it waits
        with Region(recorder, "waiting for an index"):
            return self._target.get(*args, **kwargs)


class _Results(_Proxy):
    """The queue of batches that a worker has fetched."""

    def put(self, *args: Any, **kwargs: Any) -> None:
        with Region(self._recorder, "waiting for a place"):
            self._target.put(*args, **kwargs)
        self._recorder.flush_if_due(now())


class _Pickler(_Proxy):
    """The pickler of multiprocessing's queues.

    It serializes a batch on the queue's thread, which holds the worker's GIL meanwhile.
    """

    def dumps(self, *args: Any, **kwargs: Any) -> Any:
        with Region(self._recorder, "send"):
            return self._target.dumps(*args, **kwargs)


PLUGIN = Hook(
    "loader-workers",
    {
        "torch.utils.data._utils.fetch": _install_fetchers,
        "torch.utils.data._utils.worker": lambda module: patch(module, "_worker_loop", _working),
    },
)
