"""The Hugging Face `tokenizers` library as a source of chunks: to measure it beside ours, never to train on."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from reference_trainer.lm.chunks import ChunkedText, TokenStream
from reference_trainer.lm.tokenizer import TRAINING_CHARS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MISSING = "tokenizers is not installed: pip install tokenizers"
_UNKNOWN = "<unk>"
_SHARED_THREADS = "RAYON_NUM_THREADS"  # of a batch; the library reads it when it first makes threads


def available() -> bool:
    """Whether the library is installed; it is not imported for that."""
    return importlib.util.find_spec("tokenizers") is not None


def train(texts: Sequence[str], vocab_size: int, threads: int) -> Tokenizer:
    """A unigram model of `vocab_size` tokens of these texts, with the usual normalisation of SentencePiece.

    Threads are of the process: the first call decides.
    """
    os.environ.setdefault(_SHARED_THREADS, str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # else it prints on stderr what it decided
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    every = max(1, -(-sum(map(len, texts)) // TRAINING_CHARS))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, unk_token=_UNKNOWN, special_tokens=[_UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts[::every], trainer)
    return tokenizer


class HuggingFaceChunks(TokenStream):
    """The chunks of a text as the ids of another model."""

    def __init__(self, tokenizer: Tokenizer, text: ChunkedText, *, batch: bool) -> None:
        super().__init__(text)
        self._tokenizer = tokenizer
        self._batch = batch

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def group(self, number: int) -> np.ndarray:
        texts = self._samples.group(number)
        if self._batch:  # without the offsets of tokens in the text, which nobody needs
            pieces = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        else:
            pieces = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return np.concatenate([np.array(piece.ids, np.int32) for piece in pieces])
