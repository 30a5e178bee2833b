"""The measurement of tokenization: its ways, its rounds, its figures and its document."""

from __future__ import annotations

import argparse
import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm import tokenization
from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.tokenization import Round, Way, mean_ratio, measure, measured, run_round, summary, ways
from reference_trainer.report.diagnose_tokenization import PLUGIN
from tests.reference_trainer.processes import refusal

pytestmark = pytest.mark.usefixtures("own_cache")
OURS = ["sequential", "batch", "threaded batch", "parallel", "pre-tokenized"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenization, "LEAST_CHUNKS", 2)
    monkeypatch.setattr(tokenization, "LEAST_ROUNDS", 2)


def arguments(corpus_file: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    PLUGIN.prepare_parser(parser)
    usual = ("--corpus", str(corpus_file), "--seconds", "0.01", "--sample-chars", "200", "--workers", "2")
    return parser.parse_args([*usual, *more])


def test_all_ways_give_the_same_ids(text: ChunkedText) -> None:
    plain = Chunks(text, batch=False)
    result = {way.name: way for way in ways(text, workers=2)}
    assert list(result) == OURS
    for name, way in result.items():
        with closing(way.open()) as source:
            ids = [source.ids(index) for index in range(3)]
        assert all(item.dtype == np.int32 for item in ids), name
        assert all(np.array_equal(item, plain.ids(index)) for index, item in enumerate(ids)), name
    threads = {name for name, way in result.items() if way.threads == 2}
    assert threads == {"threaded batch", "parallel"}
    assert [name for name, way in result.items() if not way.tokenizes] == ["pre-tokenized"]


def test_one_worker_leaves_out_the_threads_of_the_library(text: ChunkedText) -> None:
    result = list(ways(text, workers=1))
    assert [way.name for way in result] == [name for name in OURS if name != "threaded batch"]
    assert {way.threads for way in result} == {1}


# ---------------------------------------------------------------- rounds

Log = list[tuple[str, int | str]]


class Recorded:
    """A source that records what is requested."""

    whole_groups = 1000

    def __init__(self, name: str, log: Log, first: int = 0) -> None:
        self._name, self._log, self._first = name, log, first

    def group(self, number: int) -> np.ndarray:
        self._log.append((self._name, number))
        return np.full(number + 3, self._first, np.int32)

    def close(self) -> None:
        self._log.append((self._name, "close"))


def way(name: str, log: Log, first: int = 0) -> Way:
    return Way(name, "none", "recorded", 1, lambda: Recorded(name, log, first))


def test_a_round_takes_the_chunks_from_first_on_and_closes_the_source() -> None:
    log: Log = []
    result = run_round(way("a", log), 4, 5, 3)
    assert log[:4] == [("a", 5), ("a", 6), ("a", 7), ("a", "close")]
    assert (result.samples, result.tokens) == (3 * 4, 8 + 9 + 10)
    assert result.seconds > 0


def test_rounds_are_interleaved_over_the_same_chunks_in_alternating_order(quick: None) -> None:
    log: Log = []
    result = measure([way("a", log), way("b", log)], 4, 1e-9)
    assert list(result) == ["a", "b"]
    assert result["a"]["ratio"]["n"] == 2
    requested = [entry for entry in log if entry[1] != "close"][-8:]
    assert requested == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("b", 3), ("a", 2), ("a", 3)]


def test_other_ids_are_reported(quick: None) -> None:
    first, log = way("a", []), []
    wrong = way("b", log, first=1)
    with pytest.raises(TrainerError, match="b and a give other ids for the first chunks"):
        measure([first, wrong], 4, 1e-9)
    assert log[-1] == ("b", "close")


def test_figures_by_hand() -> None:
    first = [Round(2.0, 2.0, 10, 100), Round(1.0, 1.0, 10, 100), Round(4.0, 4.0, 10, 100)]
    another = [Round(1.0, 2.0, 10, 100), Round(0.25, 1.0, 10, 100), Round(4.0, 4.0, 10, 100)]
    result = summary(another, first)
    assert result["samples_per_s"] == {"median": 10, "low": 2.5, "high": 40}
    assert result["tokens_per_s"]["median"] == 100
    assert (result["ms_per_sample"]["median"], result["cpu_ms_per_sample"]["median"]) == (100, 200)
    # logarithms of 2, 4, 1 are ln 2 times 1, 2, 0: mean ln 2, deviation ln 2; t of 2 degrees is 4.3027
    half = 4.302652729911275 * math.log(2) / math.sqrt(3)
    expected = {"value": 2, "low": 2 * math.exp(-half), "high": 2 * math.exp(half), "n": 3, "different": False}
    assert result["ratio"] == pytest.approx(expected)
    for ratios, different in (((2.0, 2.1), True), ((0.5, 0.51), True), ((0.9, 1.2), False)):
        assert mean_ratio(ratios)["different"] == different


# ---------------------------------------------------------------- the program


def test_the_document(corpus_file: Path, corpus: object, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the beginning of a long corpus is measured."""
    monkeypatch.setattr(tokenization, "MOST_CHARS", 30_000)
    document = measured(arguments(corpus_file, "--samples", "4", "--vocabulary", "300"))
    assert (document["schema"], document["baseline"], document["vocabulary"]) == ("tokenization/2", "sequential", 300)
    assert (document["samples_per_chunk"], document["corpus_chars"]) == (4, 30_000)
    assert document["corpus_sha256"] != corpus.sha256
    assert abs(document["sample_chars"] - 200) <= 1
    assert [way["name"] for way in document["ways"]] == OURS
    for way in document["ways"]:
        rate, each = (way["measured"][key] for key in ("samples_per_s", "ms_per_sample"))
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert 1e3 / rate["high"] == pytest.approx(each["low"])
        assert way["measured"]["ratio"]["n"] == document["rounds"]
    assert document["ways"][0]["measured"]["ratio"] == {
        "value": 1.0, "low": 1.0, "high": 1.0, "n": document["rounds"], "different": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--corpus", "missing.txt"), "corpus missing.txt does not exist"),
        (("--preset", "nope"), "unknown preset 'nope': choose one of tiny, small, gpu, base"),
        (("--vocabulary", "0"), "--vocabulary 0: must be at least 1"),
        (("--vocabulary", "100000"), "no vocabulary of 100000 tokens can be made"),
        (("--samples", "0"), "--samples 0: must be at least 1"),
        (("--samples", "100000"), "is too short for one chunk"),
        (("--sample-chars", "1"), "--sample-chars 1: 8 of them have about "),
        (("--workers", "-1"), "--workers -1: must be at least 1"),
        (("--seconds", "nan"), "--seconds nan: must be a number of seconds above 0"),
    ],
)
def test_bad_input_is_one_line(corpus_file: Path, more: tuple[str, ...], message: str) -> None:
    assert message in refusal(measured, arguments(corpus_file, *more))
