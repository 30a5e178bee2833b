"""A file of a foreign recording -> its JSON, with every number still in the digits that were written."""

from __future__ import annotations

import gc
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError

_GZIP: Final = b"\x1f\x8b"
_SQLITE: Final = b"SQLite format 3\x00"
_NSIGHT: Final = (".sqlite", ".nsys-rep", ".qdrep")
_NS_DIGITS: Final = 3  # of a microsecond


def read_json(path: Path) -> Any:
    """The JSON in `path`, plain or gzipped; fractions stay text, since a float cannot hold ns of this century.

    :raises ProfilerError: it cannot be read, is cut off, or is no JSON.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfilerError(f"cannot read {path}: {error.strerror}") from error
    if data.startswith(_SQLITE) or path.suffix in _NSIGHT:
        raise ProfilerError(f"{path} is a recording of Nsight Systems, which is not read yet")
    if not data:
        raise ProfilerError(f"{path} is not a run directory, and as a trace it is empty")
    try:
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        # old exporters wrote names with raw control characters and broken UTF-8 into otherwise good traces
        text = data.decode("utf-8-sig", "replace")
        del data
        with _no_collector():
            return json.loads(text, parse_float=str, strict=False)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProfilerError(f"{path} is cut off, or damaged: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ProfilerError(f"{path} is not a run directory, and no trace either: no JSON ({error})") from error


def nanoseconds(microseconds: str | int) -> int:
    """Decimal µs as whole ns, exactly; what lies below a ns is rounded.

    :raises ValueError: not a number.
    """
    if isinstance(microseconds, int):
        return microseconds * 1000
    whole, _, rest = microseconds.partition(".")
    if len(rest) <= _NS_DIGITS and not rest.strip("0123456789") and not whole.startswith("-"):
        return int(whole) * 1000 + (int(rest.ljust(_NS_DIGITS, "0")) if rest else 0)
    try:
        return round(Decimal(microseconds) * 1000)
    except (InvalidOperation, OverflowError) as error:
        raise ValueError(f"{microseconds!r} is no time") from error


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of new containers would have the garbage collector walk them all again and again: half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
