"""Chunks: the same ids however they are tokenized, over the end of the text too."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, Chunks, Source
from reference_trainer.lm.parallel_tokenize import ParallelChunks
from tests.reference_trainer.lm.sources import Letters, assert_same, made_up
from tests.reference_trainer.lm.threads import all_threads, eventually

LINE = r"(Batch tokenized|Tokenized one by one) 4 samples in \d+\.\d ms \(\d+\.\d{1,2} ms per sample\)\n"


class Silent(Letters):
    """Finds no token in any text."""

    def encode_arrays(self, texts: list[str], threads: object = None) -> list[np.ndarray]:
        return [np.empty(0, np.int32) for _ in texts]


def test_ids_are_those_of_the_texts(text: ChunkedText) -> None:
    one_by_one, batch = (Chunks(text, batch=how) for how in (False, True))
    for number in range(20):
        samples = text.samples.group(number)
        assert len(samples) == 4
        assert all(len(sample) <= text.sample_chars for sample in samples)
        assert batch.group(number).tolist() == [token for each in samples for token in text.tokenizer.encode(each)]
    assert not assert_same(one_by_one, batch, range(20))
    sizes = [len(batch.group(number)) for number in range(batch.whole_groups)]
    assert 0.9 * 400 < np.mean(sizes) < 1.1 * 400, "a group has about as many tokens as a chunk"


@pytest.mark.parametrize("source", [Chunks, ParallelChunks])
def test_every_token_of_the_text_is_predicted_once_an_epoch(text: ChunkedText, source: Callable[..., Source]) -> None:
    """Three epochs: each chunk begins with the last token of the one before it, and the text follows itself."""
    tokens = np.concatenate([text.tokenizer.encode(sample) for sample in text.samples])
    assert "".join(text.samples) == text.corpus.text, "no character is left out"
    stream = np.tile(tokens, 4)
    options = {"batch": True} if source is Chunks else {"workers": 1}
    with closing(source(text, **options)) as chunks:
        for index in range(3 * len(tokens) // 400):
            assert chunks.ids(index).tolist() == stream[400 * index : 400 * index + 401].tolist(), f"chunk {index}"


def test_chunks_can_be_requested_in_any_order(text: ChunkedText) -> None:
    """Also beyond what was read so far, and chunks larger or smaller than a group of samples."""
    for tokens in (37, 400, 5_000):
        sized = replace(text, tokens_per_chunk=tokens)
        expected = {index: Chunks(sized, batch=True).ids(index).tolist() for index in (0, 3, 70, 1_000_003)}
        chunks = Chunks(sized, batch=True)
        for index in (70, 0, 1_000_003, 3, 70):
            assert chunks.ids(index).tolist() == expected[index]


def test_a_part_of_a_text_is_a_stream_of_its_own(text: ChunkedText) -> None:
    part = text.only(8, 21)
    tokens = [token for sample in list(text.samples)[8:21] for token in text.tokenizer.encode(sample)]
    assert Chunks(part, batch=True).ids(0).tolist() == (tokens * 2)[:401]
    last = len(tokens) // 400
    assert Chunks(part, batch=True).ids(last).tolist() == (tokens * 2)[400 * last : 400 * last + 401]


def test_threads_of_the_library_change_nothing(text: ChunkedText) -> None:
    one, two = (Chunks(text, batch=True, threads=threads) for threads in (1, 2))
    before = all_threads()
    assert_same(one, two, range(5))
    started = all_threads() - before
    assert len(started) == 3
    one.close()
    two.close()
    assert eventually(lambda: not started & all_threads())
    assert_same(one, two, [0])  # requested again, they start again


def test_only_verbose_prints_what_tokenization_took(text: ChunkedText, capsys: pytest.CaptureFixture[str]) -> None:
    Chunks(text, batch=True).ids(0)
    assert capsys.readouterr().out == ""
    for batch, begin in ((True, "Batch tokenized"), (False, "Tokenized one by one")):
        Chunks(text, batch=batch, verbose=True).group(0)
        printed = capsys.readouterr().out
        assert re.fullmatch(LINE, printed), printed
        assert printed.startswith(begin)


def test_a_text_that_is_too_short(text: ChunkedText) -> None:
    with pytest.raises(TrainerError, match=r"corpus small.txt is too short for one chunk: 4 samples of \d+ characters"):
        Chunks(replace(text, tokens_per_chunk=10**6), batch=True)
    with pytest.raises(TrainerError, match="corpus made-up has no tokens"):
        Chunks(made_up("abcd", Silent(), 1, 1), batch=True).ids(0)
