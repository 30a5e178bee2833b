"""Provides the training text, cut into samples: Python's own documentation, files, or a data set of the hub.

A corpus is held in memory whole, so that getting a sample costs next to nothing inside the measured loop.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reference_trainer.errors import TrainerError
from reference_trainer.lm.documents import (
    HUB_MAX_CHARS,
    HUB_PREFIX,
    Tally,
    find_files,
    parse_hub_name,
    read_documents,
    stream_documents,
)

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


def load_corpus(path: Path | None = None, *, hub_chars: int = HUB_MAX_CHARS) -> Corpus:
    """Read a corpus; None: the English language reference that ships inside every CPython (pydoc_data.topics).

    `path` is a .txt or a .jsonl (field `text`), either of them plain, .gz or .zst, or a folder of these, which
    is read recursively in the order of sorted paths. A broken .jsonl line is skipped and counted. Or it is the name
    of a data set, `hub:NAME[@CONFIGURATION][:SPLIT[:FIELD]]`, NAME of the Hugging Face hub or a local folder.

    :param hub_chars: of a data set, at most so many characters from its beginning; the corpus's name says so if it
        has more.
    :raises TrainerError: nothing there, no text in it, not UTF-8, damaged or cut short, or too many broken lines.
    """
    tally = Tally()
    if path is None:
        name, documents = _builtin()
    elif str(path).startswith(HUB_PREFIX):
        name, documents = _hub(str(path), hub_chars, tally)
    else:
        name = path.resolve().name
        documents = [text for file in find_files(path) for text in read_documents(file, tally) if text.strip()]
    if not documents:
        broken = f"; {tally.broken} broken lines, the first at {tally.first}" if tally.broken else ""
        raise TrainerError(f"corpus {path} holds no text{broken}")
    text = SEPARATOR.join(documents)
    return Corpus(name, text, hashlib.sha256(text.encode()).hexdigest(), len(documents), tally.broken, tally.first)


def _builtin() -> tuple[str, list[str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise TrainerError(
            "this Python has no module pydoc_data.topics, the built-in corpus; name a text with --corpus FILE"
        ) from None
    return f"python-docs-{platform.python_version()}", without_repeated_paragraphs(
        topics[key] for key in sorted(topics)
    )


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


def _hub(path: str, max_chars: int, tally: Tally) -> tuple[str, list[str]]:
    wanted = parse_hub_name(path)
    name, used = wanted.title, 0
    documents: list[str] = []
    for document in stream_documents(wanted, tally):
        if not document.strip():
            continue
        begin = used + len(SEPARATOR) if documents else 0
        used = begin + len(document)
        if used > max_chars:
            name = f"{name}, first {max_chars:,} characters"
            if begin < max_chars:
                documents.append(document[: max_chars - begin])
            break
        documents.append(document)
    tally.check()
    return name, documents


class Samples:
    """The corpus as consecutive samples of at most `sample_chars` characters, cut at white space where there is any.

    All are cut beforehand, so that the loop only indexes a list.

    :param part: the samples to keep.
    """

    def __init__(
        self, corpus: Corpus, sample_chars: int, samples_per_chunk: int = 1, part: slice = slice(0, None)
    ) -> None:
        """:raises TrainerError: a size below 1, or a text too short for one chunk."""
        if sample_chars < 1 or samples_per_chunk < 1:
            raise TrainerError(
                f"a sample needs at least 1 character and a chunk 1 sample, not {sample_chars} and {samples_per_chunk}"
            )
        self.samples_per_chunk = samples_per_chunk
        self._samples = list(_cut(corpus.text, sample_chars))[part]
        if len(self._samples) < samples_per_chunk and part == slice(0, None):
            raise TrainerError(
                f"corpus {corpus.name} is too short for one chunk: {samples_per_chunk} samples of {sample_chars} "
                f"characters need {samples_per_chunk * sample_chars} characters of text, it has {len(corpus.text)}"
            )

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> str:
        return self._samples[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    @property
    def longest(self) -> int:
        """Characters of the longest sample."""
        return max(map(len, self._samples))

    @property
    def groups(self) -> int:
        """Number of groups of `samples_per_chunk` samples; the last one may have fewer."""
        return -(-len(self._samples) // self.samples_per_chunk)

    def group(self, number: int) -> list[str]:
        """The samples of group `number`, from 0."""
        first = number * self.samples_per_chunk
        return self._samples[first : first + self.samples_per_chunk]


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
