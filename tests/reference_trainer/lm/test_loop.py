"""The loop: what it counts and prints, that fixes change no loss, and what it tells the profiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference_trainer.devices.host import HostDevice
from reference_trainer.errors import TrainerError
from reference_trainer.lm import job, loop
from reference_trainer.lm.chunks import Chunks
from reference_trainer.lm.loop import train
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import fixes, variant_fixes
from reference_trainer.lm.result import Summary
from reference_trainer.lm.settings import Settings
from reference_trainer.performance import PerformanceConfig
from tests.reference_trainer.processes import raising

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def settings(corpus_file: Path) -> Any:
    def make(**values: Any) -> Settings:
        small = {"device": "host", "tokens_per_chunk": 300, "samples_per_chunk": 4, "warmup_seconds": 0}
        return Settings(**{**small, "corpus": corpus_file, "max_chunks": 3, **values})

    return make


def results(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> tuple[list[tuple[int, float, float]], Summary]:
    """(tokens, loss, accuracy) of every step, warm-up included, and the summary."""
    actual: list[tuple[int, float, float]] = []
    step = loop._Loop._step

    def note(self: Any, result: Any) -> Any:
        step(self, result)
        actual.append((result.tokens, result.loss if result.loss is not None else np.nan, result.accuracy))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(loop._Loop, "_step", note)
        return actual, train(settings)


def test_the_summary_adds_up(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    loud = tuple(name for name in variant_fixes("fixed", "host") if name != "quiet-logging")
    (_, *measured), summary = results(monkeypatch, settings(fixes=loud, max_chunks=4))
    assert summary.chunks == len(measured) == 4, "the warm-up is not in it"
    tokens = [tokens for tokens, _, _ in measured]
    assert summary.tokens == sum(tokens)
    assert summary.loss == pytest.approx(np.average([loss for _, loss, _ in measured], weights=tokens))
    assert summary.loss + summary.accuracy == pytest.approx(1)
    assert summary.tokens_per_s == pytest.approx(summary.tokens / summary.seconds)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, fix in fixes().items()
        if fix.kind != "work" and fix.device in ("", "host") and name != "quiet-logging"
    ],
)
def test_no_fix_changes_a_loss(monkeypatch: pytest.MonkeyPatch, settings: Any, name: str) -> None:
    as_found, _ = results(monkeypatch, settings())
    cured, _ = results(monkeypatch, settings(fixes=(*fixes()[name].requires, name)))
    assert [tokens for tokens, _, _ in cured] == [tokens for tokens, _, _ in as_found]
    for (tokens, loss, _), (_, expected, _) in zip(cured, as_found, strict=True):
        # one prediction may be another where two logits are equal but for rounding; the device adds up in float32
        assert loss * tokens == pytest.approx(expected * tokens, abs=1.01), (cured, as_found)


def test_prefetch_changes_no_loss_over_many_chunks_and_epochs(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Sixty chunks of 900 tokens are more than the text holds: it begins again, and the state goes on."""
    chosen = {"max_chunks": 60, "tokens_per_chunk": 900}
    batched = ("batch-tokenize", "async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "zero-copy")
    without, summary = results(monkeypatch, settings(fixes=batched, **chosen))
    overlapped, _ = results(monkeypatch, settings(fixes=(*batched, "prefetch", "parallel-tokenize"), **chosen))
    assert overlapped == without
    assert summary.tokens > 30_000, "the text holds less: it was begun again"


def test_empty_kernels_have_no_loss(settings: Any) -> None:
    summary = train(settings(empty_kernels=True, max_chunks=1))
    assert (summary.loss, summary.accuracy) == (None, None)
    assert summary.tokens > 0


def test_quiet_logging_loses_no_chunk(settings: Any) -> None:
    """The mean loss over chunks that are no multiple of those read together."""
    loud = train(settings(variant="as-found", max_chunks=19))
    quiet = train(settings(variant="fixed", max_chunks=19))
    # a prediction may be another where two logits are equal but for rounding; the device adds up in float32
    assert quiet.loss * quiet.tokens == pytest.approx(loud.loss * loud.tokens, abs=1.01)


def test_the_history_of_metrics(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "metrics_history.json"
    summary = train(settings(metrics=path, max_chunks=3))
    rows = json.loads(path.read_text())
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert set(rows[0]) == {"step", "loss", "accuracy", "lr", "tokens_per_s"}
    assert rows[0]["loss"] + rows[0]["accuracy"] == pytest.approx(1)
    assert np.mean([row["loss"] for row in rows]) == pytest.approx(summary.loss, abs=1e-3)
    assert [path.name for path in tmp_path.iterdir()] == [path.name], "nothing half-written is left"


@pytest.mark.parametrize(("chunks", "read"), [(10, [10]), (16, [16]), (19, [16, 19])])
@pytest.mark.parametrize("ahead", [(), ("prefetch", "zero-copy")])
def test_with_quiet_logging_every_chunk_is_in_a_reading(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chunks: int, read: list[int], ahead: tuple[str, ...]
) -> None:
    """Metrics after the last regular reading are read in the last step: their gauges belong to it and make a row."""
    events: list[Any] = []
    monkeypatch.setattr(loop.marks, "gauge", lambda name, value: events.append((name, value)))
    monkeypatch.setattr(loop.marks, "step", lambda *, tokens, warmup: events.append(("step", tokens)))
    fixes, path = ("async", "device-loss", "quiet-logging", *ahead), tmp_path / "it.json"
    summary = train(settings(fixes=fixes, metrics=path, max_chunks=chunks))
    rows = json.loads(path.read_text())
    assert [row["step"] for row in rows] == read
    done = np.cumsum([name == "step" for name, _ in events])  # the warm-up's step among them
    losses = [(step, value) for step, (name, value) in zip(done, events, strict=True) if name == "loss" and step]
    assert losses == [(row["step"], row["loss"]) for row in rows]
    assert summary.loss is not None
    assert min(loss for _, loss in losses) - 1e-9 <= summary.loss <= max(loss for _, loss in losses) + 1e-9


@pytest.mark.parametrize("limit", [{"max_chunks": 7}, {"max_chunks": None, "seconds": 0.03}])
@pytest.mark.parametrize("warmup", [0, 0.01])
@pytest.mark.parametrize("variant", ["as-found", "fixed"])
def test_all_the_work_of_the_measured_chunks_is_measured_and_no_other(
    settings: Any, monkeypatch: pytest.MonkeyPatch, variant: str, warmup: float, limit: dict[str, Any]
) -> None:
    """Whatever is submitted ahead: each chunk is begun and ended on the same side of the warm-up's end."""
    events: list[str] = []
    submit, collect = Pipeline.submit, Pipeline.collect
    monkeypatch.setattr(Pipeline, "submit", lambda *inputs: (events.append("submit"), submit(*inputs))[1])
    monkeypatch.setattr(Pipeline, "collect", lambda *inputs: (events.append("collect"), collect(*inputs))[1])
    monkeypatch.setattr(loop.marks, "step", lambda *, tokens, warmup: events.append("warm" if warmup else "step"))
    fixes = () if variant == "as-found" else variant_fixes(variant, "host")
    summary = train(settings(fixes=fixes, warmup_seconds=warmup, **limit))
    first = len(events) - events[::-1].index("warm")
    for part, steps in ((events[:first], events.count("warm")), (events[first:], summary.chunks)):
        assert part.count("submit") == part.count("collect") == steps
    ahead = max(events[:end].count("submit") - events[:end].count("collect") for end in range(len(events)))
    assert ahead == (2 if variant == "fixed" else 1)


def test_time_limits_the_run_where_no_number_of_chunks_does(settings: Any, tmp_path: Path) -> None:
    summary = train(settings(variant="fixed", max_chunks=None, seconds=0.05))
    assert summary.seconds >= 0.05
    assert summary.chunks >= 1
    assert summary.peak_memory_bytes is None or summary.peak_memory_bytes > 1 << 20
    path = tmp_path / "it.json"
    train(settings(fixes=("async", "device-loss", "quiet-logging"), metrics=path, max_chunks=None, seconds=1e-6))
    assert [row["step"] for row in json.loads(path.read_text())] == [1], "the metrics of a run that time ends are read"


def test_progress_lines(settings: Any, tmp_path: Path, small_text: str) -> None:
    corpus = tmp_path / "some.jsonl"
    lines = [json.dumps({"text": part}) for part in (small_text[:30_000], small_text[30_000:])]
    corpus.write_text("\n".join([lines[0], "{torn", lines[1]]) + "\n")
    message: list[str] = []
    train(settings(corpus=corpus, max_chunks=1), progress=message.append)
    # there is a line of progress where a chunk takes a second
    assert [line for line in message if not line.startswith("chunk ")] == [
        f"skipped 1 broken lines of some.jsonl; the first: {corpus}:2 (not JSON)",
        "as-found on host device (CPU), preset tiny, corpus some.jsonl",
    ]


def test_the_device_is_closed_when_a_chunk_fails(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    closed, close = [], HostDevice.close
    monkeypatch.setattr(HostDevice, "close", lambda device: (closed.append(True), close(device)))
    monkeypatch.setattr(Chunks, "ids", raising(TrainerError("no more text")))
    with pytest.raises(TrainerError, match="no more text"):
        train(settings())
    assert closed == [True]


def test_facts_decide_what_a_run_is_compared_with(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    facts: dict[str, Any] = {}
    monkeypatch.setattr(loop.marks, "describe", facts.update)
    train(settings(fixes=("batch-tokenize",), max_chunks=1))
    json.dumps(facts)
    assert (facts["device"], facts["variant"], facts["step"]) == ("host", "batch-tokenize", "chunk")
    assert (facts["preset"], facts["corpus"], facts["work"]) == ("tiny", "small.txt", "forward")
    assert len(facts["corpus_sha256"]) == 64


def test_settings_of_performance_are_applied_on_a_gpu(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    facts: dict[str, Any] = {}
    applied, emptied = [], []
    device = loop.open_device

    def opened(*arguments: Any, **options: Any) -> Any:
        created = device("host", **options)
        monkeypatch.setattr(type(created), "kind", "cuda")
        return created

    monkeypatch.setattr(job, "kind_of", lambda name: ("cuda", ""))
    monkeypatch.setattr(loop, "open_device", opened)
    monkeypatch.setattr(loop, "apply", lambda *requested: applied.append(requested))
    monkeypatch.setattr(loop, "emptying", lambda *requested: lambda: emptied.append(requested))
    monkeypatch.setattr(loop.marks, "describe", facts.update)
    train(settings(fixes=("batch-tokenize",), max_chunks=2))
    assert (applied, facts["dtype"]) == ([], "float32"), "what nobody asked for leaves torch as it is"
    emptied.clear()
    config = PerformanceConfig(tf32=True, max_memory=0.5, empty_cache_frequency=1, num_devices=1)
    with pytest.raises(TrainerError, match="--tf32 is for products of whole chunks"):
        train(settings(fixes=("batch-tokenize",), max_chunks=2, performance=config))
    chunks = ("batch-tokenize", "batch-recurrence", "batch-decode")
    train(settings(fixes=chunks, max_chunks=2, performance=config))
    assert applied == [(config, "cuda")]
    assert emptied == [(config, "cuda")] * 3, "the chunk of the warm-up, and two"
    assert facts["dtype"] == "float32 with TF32 products", "other mathematics: not to be compared"
