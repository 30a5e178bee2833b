"""The tokenizer: any text encodes, a corpus has one model, and its cache survives damage and company."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm import tokenizer as module
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.tokenizer import Tokenizer, cache_folder, train_or_load
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
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["", " \n ", "日本語 and 😀", "a\0b", "é" * 10_000, "\x1b[0m"])
def test_any_text_encodes(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert all(0 <= number < tokenizer.vocab_size for number in ids)
    assert bool(ids) == bool(text.strip())


def test_batch_equals_one_by_one(tokenizer: Tokenizer) -> None:
    texts = [TEXT[begin : begin + 700] for begin in range(0, 7_000, 700)]
    one_by_one = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == one_by_one
    assert tokenizer.encode_batch(texts, num_threads=2) == one_by_one


def test_what_it_says_of_itself(tokenizer: Tokenizer) -> None:
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


def test_training_goes_on_without_a_cache(
    tmp_path: Path, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        trained = train_or_load(corpus_of(TEXT), VOCABULARY, tmp_path / "file" / "cache")
    assert trained.fingerprint == tokenizer.fingerprint
    assert "tokenizer not cached in" in caplog.text


def test_full_disk_leaves_no_torn_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "replace", raising(OSError(28, "No space left on device")))
    module._store(tmp_path / "a.model", b"model")
    assert list(tmp_path.iterdir()) == []


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/training-profiler/tokenizers")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/training-profiler/tokenizers")


def test_vocabulary_too_large_names_the_largest(tmp_path: Path) -> None:
    corpus = corpus_of(TEXT[:5_000])
    with pytest.raises(TrainerError, match=r"no vocabulary of 4096 tokens .* allow at most \d+;") as caught:
        train_or_load(corpus, 4096, tmp_path)
    largest = int(str(caught.value).split("at most ")[1].split(";")[0])
    assert train_or_load(corpus, largest, tmp_path).vocab_size == largest
    with pytest.raises(TrainerError, match=f"at most {largest};"):
        train_or_load(corpus, largest + 1, tmp_path)


def test_vocabulary_too_small_names_the_smallest(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"letters and signs alone need at least \d+ tokens") as caught:
        train_or_load(corpus_of(TEXT), 8, tmp_path)
    smallest = int(str(caught.value).split("at least ")[1].split()[0])
    assert train_or_load(corpus_of(TEXT), smallest, tmp_path).vocab_size == smallest


@pytest.mark.parametrize("vocabulary", [0, -1, 1])
def test_no_vocabulary_at_all_is_one_line(tmp_path: Path, vocabulary: int) -> None:
    with pytest.raises(TrainerError, match=f"no vocabulary of {vocabulary} tokens") as caught:
        train_or_load(corpus_of(TEXT), vocabulary, tmp_path)
    assert "\n" not in str(caught.value)


def test_long_lines_and_long_corpora_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = module._lines("x" * 2_500 + "\n" + "short")
    assert [len(line) for line in lines] == [1_000, 1_000, 500, 5]
    monkeypatch.setattr(module, "TRAINING_CHARS", 1_000)
    thinned = module._lines("\n".join(["0123456789"] * 1_000))
    assert 800 <= sum(map(len, thinned)) <= 1_000, sum(map(len, thinned))
