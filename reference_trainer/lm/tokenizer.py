"""Text to token ids: a SentencePiece model, trained once on the corpus and cached by the hash of its content.

The model is a unigram one: it trains more slowly than byte-pair encoding on this much text, in the order of a
second, but encodes several times faster, and encoding is what a training loop pays for (figures: docs/log.md).
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import Corpus

SETTINGS: Final[dict[str, Any]] = {
    "model_type": "unigram",
    # The rarest characters become <unk>: whole alphabets seen once would fill a small vocabulary.
    "character_coverage": 0.9995,
    # Threads add up the likelihoods in another order and give another model: one, so that a corpus has one model.
    "num_threads": 1,
}
TRAINING_CHARS: Final = 10_000_000
"""A longer corpus is sampled: the model trains on evenly spread lines of about this many characters."""
LINE_CHARS: Final = 1_000
"""Longer lines are split: SentencePiece drops lines above 4,192 bytes, and a character has at most 4."""
HEAD_CHARS: Final = 50_000
"""This much of the corpus is encoded to measure the characters per token."""

_ERRORS_ONLY: Final = 2  # minloglevel of SentencePiece
_log: Final = logging.getLogger(__name__)


class Tokenizer:
    """A trained SentencePiece model. Any text can be encoded: what it has no piece for becomes one <unk>."""

    def __init__(self, model: bytes, head: str, file: str = "") -> None:
        """:param head: text to measure `chars_per_token` on.
        :param file: name of the user's file that holds the model; empty: the model was trained here.
        """
        from sentencepiece import SentencePieceProcessor

        self.file = file
        self._processor = SentencePieceProcessor(model_proto=model)
        self.fingerprint: str = hashlib.sha256(model).hexdigest()[:16]
        """The same for the same model: runs with different ones are not comparable."""
        self.vocab_size: int = self._processor.vocab_size()
        self.chars_per_token: float = len(head) / max(1, len(self.encode(head)))

    def encode(self, text: str) -> list[int]:
        """The token ids of one text, each in [0, vocab_size)."""
        return self._processor.encode(text)

    def encode_arrays(self, texts: Sequence[str], threads: Any = None) -> list[np.ndarray]:
        """The token ids of each text as int32: no object a token is made, which takes time and needs the GIL.

        :param threads: of `library_threads`, which share out the texts in one call; None: text by text in this thread,
            which is quicker than to hand them to a single other one.
        """
        encode = self._processor.encode
        if threads is None:
            return [encode(text, return_type="numpy") for text in texts]
        return encode(list(texts), num_threads=1, thread_pool=threads, return_type="numpy")


def train_or_load(corpus: Corpus, vocab_size: int, cache: Path | None = None) -> Tokenizer:
    """The tokenizer of a corpus: from the cache, or trained now and put there.

    :param cache: folder of the trained models; None: training-profiler/tokenizers in the user's cache folder.
    :raises TrainerError: the corpus is too small for the vocabulary, or has more characters than it can hold.
    """
    path = (cache or cache_folder()) / f"{_key(corpus, vocab_size)}.model"
    head = corpus.text[:HEAD_CHARS]
    model = _load(path)
    if model is None:
        model = _train(corpus, vocab_size)
        _store(path, model)
    return Tokenizer(model, head)


def open_tokenizer(path: Path | None, corpus: Corpus, vocab_size: int) -> Tokenizer:
    """The tokenizer in the user's file `path`; None: one of that vocabulary is trained on the corpus, or cached.

    :raises TrainerError: as `load_model` and `train_or_load` raise it.
    """
    return train_or_load(corpus, vocab_size) if path is None else load_model(path, corpus)


def load_model(path: Path, corpus: Corpus) -> Tokenizer:
    """The tokenizer in a file of the user's.

    :raises TrainerError: the file cannot be read, or is not a SentencePiece model.
    """
    try:
        model = path.read_bytes()
    except OSError as error:
        raise TrainerError(f"--tokenizer {path}: {error.strerror}") from None
    with suppress(RuntimeError):
        if model:  # the library takes no bytes for no model at all
            return Tokenizer(model, corpus.text[:HEAD_CHARS], path.name)
    raise TrainerError(
        f"--tokenizer {path}: this is not a SentencePiece model: name the file that SentencePiece wrote as PREFIX.model"
    )


def library_threads(count: int) -> Any:
    """A thread pool that divides the texts of a call of `Tokenizer.encode_arrays`; it ends with its last reference."""
    from sentencepiece import ThreadPool

    return ThreadPool(count)


def cache_folder() -> Path:
    """The folder of trained models, below $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "training-profiler" / "tokenizers"


def _key(corpus: Corpus, vocab_size: int) -> str:
    """Hash of all that the model depends on."""
    import sentencepiece

    parts = [corpus.sha256, vocab_size, SETTINGS, TRAINING_CHARS, LINE_CHARS, sentencepiece.__version__]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _load(path: Path) -> bytes | None:
    """A cached model, whose first 32 bytes are the SHA-256 of the remainder; None: missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, model = content[:32], content[32:]
    if hashlib.sha256(model).digest() == digest:
        return model
    _log.warning("cached tokenizer %s is damaged; training it again", path)
    return None


def _store(path: Path, model: bytes) -> None:
    """Write a model to the cache completely or not at all; concurrent processes write the same bytes."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".new", delete=False) as file:
            temporary = file.name
            file.write(hashlib.sha256(model).digest() + model)
        Path(temporary).replace(path)
    except OSError as error:  # a cache is a convenience: training goes on without
        _log.warning("tokenizer not cached in %s: %s", path.parent, error.strerror or error)
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _train(corpus: Corpus, vocab_size: int, settings: dict[str, Any] = SETTINGS) -> bytes:
    """Train a model; the same corpus, vocabulary and settings give the same bytes."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(_lines(corpus.text)),
            model_writer=model,
            vocab_size=vocab_size,
            minloglevel=_ERRORS_ONLY,
            **settings,
        )
    except RuntimeError as error:
        raise TrainerError(_explain(str(error), corpus, vocab_size)) from None
    return model.getvalue()


def _lines(text: str) -> list[str]:
    lines = [
        line[begin : begin + LINE_CHARS] for line in text.splitlines() for begin in range(0, len(line), LINE_CHARS)
    ]
    return lines[:: max(1, -(-len(text) // TRAINING_CHARS))]


def _explain(message: str, corpus: Corpus, vocab_size: int) -> str:
    """A message for the user in place of SentencePiece's."""
    what = f"no vocabulary of {vocab_size} tokens can be made from corpus {corpus.name}"
    if largest := re.search(r"value <= (\d+)", message):
        return f"{what}: its {len(corpus.text)} characters allow at most {largest[1]}; give more text or a smaller one"
    if characters := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return f"{what}: its letters and signs alone need at least {characters[1]} tokens"
    return f"{what}: {message}"
