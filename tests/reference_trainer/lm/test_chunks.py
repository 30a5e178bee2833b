"""Chunks: the same ids however they are tokenized, over the end of the text too."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import Chunks, join, sample_chars
from reference_trainer.lm.corpus import Corpus
from reference_trainer.lm.tokenizer import Tokenizer
from tests.reference_trainer.lm.threads import all_threads, eventually

LINE = re.compile(r"^(Batch tokenized|Tokenized one by one) 4 samples in \d+\.\d ms \(\d+\.\d{1,2} ms per sample\)$")


def make(corpus: Corpus, tokenizer: Tokenizer, *, batch: bool, tokens: int = 400, verbose: bool = False) -> Chunks:
    return Chunks(corpus, tokenizer, tokens, 4, batch=batch, verbose=verbose)


def test_batch_and_one_by_one_give_the_same_ids(corpus: Corpus, tokenizer: Tokenizer) -> None:
    one_by_one, batch = (make(corpus, tokenizer, batch=how) for how in (False, True))
    for index in range(5):
        ids = one_by_one.ids(index)
        assert ids.dtype == np.int32
        assert np.array_equal(ids, batch.ids(index))
        assert 2 <= len(ids) <= 401
        assert ids.min() >= 0
        assert ids.max() < 256


def test_threads_of_the_library_change_nothing(corpus: Corpus, tokenizer: Tokenizer) -> None:
    item, two = (Chunks(corpus, tokenizer, 400, 4, batch=True, threads=threads) for threads in (1, 2))
    before = all_threads()
    assert all(np.array_equal(item.ids(index), two.ids(index)) for index in range(5))
    started = all_threads() - before
    assert len(started) == 3
    item.close()
    two.close()
    assert eventually(lambda: not started & all_threads())
    assert np.array_equal(item.ids(0), two.ids(0)), "asked again, they begin again"


def test_ids_are_those_of_the_texts(corpus: Corpus, tokenizer: Tokenizer) -> None:
    chunks = make(corpus, tokenizer, batch=True)
    for index in range(5):
        texts = chunks.texts(index)
        assert len(texts) == 4
        assert all(len(text) <= chunks.chars_per_sample == sample_chars(tokenizer, 400, 4) for text in texts)
        every = [token for text in texts for token in tokenizer.encode(text)]
        assert chunks.ids(index).tolist() == every[:401]
    chunks.close()


@pytest.mark.parametrize(("largest", "expected"), [(1, [1, 2]), (3, [1, 2, 3, 4]), (9, [1, 2, 3, 4, 5])])
def test_join_cuts_off_what_is_beyond(largest: int, expected: list[int]) -> None:
    ids = join([np.array(piece, np.int32) for piece in ([1, 2], [], [3, 4, 5])], largest)
    assert ids.dtype == np.int32
    assert ids.tolist() == expected


def test_chunks_hold_about_as_many_tokens_as_asked_for(corpus: Corpus, tokenizer: Tokenizer) -> None:
    chunks = make(corpus, tokenizer, batch=True)
    lengths = [len(chunks.ids(index)) - 1 for index in range(20)]
    assert 0.75 * 400 < np.mean(lengths) <= 400, lengths


def test_epochs_wrap(corpus: Corpus, tokenizer: Tokenizer) -> None:
    chunks = make(corpus, tokenizer, batch=True)
    samples = chunks._samples.epoch_length
    assert samples > 8
    second = samples  # a multiple of the epoch and of a chunk's samples: the chunk begins with the first sample
    assert np.array_equal(chunks.ids(0), chunks.ids(second))
    assert not np.array_equal(chunks.ids(0), chunks.ids(1))


def test_only_verbose_says_what_tokenization_took(
    corpus: Corpus, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    make(corpus, tokenizer, batch=True).ids(0)
    assert capsys.readouterr().out == ""
    for batch, begin in ((True, "Batch tokenized"), (False, "Tokenized one by one")):
        make(corpus, tokenizer, batch=batch, verbose=True).ids(0)
        [line] = capsys.readouterr().out.splitlines()
        assert LINE.match(line), line
        assert line.startswith(begin)


def test_a_text_too_short_for_a_chunk(corpus: Corpus, tokenizer: Tokenizer) -> None:
    with pytest.raises(TrainerError, match=r"corpus small.txt is too short for one chunk: 4 samples of \d+ characters"):
        make(corpus, tokenizer, batch=True, tokens=10**6)


def test_a_chunk_of_one_token_predicts_nothing(tokenizer: Tokenizer) -> None:
    tiny = Corpus("tiny", " a b" * 50, "", 1)
    chunks = Chunks(tiny, tokenizer, 1, 1, batch=True)
    if len(tokenizer.encode(chunks._samples[0])) >= 2:
        pytest.skip("this tokenizer needs two tokens for the shortest sample")
    with pytest.raises(TrainerError, match="a prediction needs two, raise --tokens-per-chunk"):
        chunks.ids(0)
