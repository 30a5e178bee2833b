"""Writes the results that a program states (`profiler.result`), so that `compare` can tell whether two programs compute
the same. Only the standard library is imported: tensors and arrays are recognized by their methods.
"""

from __future__ import annotations

import json
import threading
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any, Final

from profiler.agent.bootstrap import warn
from profiler.agent.source_folder import SourceFolder
from profiler.run import tables

_MAX_VALUES: Final = 4096
"""Values of one result that are stored, evenly spaced; the checksum is of all of them."""
_MAX_VALUES_OF_NAME: Final = 1 << 16
_MAX_CALLS: Final = 10_000
"""Values and calls that are stored under one name: at most about 2 MB of text. Later ones are ignored."""
_MAX_NAMES: Final = 100


class ResultWriter:
    """Appends each stated result as a line of JSON to the file of this process."""

    def __init__(self, folder: SourceFolder) -> None:
        self._folder = folder
        self._calls: Counter[str] = Counter()
        self._values: Counter[str] = Counter()
        self._reported: set[str] = set()
        self._writing = threading.RLock()

    def write(self, name: str, value: Any, rtol: float, atol: float, margins: Any) -> None:
        """Store `value`. One that cannot be stored is reported once for each name; the program goes on."""
        if not self._folder.is_ours() or self._is_full(name):
            return
        try:
            with self._writing:
                line = describe_result(name, value, rtol, atol, margins)
                self._calls[name] += 1
                self._values[name] += len(line["values"])
                self._append(json.dumps(line) + "\n")
        except OSError as error:
            self._folder.fail(error)
        except Exception as error:  # noqa: BLE001 - a value of the program may raise anything, and must not fail it
            if name not in self._reported:
                self._reported.add(name)
                warn(f"result {name!r} could not be recorded: {type(error).__name__}: {error}")

    def _is_full(self, name: str) -> bool:
        if name not in self._calls:
            return len(self._calls) >= _MAX_NAMES
        return self._calls[name] >= _MAX_CALLS or self._values[name] >= _MAX_VALUES_OF_NAME

    def _append(self, line: str) -> None:
        self._folder.make()
        if not self._folder.failed:
            with open(self._folder.path / tables.RESULTS, "a", encoding="utf-8") as file:
                file.write(line)


def describe_result(name: str, value: Any, rtol: float, atol: float, margins: Any) -> dict[str, Any]:
    """The stored form of a result: number of values, checksum of all of them, and at most `_MAX_VALUES` of them.

    :raises TypeError: it holds something else than real numbers.
    :raises ValueError: it is empty, or `margins` has another length.
    """
    numbers = _flatten(value)
    count = len(numbers)
    if not count:
        raise ValueError("it has no values")
    step = -(-count // _MAX_VALUES)
    values = _as_list(numbers[::step])
    is_integer = all(isinstance(number, int) for number in (values if hasattr(numbers, "dtype") else numbers))
    kept: list[float] = []
    if margins is not None:
        gaps = _flatten(margins)
        if len(gaps) != count:
            raise ValueError(f"there are {len(gaps)} margins of {count} values")
        kept = [float(f"{float(gap):.4g}") for gap in _as_list(gaps[::step])]
    return {
        "name": str(name),
        "count": count,
        "integer": is_integer,
        "checksum": _checksum(numbers, is_integer=is_integer),
        "values": values,
        "rtol": float(rtol),
        "atol": float(atol),
        "margins": kept,
    }


def _flatten(value: Any) -> Any:
    """A list of numbers, or a one-dimensional array on the host."""
    if hasattr(value, "detach"):  # a tensor of torch; the copy of one on a GPU waits for the GPU
        value = value.detach().cpu()
        value = value.float().numpy() if str(value.dtype) in ("torch.bfloat16", "torch.float16") else value.numpy()
    if hasattr(value, "dtype") and hasattr(value, "reshape"):
        return value.reshape(-1)
    return [*_numbers(value)]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Integral):
        yield int(value)
    elif isinstance(value, Real):
        yield float(value)
    elif hasattr(value, "dtype"):
        yield from _as_list(_flatten(value))
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        for item in value:
            yield from _numbers(item)
    else:
        raise TypeError(f"{type(value).__name__} is not a number")


def _as_list(numbers: Any) -> list[Any]:
    return [*_numbers(numbers.tolist())] if hasattr(numbers, "tolist") else numbers


def _checksum(numbers: Any, *, is_integer: bool) -> int:
    """CRC-32 of all values as 64-bit integers or floating-point numbers, whatever their width was."""
    if hasattr(numbers, "astype"):
        return zlib.crc32(numbers.astype("<i8" if is_integer else "<f8").tobytes())
    if is_integer and not all(-(1 << 63) <= number < 1 << 63 for number in numbers):
        return zlib.crc32(repr(numbers).encode())
    return zlib.crc32(array("q" if is_integer else "d", numbers).tobytes())
