"""Checkpoints of a run; a resumed run gives bit for bit what an uninterrupted one gives."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm import history, snapshots
from reference_trainer.lm.job import prepare
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.learning import checkpoint_folder
from reference_trainer.lm.loop import train
from reference_trainer.lm.result import NotWrittenError
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.snapshots import FILE
from tests.reference_trainer.lm.learners import AHEAD, curve, learned, learner, started
from tests.reference_trainer.processes import raising, refusal, started_until

pytestmark = pytest.mark.usefixtures("own_cache")
ENDLESS = 1_000_000


def step_of(settings: Settings) -> int:
    """The step of the checkpoint in the folder."""
    position = checkpoint_folder(prepare(replace(settings, resume=True, max_chunks=None)), settings.checkpoint)
    position.close()
    assert position.begun is not None
    return position.begun.step


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def test_a_resumed_run_equals_an_uninterrupted_one(corpus_file: Path, tmp_path: Path) -> None:
    """Past the end of the text, with other fixes, and with the checkpoint between two evaluations on held-out text."""
    settings = learner(corpus_file, max_chunks=130)
    undisturbed = learned(settings, tmp_path / "undisturbed.json")
    stopped = replace(settings, checkpoint=tmp_path / "checkpoints", checkpoint_every=20)
    train(replace(stopped, max_chunks=37))
    assert step_of(stopped) == 37, "the last step is saved whatever --checkpoint-every is"
    train(replace(stopped, max_chunks=90, resume=True, fixes=AHEAD))
    assert learned(replace(stopped, resume=True), tmp_path / "resumed.json") == undisturbed


@pytest.mark.parametrize(
    "end",
    [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)],
)
def test_a_run_that_was_ended_resumes_bit_for_bit(corpus_file: Path, tmp_path: Path, end: signal.Signals) -> None:
    settings = learner(corpus_file, max_chunks=ENDLESS, checkpoint=tmp_path / "it", checkpoint_every=5, fixes=AHEAD)
    process = started(replace(settings, metrics=tmp_path / "cut.json"))
    wait_for(tmp_path / "it" / FILE, process)
    process.send_signal(end)
    _, err = process.communicate(timeout=60)
    at = step_of(settings)
    if end == signal.SIGKILL:
        assert (process.returncode, err) == (-9, "")
    else:
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[end]
        message = (
            rf"interrupted after step (\d+); metrics in {tmp_path}/cut.json, checkpoint of step {at} in {tmp_path}/it\n"
        )
        result = re.fullmatch(message, err)
        assert result, err
        rows = curve(tmp_path / "cut.json")
        assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
        assert int(result[1]) - 1 <= len(rows) <= int(result[1]), "Ctrl-C may fall between a step and its row"

    assert 5 <= at < ENDLESS
    resumed = learned(replace(settings, resume=True, max_chunks=at + 30), tmp_path / "resumed.json")
    undisturbed = learned(learner(corpus_file, max_chunks=at + 30), tmp_path / "undisturbed.json")
    assert [row["step"] for row in resumed] == list(range(1, at + 31))
    assert resumed == undisturbed


def test_an_interrupt_names_the_checkpoint_that_there_is(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is handed to the writer, while the last one is written, and in the warm-up of a resumed run."""
    submit, end = snapshots.ThreadPoolExecutor.submit, snapshots.Snapshots._end

    def interrupted_submit(*arguments: Any) -> Any:
        submit(*arguments)
        raise KeyboardInterrupt

    def interrupted_end(self: snapshots.Snapshots) -> str:
        if self._writing is None:
            return end(self)
        self._writing = None
        raise KeyboardInterrupt

    metrics = f"metrics in {tmp_path}/it.json"
    settings = learner(corpus_file, checkpoint=tmp_path / "it", metrics=tmp_path / "it.json")
    for number, (owner, name, fake, options, message) in enumerate(
        (
            (snapshots.ThreadPoolExecutor, "submit", interrupted_submit, {"max_chunks": 20, "checkpoint_every": 5},
             f"interrupted after step 6; {metrics}, checkpoint of step 5 in {tmp_path}/it"),
            (snapshots.Snapshots, "_end", interrupted_end, {"max_chunks": 7, "resume": True},
             f"interrupted after step 7; {metrics}, checkpoint of step 7 in {tmp_path}/it"),
            (LearnChunk, "collect", raising(KeyboardInterrupt()), {"max_chunks": 9, "resume": True},
             f"interrupted in the warm-up; checkpoint of step 7 in {tmp_path}/it"),
        )
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fake)
            with pytest.raises(KeyboardInterrupt) as caught:
                train(replace(settings, **options))
        assert str(caught.value) == message
        assert step_of(settings) == (5, 7, 7)[number]
    assert len(curve(tmp_path / "it.json")) == 7, "in the warm-up the metrics are left alone"


@pytest.mark.slow
def test_killed_at_any_time_again_and_again(corpus_file: Path, tmp_path: Path) -> None:
    settings = learner(
        corpus_file, max_chunks=4000, checkpoint=tmp_path / "it", checkpoint_every=1, metrics=tmp_path / "it.json"
    )
    chance, killed, resumed_at = random.Random(0), 0, [0]
    while True:
        there = (tmp_path / "it" / FILE).exists()
        process = started(replace(settings, resume=there))
        if killed < 12:
            before = (tmp_path / "it" / FILE).stat().st_mtime_ns if there else 0
            while not (tmp_path / "it" / FILE).exists() or (tmp_path / "it" / FILE).stat().st_mtime_ns == before:
                if process.poll() is not None:
                    break
                time.sleep(0.001)
            time.sleep(0.1 * chance.random())
            process.kill()
        _, err = process.communicate(timeout=120)
        if process.returncode == 0:
            break
        assert (process.returncode, err) == (-9, "")
        killed += 1
        resumed_at.append(step_of(settings))
    print(f"killed {killed} times, resumed at steps {resumed_at}")
    assert killed >= 5, "it was over before it could be killed"
    assert resumed_at == sorted(resumed_at)
    undisturbed = learned(learner(corpus_file, max_chunks=4000), tmp_path / "undisturbed.json")
    assert curve(tmp_path / "it.json") == undisturbed


def test_checkpoints_change_nothing(corpus_file: Path, tmp_path: Path) -> None:
    settings = learner(corpus_file, max_chunks=40, fixes=AHEAD)
    often = replace(settings, checkpoint=tmp_path / "it", checkpoint_every=1)
    assert learned(often, tmp_path / "with.json") == learned(settings, tmp_path / "without.json")


def test_what_cannot_be_resumed_is_one_line(corpus_file: Path, tmp_path: Path, small_text: str) -> None:
    (tmp_path / "file").write_text("")
    for folder, message in (("file", "file: File exists"), ("file/it", "it: Not a directory")):
        assert refusal(train, learner(corpus_file, max_chunks=1, checkpoint=tmp_path / folder)).endswith(message)
    settings = learner(corpus_file, max_chunks=10, checkpoint=tmp_path / "it")
    resume = replace(settings, resume=True, max_chunks=20)
    assert refusal(train, resume) == f"--resume: there is no folder {tmp_path / 'it'}; leave --resume out to begin"
    train(settings)
    assert f"{tmp_path / 'it'} holds a checkpoint: go on with --resume" in refusal(train, settings)
    assert "--max-chunks 10: the checkpoint in" in refusal(train, replace(resume, max_chunks=10))
    (tmp_path / "other.txt").write_text(small_text[::-1])
    assert "of another optimizer (rate 0.01, not 0.5)" in refusal(train, replace(resume, lr=0.5))
    assert "of another corpus sha256" in refusal(train, replace(resume, corpus=tmp_path / "other.txt"))
    content = (tmp_path / "it" / FILE).read_bytes()
    (tmp_path / "it" / FILE).write_bytes(content[:-1])
    assert "damaged, or cut short" in refusal(train, resume)
    (tmp_path / "it" / FILE).unlink()
    assert "holds no checkpoint" in refusal(train, resume)


def test_two_runs_do_not_share_a_folder(corpus_file: Path, tmp_path: Path) -> None:
    hold = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX);"
    hold += "print('held', flush=True); sys.stdin.read()"
    (tmp_path / "it").mkdir()
    settings = learner(corpus_file, max_chunks=1, checkpoint=tmp_path / "it")
    with started_until("held", "-c", hold, tmp_path / "it" / ".lock"):
        assert "another run writes there" in refusal(train, settings)
    train(settings)


def full_once(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """The disk is full at that write; each write ends before the next step. Returns the steps that were tried."""
    write, start, tries = snapshots.write, snapshots.Snapshots._write, []

    def full(folder: Path, *remainder: Any) -> None:
        tries.append(remainder[1].step)
        if len(tries) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(folder, *remainder)

    def to_its_end(self: snapshots.Snapshots) -> None:
        start(self)
        assert self._writing is not None
        self._writing[1].exception(30)

    monkeypatch.setattr(snapshots, "write", full)
    monkeypatch.setattr(snapshots.Snapshots, "_write", to_its_end)
    return tries


@pytest.mark.parametrize(
    ("steps", "number", "fault"),
    [(60, 2, "step 20 was not written: No space left on device; that of step 10 stays"),
     (12, 1, "step 10 was not written: No space left on device; there is none before it")],
)  # fmt: skip
def test_a_full_disk_is_reported_and_the_training_continues(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, number: int, fault: str
) -> None:
    """The last checkpoint replaces the one that was not written, even where only that one meets the fault."""
    settings = learner(corpus_file, max_chunks=steps, checkpoint=tmp_path / "it", checkpoint_every=10)
    expected = learned(replace(settings, checkpoint=None, checkpoint_every=None), tmp_path / "without.json")
    tries, lines = full_once(monkeypatch, number), []
    train(replace(settings, metrics=tmp_path / "with.json"), lines.append)
    assert curve(tmp_path / "with.json") == expected
    assert tries == [*range(10, steps, 10), steps]
    [line] = [line for line in lines if "was not written" in line]
    assert line.endswith(fault)
    assert step_of(settings) == steps


def test_a_disk_that_stays_full_costs_the_checkpoint_only(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "write", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    settings = learner(corpus_file, max_chunks=20, checkpoint=tmp_path / "it", checkpoint_every=1000)
    fault = "step 20 was not written: No space left on device; there is none before it"
    with pytest.raises(NotWrittenError, match=fault) as caught:
        train(replace(settings, metrics=tmp_path / "it.json"))
    assert caught.value.summary.chunks == len(curve(tmp_path / "it.json")) == 20


def test_metrics_that_cannot_be_written_cost_no_checkpoint(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "write_output", raising(TrainerError("--metrics it.json: No space left on device")))
    settings = learner(corpus_file, max_chunks=7, checkpoint=tmp_path / "it", metrics=tmp_path / "it.json")
    with pytest.raises(NotWrittenError, match="No space left") as caught:
        train(settings)
    assert caught.value.summary.chunks == step_of(settings) == 7


def test_an_error_costs_no_metrics(corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it hidden by what is saved."""
    collect, collected = LearnChunk.collect, []

    def fail(model: LearnChunk) -> Any:
        collected.append(collect(model))
        if len(collected) == 6:
            raise ValueError("out of the blue")
        return collected[-1]

    monkeypatch.setattr(LearnChunk, "collect", fail)
    with pytest.raises(ValueError, match="out of the blue"):
        train(learner(corpus_file, max_chunks=20, metrics=tmp_path / "it.json"))
    assert [row["step"] for row in curve(tmp_path / "it.json")] == [1, 2, 3, 4]


def test_while_one_is_written_the_steps_go_on(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is held up until twenty steps later: none waits for it, and no further snapshot is taken."""
    write, steps, written, go_on = snapshots.write, [0], [], threading.Event()

    def held_up(folder: Path, *remainder: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert go_on.wait(30), "the steps wait for the writer"
        written.append(remainder[1].step)
        write(folder, *remainder)

    def count(*_: Any, **__: Any) -> None:
        steps[0] += 1
        if steps[0] == 31:
            go_on.set()

    monkeypatch.setattr(snapshots, "write", held_up)
    monkeypatch.setattr(marks, "step", count)
    settings = learner(corpus_file, max_chunks=50, checkpoint=tmp_path / "it", checkpoint_every=10)
    train(settings)
    assert written[0] == 10
    assert written[1] >= 30, f"{written}: the memory was written over while it was read"
    assert step_of(settings) == written[-1] == 50
