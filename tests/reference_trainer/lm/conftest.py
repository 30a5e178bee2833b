"""A small text to train on, and a tokenizer cache of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_trainer import jit
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.tokenizer import Tokenizer, train_or_load

CHARACTERS = 60_000


@pytest.fixture(scope="session")
def small_text() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[key] for key in sorted(topics))[:CHARACTERS]


@pytest.fixture(scope="session")
def corpus_file(small_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "small.txt"
    path.write_text(small_text, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own_cache(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizers and shards of these tests are kept apart; compiled code, which its sources name, is shared."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", jit.config.CACHE_DIR)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


@pytest.fixture
def corpus(corpus_file: Path, own_cache: None) -> Corpus:
    return load_corpus(corpus_file)


@pytest.fixture
def tokenizer(corpus: Corpus) -> Tokenizer:
    return train_or_load(corpus, 256)


@pytest.fixture
def text(corpus: Corpus, tokenizer: Tokenizer) -> ChunkedText:
    """The small text in chunks of 400 tokens."""
    return ChunkedText(corpus, tokenizer, 400, 4)
