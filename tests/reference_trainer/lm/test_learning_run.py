"""A run that learns: it does where as-found does not; its evaluations, its summary, and what it is compared by."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler import marks
from profiler.analyse.analysis import analyse
from profiler.analyse.comparability import SideRuns, find_mismatches
from profiler.analyse.model.comparison import Mismatch
from profiler.run.load import load
from profiler.run.model import Run
from reference_trainer.lm.__main__ import main
from reference_trainer.lm.chunks import Chunks
from reference_trainer.lm.heldout import goal_of, read_ids, split
from reference_trainer.lm.history import History
from reference_trainer.lm.job import optimizer, prepare
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.loop import train
from reference_trainer.lm.optimizer import Optimizer
from reference_trainer.lm.settings import Settings
from tests.fakes.programs import ROOT, command_line
from tests.reference_trainer.lm.learners import AHEAD, ALWAYS, HELD_OUT, NEEDED, learned, learner, options

pytestmark = pytest.mark.usefixtures("own_cache")


def held_out_and_not(settings: Settings) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The chunks of an epoch of the text that may be learned from, and those that may not."""
    training, held_out = split(prepare(settings).text)
    chunks = Chunks(training, batch=True)
    epoch = len(read_ids(training, 10**9)) // settings.tokens_per_chunk
    return [chunks.ids(index) for index in range(epoch)], list(goal_of(training, held_out, 256).held_out)


@pytest.mark.slow
def test_learning_learns_and_as_found_does_not(tmp_path: Path) -> None:
    """On the built-in corpus: as-found stays near nothing, learning passes what counts of single tokens can reach."""
    as_found = Settings(device="host", tokens_per_chunk=1000, max_chunks=24, warmup_seconds=0)
    rows = learned(as_found, tmp_path / "as-found.json")
    losses, accuracies = (np.array([row[name] for row in rows]) for name in ("loss", "accuracy"))
    assert accuracies.max() < 0.05, accuracies
    assert losses.min() > 0.95
    assert abs(losses[:12].mean() - losses[12:].mean()) < 0.01, f"the loss moves: {losses}"

    learning = learner(None, tokens_per_chunk=1000, samples_per_chunk=8, max_chunks=300)
    summary = train(learning)
    training, held_out = held_out_and_not(learning)
    counts = np.bincount(np.concatenate(training))
    judged = np.concatenate([ids[1:] for ids in held_out])
    unigram = float(np.mean(judged == counts.argmax()))
    assert summary.heldout_accuracy is not None
    assert summary.heldout_accuracy > max(1.5 * unigram, 3 * accuracies.max()), f"{summary}, unigram {unigram:.3f}"
    assert summary.heldout_loss < 0.8 * math.log(256), summary


def test_the_curve(corpus_file: Path, tmp_path: Path) -> None:
    settings = learner(corpus_file, max_chunks=45)
    rows = learned(settings, tmp_path / "it.json")
    assert [row["step"] for row in rows] == list(range(1, 46))
    looked = {1, 11, 21, 31, 41}
    assert all(set(row) == (ALWAYS | HELD_OUT if row["step"] in looked else ALWAYS) for row in rows)
    rates = [row["lr"] for row in rows]
    assert np.allclose(rates, [0.01 * step / 50 for step in range(1, 46)]), "the warm-up of the learning rate"
    assert rows[0]["heldout_loss"] == pytest.approx(rows[0]["loss"], rel=0.1), "both of the first weights"
    assert rows[40]["heldout_loss"] < rows[0]["heldout_loss"] - 0.5


def test_what_is_learned_depends_on_nothing_else(corpus_file: Path, tmp_path: Path) -> None:
    """Not on evaluations, on chunks submitted ahead, on who tokenizes, or on the warm-up."""
    settings = learner(corpus_file, max_chunks=60, evaluate_every=0)
    bare = learned(settings, tmp_path / "bare.json")
    assert {name for row in bare for name in row} == ALWAYS
    for name, another in (
        ("evaluated", replace(settings, evaluate_every=7)),
        ("ahead", replace(settings, evaluate_every=7, fixes=AHEAD)),
        ("shards", replace(settings, evaluate_every=7, fixes=(*NEEDED, "pretokenize", "learn"))),
        ("warm", replace(settings, evaluate_every=7, fixes=AHEAD, warmup_seconds=0.02)),
        ("timed", replace(settings, fixes=AHEAD, max_chunks=None, seconds=0.05)),
    ):
        rows = [{key: row[key] for key in ALWAYS} for row in learned(another, tmp_path / f"{name}.json")]
        largest = len(rows) if name == "timed" else 60
        assert rows[:60] == bare[:largest], name


def test_options_reach_the_optimizer(corpus_file: Path, tmp_path: Path) -> None:
    options = {"lr": 0.02, "warmup_steps": 4, "total_steps": 20, "weight_decay": 0.5, "clip_norm": 0.25}
    rates = [row["lr"] for row in learned(learner(corpus_file, max_chunks=25, **options), tmp_path / "it.json")]
    assert max(rates) == rates[3] == pytest.approx(0.02)
    assert rates[19:] == [pytest.approx(0.02 * 0.05)] * 6
    chosen = optimizer(learner(corpus_file, **options))
    assert (chosen.warmup, chosen.total, chosen.weight_decay, chosen.largest_norm) == (4, 20, 0.5, 0.25)
    assert optimizer(learner(corpus_file)) == Optimizer()


@pytest.mark.parametrize("fixes", [None, AHEAD])
def test_held_out_text_is_never_learned_from(
    corpus_file: Path, monkeypatch: pytest.MonkeyPatch, fixes: tuple[str, ...] | None
) -> None:
    """Over more than two epochs; and every token of the rest is, in order."""
    settings = learner(corpus_file, max_chunks=1)
    training, held_out = held_out_and_not(settings)
    settings = replace(settings, max_chunks=2 * len(training) + 5, fixes=fixes or settings.fixes)
    observed: list[bytes] = []
    judged: list[list[bytes]] = []
    submit, evaluate = LearnChunk.submit, LearnChunk.evaluate

    def spy_submit(model: LearnChunk, ids: np.ndarray, number: int) -> None:
        observed.append(ids.tobytes())
        submit(model, ids, number)

    def spy_evaluate(model: LearnChunk, chunks: Any) -> Any:
        judged.append([ids.tobytes() for ids in chunks])
        return evaluate(model, chunks)

    monkeypatch.setattr(LearnChunk, "submit", spy_submit)
    monkeypatch.setattr(LearnChunk, "evaluate", spy_evaluate)
    train(settings)
    measured = observed[1:]  # the first is the warm-up
    text, _ = split(prepare(settings).text)
    stream = np.tile(read_ids(text, 10**9), 3)
    size = settings.tokens_per_chunk
    assert measured == [
        stream[begin : begin + size + 1].tobytes() for begin in range(0, settings.max_chunks * size, size)
    ]
    assert len(judged) >= 3
    assert all(chunks == [ids.tobytes() for ids in held_out] for chunks in judged)
    assert not set(observed) & set(judged[0])


def recorded(folder: Path, settings: Settings) -> Run:
    program = [sys.executable, "-m", "reference_trainer.lm", *options(settings)]
    command = command_line("run", "--level", "standard", "--out", folder, "--", *program)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return load(folder)


@pytest.mark.slow
def test_what_a_recording_shows(corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations are in no step, their values are gauges of the next; a forward run is other work."""
    settings = learner(corpus_file, max_chunks=25, fixes=AHEAD, checkpoint=tmp_path / "it", checkpoint_every=8)
    run = recorded(tmp_path / "learning", settings)
    steps, names = run.steps[run.steps["warmup"] == 0], np.array(run.names)
    assert len(steps) == 25
    regions = {name: run.regions[names[run.regions["name"]] == name] for name in ("evaluate", "checkpoint", "backward")}
    assert len(regions["evaluate"]) == 4, "after 0, 10 and 20 steps, and at the end"
    for look in regions["evaluate"]:
        assert not np.any((steps["begin"] < look["end"]) & (steps["end"] > look["begin"])), "it is in a step"
    assert len(regions["checkpoint"]) >= 3
    assert len(regions["backward"]) > 25, "those of the warm-up too"
    gauges = run.values[names[run.values["name"]] == "heldout_loss"]
    assert gauges["step"].tolist() == steps["index"][[0, 10, 20]].tolist()

    facts = run.info.facts
    assert facts["work"] == "learning"
    assert (facts["vocabulary"], facts["uniform_loss"]) == (256, math.log(256))
    names = [model["name"] for model in facts["yardsticks"]]
    assert names == ["this model", "2-gram counts", "3-gram counts", "4-gram counts"]
    own, *counts = facts["yardsticks"]
    assert (own["tokens"], own["loss"]) == (25 * 300, facts["heldout_loss"])
    assert all(0 < model["accuracy"] < 0.8 < model["loss"] < math.log(256) for model in counts)
    assert facts["optimizer"]["rate"] == 0.01
    assert 0 < facts["heldout_loss"] < 7

    forward: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.setattr(marks, "describe", forward.update)
        train(learner(corpus_file, fixes=(), evaluate_every=None, max_chunks=1))
    learning = analyse(run)
    another = replace(learning, info=replace(run.info, facts=forward))
    [mismatch] = find_mismatches([SideRuns("", "", (item,), None) for item in (another, learning)])
    assert mismatch == Mismatch("work", "forward", "learning")


def test_the_summary_compares_with_guessing_and_with_counts(
    corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options(learner(corpus_file, max_chunks=30)), "--result", str(tmp_path / "r.json")]) == 0
    _, guessing, *lines = capsys.readouterr().out.splitlines()[-6:]
    result = json.loads((tmp_path / "r.json").read_text())
    assert guessing == "on held-out text, where guessing costs ln V = 5.545 nats:"
    models = result["yardsticks"]
    assert [line.split(" cross-entropy ")[0].strip() for line in lines] == [model["name"] for model in models]
    assert models[0]["loss"] == result["heldout_loss"]
    assert lines[1].endswith(
        f"cross-entropy {models[1]['loss']:.3f} nats, accuracy {models[1]['accuracy']:.1%}, "
        f"learned from {models[1]['tokens']:,} tokens"
    )


@pytest.mark.slow
def test_the_built_in_corpus_is_learned_nearly_as_well_as_trigrams_count_it() -> None:
    """Half as many steps as in docs/trainer.md: far below bigram counts, and 0.2 nats above trigram counts at most."""
    steps = {"max_chunks": 6000, "total_steps": 6000, "lr": 0.01, "weight_decay": 0.02}
    own, bigrams, trigrams, _ = train(learner(None, tokens_per_chunk=500, evaluate_every=0, **steps)).yardsticks
    assert own.loss < bigrams.loss - 0.3
    assert own.loss < trigrams.loss + 0.2


def test_a_model_that_went_astray_leaves_files_that_can_be_read(corpus_file: Path, tmp_path: Path) -> None:
    """A loss that is no number is null: NaN is not JSON."""
    settings = learner(corpus_file, max_chunks=30, lr=10, warmup_steps=0, clip_norm=1e30, weight_decay=9.0)
    path, result = tmp_path / "it.json", tmp_path / "r.json"
    assert main([*options(settings), "--metrics", str(path), "--result", str(result)]) == 0
    for text in (path.read_text(), result.read_text()):
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert json.loads(path.read_text())[-1]["loss"] is None
    assert json.loads(result.read_text())["loss"] is None


def test_a_restored_history_continues() -> None:
    history = History(None)
    for step in (1, 2, 3):
        history.add(step, loss=1 / step, accuracy=None, tokens_per_s=7.0, lr=0.1)
    half = History(None)
    half.restore(history.head(2))
    half.add(3, loss=1 / 3, accuracy=None, tokens_per_s=7.0, lr=0.1)
    assert half.rows() == history.rows()
    assert (half.rows()[1]["loss"], half.rows()[1]["accuracy"]) == (0.5, None)
