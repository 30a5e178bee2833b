"""Provides the training text, cut into samples: Python's own documentation, or files.

A corpus is held in memory whole, so that getting a sample costs next to nothing inside the measured loop.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reference_trainer.errors import TrainerError

SUFFIXES: Final = (".txt", ".jsonl")
COMPRESSED: Final = (".gz", ".zst")
READABLE: Final = "a .txt or .jsonl, plain or compressed as .gz or .zst"
TEXT_FIELD: Final = "text"
"""Field of a .jsonl line that holds the document, as in SlimPajama, The Pile and C4."""

BROKEN_LINES_ALLOWED: Final = 10
"""This many broken .jsonl lines are always skipped: a small file with one torn line is still usable."""
BROKEN_SHARE_ALLOWED: Final = 0.01
"""Above both limits the file is not what it seems (another field name, another format), and that is an error."""

_ZSTD_WINDOW: Final = 1 << 31  # bytes; the largest window of `zstd --long=31`, which the default refuses

SEPARATOR: Final = "\n\n"
"""Between two documents."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Text to train on."""

    name: str
    """Its name in reports: the file's or folder's, or the built-in text with its Python version."""
    text: str
    """All documents, in order, joined by SEPARATOR."""
    sha256: str
    """Digest of the text in UTF-8, hexadecimal."""
    documents: int
    skipped: int = 0
    """Broken .jsonl lines that were left out."""
    first_skipped: str = ""
    """file:line of the first of these and what is wrong with it."""


def load_corpus(path: Path | None = None) -> Corpus:
    """Read a corpus; None: the English language reference that ships inside every CPython (pydoc_data.topics).

    `path` is a .txt or a .jsonl (field `text`), either of them plain, .gz or .zst, or a folder of these, which
    is read recursively in the order of sorted paths. A broken .jsonl line is skipped and counted.

    :raises TrainerError: nothing there, no text in it, not UTF-8, damaged or cut short, or too many broken lines.
    """
    broken: list[str] = []
    if path is None:
        name, documents = _builtin()
    else:
        name = path.resolve().name
        documents, broken = _read_documents(_files(path))
    if not documents:
        lines = f"; {len(broken)} broken lines, the first at {broken[0]}" if broken else ""
        raise TrainerError(f"corpus {path} holds no text{lines}")
    text = SEPARATOR.join(documents)
    return Corpus(name, text, hashlib.sha256(text.encode()).hexdigest(), len(documents), len(broken), *broken[:1])


def _builtin() -> tuple[str, list[str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise TrainerError(
            "this Python has no module pydoc_data.topics, the built-in corpus; name a text with --corpus FILE"
        ) from None

    documents = without_repeated_paragraphs(topics[key] for key in sorted(topics))
    return f"python-docs-{platform.python_version()}", documents


_LEAST_REPEATED: Final = 80
"""Characters of a paragraph that counts as repeated: shorter ones are headings and lines of examples."""


def without_repeated_paragraphs(documents: Iterable[str]) -> list[str]:
    """The documents without the paragraphs that stand in an earlier place already.

    Topics of Python's documentation contain each other: 41% of the characters of the last twentieth of CPython 3.11's
    stood in stretches of 50 characters or more that the text before has too. Held-out text must be new.
    """
    known: set[str] = set()
    result = []
    for document in documents:
        kept = []
        for paragraph in document.split(SEPARATOR):
            if len(paragraph) < _LEAST_REPEATED or paragraph not in known:
                kept.append(paragraph)
            known.add(paragraph)
        result.append(SEPARATOR.join(kept))
    return result


# ------------------------------------------------------------ documents out of files


def _kind(path: Path) -> str | None:
    """.txt or .jsonl, below any compression; None: neither."""
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    return suffix if suffix in SUFFIXES else None


def _files(path: Path) -> list[Path]:
    """`path` itself, or all files below it that can be read, in the order of sorted paths."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _kind(file) and file.is_file())
        if not files:
            raise TrainerError(f"corpus folder {path} holds no file that can be read: {READABLE}")
        return files
    if not path.exists():
        raise TrainerError(f"corpus {path} does not exist")
    if _kind(path) is None:
        raise TrainerError(f"corpus {path} is not of a kind that can be read: {READABLE}, or a folder of these")
    return [path]


def _read_documents(files: Iterable[Path]) -> tuple[list[str], list[str]]:
    """The documents of the files, and for each broken .jsonl line file:line and what is wrong with it."""
    documents: list[str] = []
    broken: list[str] = []
    lines = 0
    for path in files:
        content = _content(path)
        if _kind(path) == ".txt":
            documents.append(_decode(path, content))
            continue
        for number, line in enumerate(content.splitlines(), start=1):
            if line.strip():
                lines += 1
                text, fault = _jsonl_text(line)
                if fault:
                    broken.append(f"{path}:{number} ({fault})")
                else:
                    documents.append(text)
        if len(broken) > max(BROKEN_LINES_ALLOWED, BROKEN_SHARE_ALLOWED * lines):
            raise TrainerError(
                f"{len(broken)} of {lines} lines are broken (at most {BROKEN_LINES_ALLOWED} or "
                f"{BROKEN_SHARE_ALLOWED:.0%} are skipped); the first is {broken[0]}"
            )
    return [text for text in documents if text.strip()], broken


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
    if not isinstance(text, str):
        return "", f"no string field {TEXT_FIELD!r}"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "", "half a surrogate pair"  # JSON can spell it, UTF-8 and the tokenizer cannot
    return text, ""


def _content(path: Path) -> bytes:
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


# ------------------------------------------------------------ samples


class Samples(list[str]):
    """The corpus as consecutive samples of at most `sample_chars` characters, cut at white space where there is any.

    All are cut beforehand, so that the loop only indexes a list.

    :param part: the samples to keep.
    """

    def __init__(
        self, corpus: Corpus, sample_chars: int, samples_per_chunk: int = 1, part: slice = slice(0, None)
    ) -> None:
        """:raises TrainerError: the text is too short for one chunk."""
        self.samples_per_chunk = samples_per_chunk
        super().__init__(list(_cut(corpus.text, sample_chars))[part])
        if len(self) < samples_per_chunk and part == slice(0, None):
            raise TrainerError(
                f"corpus {corpus.name} is too short for one chunk: {samples_per_chunk} samples of {sample_chars} "
                f"characters need {samples_per_chunk * sample_chars} characters of text, it has {len(corpus.text)}"
            )

    @property
    def longest(self) -> int:
        """Characters of the longest sample."""
        return max(map(len, self))

    @property
    def groups(self) -> int:
        """Number of groups of `samples_per_chunk` samples; the last one may have fewer."""
        return -(-len(self) // self.samples_per_chunk)

    def group(self, number: int) -> list[str]:
        """The samples of group `number`, from 0."""
        first = number * self.samples_per_chunk
        return self[first : first + self.samples_per_chunk]


def _cut(text: str, sample_chars: int) -> Iterator[str]:
    shortest = max(1, sample_chars // 2)
    begin = 0
    while begin < len(text):
        end = begin + sample_chars
        if end < len(text):
            gap = max(text.rfind(" ", begin + shortest, end), text.rfind("\n", begin + shortest, end))
            end = gap + 1 if gap >= 0 else end
        sample = text[begin:end]
        if sample.strip():  # nothing but white space has no tokens
            yield sample
        begin = end
