"""Chunks: the same ids however they are tokenized, over the end of the text too."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, Chunks
from tests.reference_trainer.lm.sources import assert_same, made_up
from tests.reference_trainer.lm.threads import all_threads, eventually

LINE = r"(Batch tokenized|Tokenized one by one) 4 samples in \d+\.\d ms \(\d+\.\d{1,2} ms per sample\)\n"


def test_ids_are_those_of_the_texts(text: ChunkedText) -> None:
    one_by_one, batch = (Chunks(text, batch=how) for how in (False, True))
    lengths = []
    for index in range(20):
        samples = text.samples.chunk(index)
        assert len(samples) == 4
        assert all(len(sample) <= text.sample_chars for sample in samples)
        assert batch.ids(index).tolist() == [token for each in samples for token in text.tokenizer.encode(each)][:401]
        lengths.append(len(batch.ids(index)) - 1)
    assert not assert_same(one_by_one, batch, range(20))
    assert 0.75 * 400 < np.mean(lengths) <= 400, "about as many tokens as requested"


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


@pytest.mark.parametrize(("largest", "expected"), [(1, [1, 2]), (3, [1, 2, 3, 4]), (9, [1, 2, 3, 4, 5])])
def test_join_cuts_a_chunk_off_at_its_largest_size(text: ChunkedText, largest: int, expected: list[int]) -> None:
    ids = replace(text, tokens_per_chunk=largest).join([np.array(piece, np.int32) for piece in ([1, 2], [], [3, 4, 5])])
    assert (ids.dtype, ids.tolist()) == (np.int32, expected)


def test_epochs_wrap(text: ChunkedText) -> None:
    chunks, epoch = Chunks(text, batch=True), text.samples.epoch_length
    assert epoch > 8
    assert np.array_equal(chunks.ids(0), chunks.ids(epoch)), "a multiple of the epoch and of a chunk's samples"
    assert not np.array_equal(chunks.ids(0), chunks.ids(1))


def test_only_verbose_prints_what_tokenization_took(text: ChunkedText, capsys: pytest.CaptureFixture[str]) -> None:
    Chunks(text, batch=True).ids(0)
    assert capsys.readouterr().out == ""
    for batch, begin in ((True, "Batch tokenized"), (False, "Tokenized one by one")):
        Chunks(text, batch=batch, verbose=True).ids(0)
        printed = capsys.readouterr().out
        assert re.fullmatch(LINE, printed), printed
        assert printed.startswith(begin)


def test_a_text_that_is_too_short(text: ChunkedText) -> None:
    with pytest.raises(TrainerError, match=r"corpus small.txt is too short for one chunk: 4 samples of \d+ characters"):
        Chunks(replace(text, tokens_per_chunk=10**6), batch=True)
    with pytest.raises(TrainerError, match="chunk 0 has 1 tokens: a prediction needs two, raise --tokens-per-chunk"):
        Chunks(made_up(" a b" * 50, text.tokenizer, 1, 1), batch=True).ids(0)
