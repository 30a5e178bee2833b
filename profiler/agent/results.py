"""Writes the results that a program states (`profiler.result`), so that `compare` can tell whether two programs compute
the same. Only the standard library is imported: tensors and arrays are recognized by their methods.
"""

from __future__ import annotations

import json
import threading
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, Final

from profiler.agent.bootstrap import warn
from profiler.agent.folder import SourceFolder
from profiler.run import tables

_BLOCK: Final = 1 << 16
"""Values whose checksum is computed at a time: a copy of all of them could exhaust the program's memory."""
_MAX_VALUES_OF_NAME: Final = 1 << 16
_MAX_CALLS: Final = 10_000
"""Values and calls that are stored under one name: at most about 4 MB of text. A call that begins below is stored."""
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
                self._folder.make()
                if not self._folder.failed:
                    with open(self._folder.path / tables.RESULTS, "a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
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


def describe_result(name: str, value: Any, rtol: float, atol: float, margins: Any) -> dict[str, Any]:
    """Return the stored form of a result: number of values, some or all of them, and a checksum of all if they are
    integers.

    :raises TypeError: it holds something else than real numbers.
    :raises ValueError: it is empty, or `margins` has another length.
    """
    numbers = _flatten(value)
    count = len(numbers)
    if not count:
        raise ValueError("it has no values")
    positions = tables.result_positions(count, has_margins=margins is not None)
    values = _as_list(_at(numbers, positions))
    is_integer = all(isinstance(number, int) for number in (values if hasattr(numbers, "dtype") else numbers))
    kept: list[float] = []
    if margins is not None:
        gaps = _flatten(margins)
        if len(gaps) != count:
            raise ValueError(f"there are {len(gaps)} margins of {count} values")
        kept = [float(f"{float(gap):.4g}") for gap in _as_list(_at(gaps, positions))]
    return {
        "name": str(name),
        "count": count,
        "integer": is_integer,
        "checksum": _checksum(numbers) if is_integer else 0,
        "values": values,
        "rtol": float(rtol),
        "atol": float(atol),
        "margins": kept,
    }


def _at(numbers: Any, positions: Sequence[int]) -> Any:
    """Return the numbers at these positions."""
    if len(positions) == len(numbers):
        return numbers
    return numbers[list(positions)] if hasattr(numbers, "dtype") else [numbers[position] for position in positions]


def _flatten(value: Any) -> Any:
    """Return a list of numbers, or a one-dimensional array on the host."""
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
    elif isinstance(value, Iterator):
        raise TypeError("an iterator, which the program would find empty then")
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        for item in value:
            yield from _numbers(item)
    else:
        raise TypeError(f"{type(value).__name__} is not a number")


def _as_list(numbers: Any) -> list[Any]:
    return [*_numbers(numbers.tolist())] if hasattr(numbers, "tolist") else numbers


def _checksum(numbers: Any) -> int:
    """CRC-32 of all values as 64-bit integers, whatever their width was."""
    if hasattr(numbers, "astype"):
        checksum = 0
        for begin in range(0, len(numbers), _BLOCK):
            checksum = zlib.crc32(numbers[begin : begin + _BLOCK].astype("<i8").tobytes(), checksum)
        return checksum
    if all(-(1 << 63) <= number < 1 << 63 for number in numbers):
        return zlib.crc32(array("q", numbers).tobytes())
    return zlib.crc32(repr(numbers).encode())
