"""Hugging Face datasets: reads of rows, and maps over a dataset."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.patching import STATE, patch
from profiler.agent.recorder import Recorder, Region


class _Reading(threading.local):
    """Whether this thread is reading: one way of reading uses another."""

    def __init__(self) -> None:
        self.now = False


_reading: Final = _Reading()


class Datasets:
    """Region `dataset` around each read, `dataset map` around a map."""

    name: ClassVar[str] = "datasets"
    modules: ClassVar[tuple[str, ...]] = ("datasets.arrow_dataset", "datasets.iterable_dataset")
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

    def install(self, module: ModuleType) -> None:
        """The map of a stream is lazy: its time is part of the reads."""
        if module.__name__.endswith("iterable_dataset"):
            patch(module.IterableDataset, "__iter__", _iterated)
            return
        patch(module.Dataset, "map", lambda original: _within(original, "dataset map"))
        patch(module.Dataset, "__iter__", _iterated)
        for method in ("__getitem__", "__getitems__"):
            if hasattr(module.Dataset, method):
                patch(module.Dataset, method, lambda original: _within(original, "dataset"))


def _within(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def read(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed or _reading.now:
            return original(*args, **kwargs)
        return _read(recorder, name, lambda: original(*args, **kwargs))

    return read


def _read(recorder: Recorder, name: str, do: Callable[[], Any]) -> Any:
    _reading.now = True
    try:
        with Region(recorder, name):
            return do()
    finally:
        _reading.now = False


def _iterated(original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    def iterate(self: Any) -> Iterator[Any]:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed or _reading.now:
            return original(self)
        return _each(original(self))

    return iterate


def _each(rows: Iterator[Any]) -> Iterator[Any]:
    end = object()
    while True:
        recorder = STATE.recorder
        if recorder is None or _reading.now:
            row = next(rows, end)
        else:
            row = _read(recorder, "dataset", lambda: next(rows, end))
        if row is end:
            return
        yield row


PLUGIN = Datasets()
