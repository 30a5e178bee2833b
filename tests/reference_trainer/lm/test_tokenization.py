"""The measurement of tokenization: its ways, its rounds, its figures, its table and its JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm import huggingface, tokenization, tokenization_ways
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.tokenization import main
from reference_trainer.lm.tokenization_ways import Case, Round, Way, measure, ratio_of, run_round, summary, ways
from reference_trainer.lm.tokenizer import train_or_load
from tests.reference_trainer.processes import raising, refused

pytestmark = pytest.mark.usefixtures("own_cache")
OURS = ["sequential", "batch", "threaded batch", "parallel", "pre-tokenized"]
THEIRS = ["Hugging Face one by one", "Hugging Face batch"]


@pytest.fixture
def case(corpus_file: Path, own_cache: None) -> Case:
    corpus = load_corpus(corpus_file)
    return Case(corpus, train_or_load(corpus, 256), 400, 4, workers=2)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenization_ways, "LEAST_CHUNKS", 2)
    monkeypatch.setattr(tokenization_ways, "LEAST_ROUNDS", 2)


@pytest.fixture
def without_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "available", lambda: False)


def arguments(corpus_file: Path, *more: str) -> list[str]:
    return ["--corpus", str(corpus_file), "--seconds", "0.01", "--sample-chars", "200", "--workers", "2", *more]


# ---------------------------------------------------------------- ways


def test_all_ways_but_theirs_give_the_same_ids(case: Case) -> None:
    pytest.importorskip("tokenizers")
    expected = [case.chunks(batch=False).ids(index) for index in range(3)]
    result = {way.name: way for way in ways(case)}
    assert list(result) == [*OURS, *THEIRS]
    for name, way in result.items():
        source = way.open()
        try:
            ids = [source.ids(index) for index in range(3)]
        finally:
            source.close()
        assert all(item.dtype == np.int32 for item in ids), name
        same = all(np.array_equal(item, another) for item, another in zip(ids, expected, strict=True))
        assert same == way.same == (name in OURS), name
    assert {name: way.threads for name, way in result.items() if way.threads > 1} == {
        "threaded batch": 2,
        "parallel": 2,
        "Hugging Face batch": 2,
    }
    assert [name for name, way in result.items() if not way.tokenizes] == ["pre-tokenized"]


def test_one_worker_leaves_out_the_threads_of_the_library(case: Case, without_theirs: None) -> None:
    result = list(ways(replace(case, workers=1)))
    assert [way.name for way in result if way.open] == [name for name in OURS if name != "threaded batch"]
    assert {way.threads for way in result} == {1}


def test_their_model_has_the_same_size_and_reads_the_whole_text(case: Case) -> None:
    pytest.importorskip("tokenizers")
    texts = [text for index in range(10) for text in case.chunks(batch=True).texts(index)]
    model = huggingface.train(texts, 200, threads=2)
    assert model.get_vocab_size() == 200
    item, batch = (huggingface.HuggingFaceChunks(model, lambda index: texts, batch=how) for how in (False, True))
    ids = item.ids(0)
    assert np.array_equal(ids, batch.ids(0))
    read = model.decode(ids.tolist()).replace("\u2581", " ")
    assert "".join(read.split()) == "".join("".join(texts).split())


# ---------------------------------------------------------------- rounds


class Noted:
    """A source that notes what is asked of it."""

    def __init__(self, name: str, log: list[tuple[str, int | str]]) -> None:
        self._name = name
        self._log = log

    def ids(self, index: int) -> np.ndarray:
        self._log.append((self._name, index))
        return np.full(index + 3, index % 2, np.int32)

    def close(self) -> None:
        self._log.append((self._name, "close"))


def noted(name: str, log: list[tuple[str, int | str]]) -> Way:
    return Way(name, "none", "noted", 1, lambda: Noted(name, log))


def test_a_round_takes_the_chunks_from_first_on_and_closes_the_source(case: Case) -> None:
    log: list[tuple[str, int | str]] = []
    result = run_round(noted("a", log), case, 5, 3)
    assert log[:4] == [("a", 5), ("a", 6), ("a", 7), ("a", "close")]
    assert (result.samples, result.tokens) == (3 * case.samples_per_chunk, 8 + 9 + 10)
    assert result.seconds > 0


def test_rounds_are_interleaved_over_the_same_chunks_in_turning_order(case: Case, quick: None) -> None:
    log: list[tuple[str, int | str]] = []
    there = [noted("a", log), noted("b", log), Way("c", "none", "is not there", 1, None, "because")]
    result = measure(case, there, 1e-9)
    assert list(result) == ["a", "b"]
    assert result["a"].ratio.n == 2
    requested = [entry for entry in log if entry[1] != "close"][-8:]
    assert requested == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("b", 3), ("a", 2), ("a", 3)]


def test_other_ids_are_reported(case: Case, quick: None) -> None:
    class Wrong(Noted):
        def ids(self, index: int) -> np.ndarray:
            return super().ids(index) + 1

    first, log = noted("a", []), []
    wrong = Way("b", "none", "wrong", 1, lambda: Wrong("b", log))
    with pytest.raises(TrainerError, match="b and a give other ids for chunk 0"):
        measure(case, [first, wrong], 1e-9)
    assert log[-1] == ("b", "close")
    assert measure(case, [first, replace(wrong, same=False)], 1e-9)


def test_figures_by_hand() -> None:
    first = [Round(2.0, 2.0, 10, 100), Round(1.0, 1.0, 10, 100), Round(4.0, 4.0, 10, 100)]
    another = [Round(1.0, 2.0, 10, 100), Round(0.25, 1.0, 10, 100), Round(4.0, 4.0, 10, 100)]
    result = summary(another, first)
    assert (result.samples_per_s.median, result.samples_per_s.low, result.samples_per_s.high) == (10, 2.5, 40)
    assert result.tokens_per_s.median == 100
    assert (result.ms_per_sample.median, result.cpu_ms_per_sample.median) == (100, 200)
    # logarithms of 2, 4, 1 are ln 2 times 1, 2, 0: mean ln 2, deviation ln 2; t of 2 degrees is 4.3027
    half = 4.302652729911275 * math.log(2) / math.sqrt(3)
    assert result.ratio.value == pytest.approx(2)
    assert (result.ratio.low, result.ratio.high) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))
    assert (result.ratio.n, result.ratio.different) == (3, False)


@pytest.mark.parametrize(("ratios", "different"), [((2.0, 2.1), True), ((0.5, 0.51), True), ((0.9, 1.2), False)])
def test_different_means_that_the_interval_leaves_out_1(ratios: tuple[float, float], different: bool) -> None:
    assert ratio_of(ratios).different == different


# ---------------------------------------------------------------- the program


def test_the_json(corpus_file: Path, quick: None, without_theirs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(corpus_file, "--json", "--samples", "4", "--vocabulary", "300")) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["baseline"], document["vocabulary"]) == ("tokenization/1", "sequential", 300)
    assert document["samples_per_chunk"] == 4
    assert abs(document["sample_chars"] - 200) <= 1
    assert [way["name"] for way in document["ways"]] == [*OURS, *THEIRS]
    for number, way in enumerate(document["ways"]):
        where = f"ways.{number}.measured"
        if way["name"] in THEIRS:
            assert (way["measured"], document["not_measured"][where]) == (None, huggingface.MISSING)
            continue
        assert where not in document["not_measured"]
        rate, each = (way["measured"][key] for key in ("samples_per_s", "ms_per_sample"))
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert 1e3 / rate["high"] == pytest.approx(each["low"])
        assert way["measured"]["ratio"]["n"] == document["rounds"]
    assert document["ways"][0]["measured"]["ratio"] == {
        "value": 1.0, "low": 1.0, "high": 1.0, "n": document["rounds"], "different": False,
    }  # fmt: skip


def test_the_table(corpus_file: Path, quick: None, without_theirs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(corpus_file)) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("small.txt, 256 tokens, chunks of 8 samples of "), title
    assert head.split()[:2] == ["way", "threads"]
    assert len({len(row.rpartition("  ")[0]) for row in rows[:5]}) == 1, "columns are aligned"
    assert [row[:24].rstrip() for row in rows] == [*OURS, *THEIRS]
    assert rows[-1].endswith(f"not measured: {huggingface.MISSING}")


def test_their_rows(corpus_file: Path, quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    assert main(arguments(corpus_file, "--json")) == 0
    *_, item, batch = json.loads(capsys.readouterr().out)["ways"]
    for way in (item, batch):
        assert way["measured"]["tokens_per_s"]["median"] > way["measured"]["samples_per_s"]["median"]
        assert not way["same_ids"]


def test_of_a_long_corpus_the_beginning_is_measured(
    corpus_file: Path,
    quick: None,
    without_theirs: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tokenization, "MOST_CHARS", 30_000)
    assert main(arguments(corpus_file, "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["corpus_chars"] == 30_000
    assert document["corpus_sha256"] != load_corpus(corpus_file).sha256


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--corpus", "missing.txt"), "corpus missing.txt does not exist"),
        (("--preset", "nope"), "unknown preset 'nope': choose one of tiny, small, base"),
        (("--vocabulary", "0"), "--vocabulary 0: must be at least 1"),
        (("--vocabulary", "100000"), "no vocabulary of 100000 tokens can be made"),
        (("--samples", "0"), "--samples 0: must be at least 1"),
        (("--samples", "100000"), "is too short for one chunk"),
        (("--sample-chars", "1"), "--sample-chars 1: 8 of them have about "),
        (("--workers", "-1"), "--workers -1: must be at least 1"),
        (("--seconds", "nan"), "--seconds nan: must be a number of seconds above 0"),
    ],
)
def test_bad_input_is_one_line(
    corpus_file: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], message: str
) -> None:
    assert message in refused(main, capsys, *arguments(corpus_file, *more))


def test_ctrl_c_is_one_line(
    corpus_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tokenization, "measure", raising(KeyboardInterrupt()))
    assert main(arguments(corpus_file)) == 130
    assert capsys.readouterr() == ("", "interrupted\n")
