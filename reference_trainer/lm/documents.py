"""Documents out of text files (.txt, .jsonl; plain, gzip, zstd) and out of data sets of the Hugging Face hub."""

from __future__ import annotations

import gzip
import json
import logging
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from reference_trainer.errors import TrainerError

SUFFIXES: Final = (".txt", ".jsonl")
COMPRESSED: Final = (".gz", ".zst")
TEXT_FIELD: Final = "text"
"""Field of a .jsonl line that holds the document, as in SlimPajama, The Pile and C4."""

BROKEN_LINES_ALLOWED: Final = 10
"""This many broken .jsonl lines are always skipped: a small file with one torn line is still usable."""
BROKEN_SHARE_ALLOWED: Final = 0.01
"""Above both limits the file is not what it seems (another field name, another format), and that is an error."""

_ZSTD_WINDOW: Final = 1 << 31  # bytes; the largest window of `zstd --long=31`, which the default refuses


@dataclass(slots=True)
class Tally:
    """Counts the lines of .jsonl files that were read, and the broken ones."""

    lines: int = 0
    broken: int = 0
    first: str = ""
    """file:line of the first of these and what is wrong with it."""

    def add_broken(self, where: str) -> None:
        self.broken += 1
        self.first = self.first or where

    def check(self) -> None:
        if self.broken > BROKEN_LINES_ALLOWED and self.broken > BROKEN_SHARE_ALLOWED * self.lines:
            raise TrainerError(
                f"{self.broken} of {self.lines} lines are broken (at most {BROKEN_LINES_ALLOWED} or "
                f"{BROKEN_SHARE_ALLOWED:.0%} are skipped); the first is {self.first}"
            )


def _kind(path: Path) -> str | None:
    """.txt or .jsonl, below any compression; None: neither."""
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    return suffix if suffix in SUFFIXES else None


def find_files(path: Path) -> list[Path]:
    """`path` itself, or all files below it that can be read, in the order of sorted paths."""
    readable = "a .txt or .jsonl, plain or compressed as .gz or .zst"
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _kind(file) and file.is_file())
        if not files:
            raise TrainerError(f"corpus folder {path} holds no file that can be read: {readable}")
        return files
    if not path.exists():
        raise TrainerError(f"corpus {path} does not exist")
    if _kind(path) is None:
        raise TrainerError(f"corpus {path} is not of a kind that can be read: {readable}, or a folder of these")
    return [path]


def read_documents(path: Path, tally: Tally) -> Iterator[str]:
    """The documents of one file; what was broken in it is added to `tally`."""
    content = _read(path)
    if _kind(path) == ".txt":
        yield _decode(path, content)
        return
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        tally.lines += 1
        text, fault = _jsonl_text(line)
        if fault:
            tally.add_broken(f"{path}:{number} ({fault})")
        else:
            yield text
    tally.check()


def _decode(path: Path, content: bytes) -> str:
    if b"\0" in content:
        raise TrainerError(f"corpus {path} is not text: it holds a zero byte at offset {content.index(0)}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise TrainerError(f"corpus {path} is not UTF-8 text: byte 0x{byte:02x} at offset {error.start}") from None


def _jsonl_text(line: bytes) -> tuple[Any, str]:
    """The document of one .jsonl line, and what is wrong with the line if anything is."""
    try:
        record = json.loads(line)
    except UnicodeDecodeError:
        return "", "not UTF-8"
    except (ValueError, RecursionError):
        return "", "not JSON"
    text = record.get(TEXT_FIELD) if isinstance(record, dict) else None
    return text, text_fault(text, TEXT_FIELD)


def text_fault(text: object, field: str) -> str:
    """Why the value of a record's field is not a document; empty: it is one."""
    if not isinstance(text, str):
        return f"no string field {field!r}"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "half a surrogate pair"  # JSON can spell it, UTF-8 and the tokenizer cannot
    return ""


def _read(path: Path) -> bytes:
    """The whole content, decompressed."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(content)
        if path.suffix == ".zst":
            return _zstd(path, content)
        return content
    except EOFError:
        raise TrainerError(f"corpus {path} is cut short: its gzip stream has no end") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TrainerError(f"corpus {path} is damaged or not gzip: {error}") from None
    except OSError as error:
        raise TrainerError(f"corpus {path} cannot be read: {error.strerror or error}") from None


def _zstd(path: Path, content: bytes) -> bytes:
    """All frames of a .zst file, one after the other. The library's own readers take a torn frame for an end."""
    import zstandard

    parts: list[bytes] = []
    while content:
        frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        try:
            parts.append(frame.decompress(content))
        except zstandard.ZstdError as error:
            raise TrainerError(f"corpus {path} is damaged or not zstd: {error}") from None
        if not frame.eof:
            raise TrainerError(f"corpus {path} is cut short: its last zstd frame has no end")
        content = frame.unused_data
    return b"".join(parts)


HUB_PREFIX: Final = "hub:"
FORM: Final = "hub:NAME[@CONFIGURATION][:SPLIT[:FIELD]]"
HUB_MAX_CHARS: Final = 50_000_000
"""A corpus is held in memory whole, and a data set of the hub may be of any size."""
SPLIT: Final = "train"

_LONGEST_REASON: Final = 300  # characters of the library's own words


@dataclass(frozen=True, slots=True)
class HubName:
    """The parts of `hub:NAME[@CONFIGURATION][:SPLIT[:FIELD]]`; NAME is a data set of the hub or a local folder."""

    name: str
    configuration: str | None
    split: str
    field: str

    @property
    def title(self) -> str:
        """For reports: without the folders above a local one."""
        name = Path(self.name).resolve().name if Path(self.name).is_dir() else self.name
        return f"{name}@{self.configuration}:{self.split}" if self.configuration else f"{name}:{self.split}"


def parse_hub_name(text: str) -> HubName:
    """:raises TrainerError: not of the form `FORM`."""
    name, split, field, *more = [*text.removeprefix(HUB_PREFIX).split(":"), "", ""]
    name, _, configuration = name.partition("@")
    if not name or any(more):
        raise TrainerError(f"corpus {text} names no data set: write {FORM}")
    return HubName(name, configuration or None, split or SPLIT, field or TEXT_FIELD)


def stream_documents(wanted: HubName, tally: Tally) -> Iterator[str]:
    """The documents of a data set, in its order; records without a text are added to `tally`.

    For a local folder nothing goes over the network.

    :raises TrainerError: no library, no such data set, configuration, split or field, or it cannot be read.
    """
    library = _library()
    where = f"corpus {HUB_PREFIX}{wanted.name}"
    faults = (OSError, ValueError, RuntimeError, library.exceptions.DatasetsError, *_transport_errors())
    try:
        records = library.load_dataset(wanted.name, wanted.configuration, split=wanted.split, streaming=True)
        for number, record in enumerate(records, start=1):
            if number == 1 and wanted.field not in record:
                raise TrainerError(
                    f"{where} has no field {wanted.field!r}, but {', '.join(map(repr, record))}: write {FORM}"
                )
            tally.lines += 1
            text = record[wanted.field]
            if fault := text_fault(text, wanted.field):
                tally.add_broken(f"record {number} of {wanted.name} ({fault})")
            else:
                yield text
    except faults as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise TrainerError(f"{where} cannot be read ({FORM}): {reason or type(error).__name__}") from None


def _library() -> ModuleType:
    try:
        import datasets
    except ImportError:
        raise TrainerError(
            f"a corpus {HUB_PREFIX}... needs the library datasets: pip install 'training-profiler[hub]'"
        ) from None
    # it reports a broken file by itself, before the error that we report
    logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)
    library: Any = datasets
    library.disable_progress_bars()
    return datasets


def _transport_errors() -> list[type[Exception]]:
    """Errors of the library's HTTP client that it does not translate; the client depends on its version."""
    clients = {"httpx2": "HTTPError", "httpx": "HTTPError", "aiohttp": "ClientError"}
    return [getattr(sys.modules[name], error) for name, error in clients.items() if name in sys.modules]
