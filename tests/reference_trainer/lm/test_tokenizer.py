"""The tokenizer: any text encodes, a corpus has one model, and the cache survives damage."""

from __future__ import annotations

import hashlib
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm import tokenizer as module
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.tokenizer import Tokenizer, cache_folder, library_threads, train_or_load
from tests.reference_trainer.processes import raising

VOCABULARY = 96
TEXT = load_corpus().text[:40_000]


def corpus_of(text: str) -> Corpus:
    return Corpus("made", text, hashlib.sha256(text.encode()).hexdigest(), 1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="module")
def tokenizer(cache: Path) -> Tokenizer:
    return train_or_load(corpus_of(TEXT), VOCABULARY, cache)


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    text = "The simple form is equivalent to the other one."
    assert tokenizer._processor.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["", " \n ", "日本語 and 😀", "a\0b", "é" * 10_000, "\x1b[0m"])
def test_any_text_encodes(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert all(0 <= number < tokenizer.vocab_size for number in ids)
    assert bool(ids) == bool(text.strip())


def test_arrays_equal_lists(tokenizer: Tokenizer) -> None:
    texts = [TEXT[begin : begin + 700] for begin in range(0, 7_000, 700)]
    one_by_one = [tokenizer.encode(text) for text in texts]
    for threads in (None, library_threads(2)):
        assert [ids.tolist() for ids in tokenizer.encode_arrays(texts, threads)] == one_by_one
    assert tokenizer.vocab_size == VOCABULARY
    assert tokenizer.chars_per_token == pytest.approx(len(TEXT) / len(tokenizer.encode(TEXT)))
    assert tokenizer.chars_per_token > 1


def test_same_corpus_same_model_in_another_process(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    program = f"""
from pathlib import Path
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.tokenizer import train_or_load
print(train_or_load(load_corpus(Path("text.txt")), {VOCABULARY}, Path("cache")).fingerprint)
"""
    command, environment = [sys.executable, "-c", program], {"PYTHONPATH": str(Path(module.__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [tokenizer.fingerprint]
    assert done.stderr == "", "training is quiet"


def test_second_call_reads_the_cache(cache: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_train", raising(AssertionError("trained again")))
    assert train_or_load(corpus_of(TEXT), VOCABULARY, cache).fingerprint == tokenizer.fingerprint


def test_key_holds_all_that_the_model_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_of(TEXT)
    cases = ((corpus, VOCABULARY), (corpus, VOCABULARY + 1), (corpus_of("b"), VOCABULARY))
    keys = [module._key(text, vocabulary) for text, vocabulary in cases]
    monkeypatch.setitem(module.SETTINGS, "character_coverage", 0.5)
    keys.append(module._key(corpus, VOCABULARY))
    monkeypatch.setattr("sentencepiece.__version__", "0.0.0")
    keys.append(module._key(corpus, VOCABULARY))
    assert len(set(keys)) == len(keys), keys


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_cache_is_trained_again(
    tmp_path: Path, tokenizer: Tokenizer, cache: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    (complete,) = cache.glob("*.model")
    content = complete.read_bytes()
    flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
    path = tmp_path / complete.name
    path.write_bytes({"cut": content[:-7], "flipped": flipped, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        assert train_or_load(corpus_of(TEXT), VOCABULARY, tmp_path).fingerprint == tokenizer.fingerprint
    assert "is damaged; training it again" in caplog.text
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no temporary file stays"


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        trained = train_or_load(corpus_of(TEXT), VOCABULARY, tmp_path / "file" / "cache")
    assert trained.fingerprint == tokenizer.fingerprint
    assert "tokenizer not cached in" in caplog.text
    monkeypatch.setattr(Path, "replace", raising(OSError(28, "No space left on device")))
    module._store(tmp_path / "full" / "a.model", b"model")
    assert list((tmp_path / "full").iterdir()) == [], "a full disk leaves no torn file"


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/training-profiler/tokenizers")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/training-profiler/tokenizers")


@pytest.mark.parametrize(
    ("text", "vocabulary", "message"),
    [(TEXT[:5_000], 4096, r"allow at most (\d+);"), (TEXT, 8, r"letters and signs alone need at least (\d+) tokens")],
    ids=["too large", "too small"],
)
def test_a_vocabulary_that_is_refused_names_the_limit(tmp_path: Path, text: str, vocabulary: int, message: str) -> None:
    with pytest.raises(TrainerError, match=f"no vocabulary of {vocabulary} tokens .*{message}") as caught:
        train_or_load(corpus_of(text), vocabulary, tmp_path)
    limit = int(re.search(message, str(caught.value))[1])
    assert train_or_load(corpus_of(text), limit, tmp_path).vocab_size == limit
    with pytest.raises(TrainerError):
        train_or_load(corpus_of(text), limit + (1 if vocabulary > limit else -1), tmp_path)


@pytest.mark.parametrize("vocabulary", [0, -1, 1])
def test_no_vocabulary_at_all_is_one_line(tmp_path: Path, vocabulary: int) -> None:
    with pytest.raises(TrainerError, match=f"^no vocabulary of {vocabulary} tokens[^\n]*$"):
        train_or_load(corpus_of(TEXT), vocabulary, tmp_path)


def test_long_lines_and_long_corpora_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = module._lines("x" * 2_500 + "\n" + "short")
    assert [len(line) for line in lines] == [1_000, 1_000, 500, 5]
    monkeypatch.setattr(module, "TRAINING_CHARS", 1_000)
    thinned = module._lines("\n".join(["0123456789"] * 1_000))
    assert 800 <= sum(map(len, thinned)) <= 1_000, sum(map(len, thinned))
