"""The file of results: read back as it was written, whatever happened to its writer; refused where it is another's."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.ssm import result_file
from reference_trainer.ssm.problem import GD, GNC, Job
from reference_trainer.ssm.result_file import ResultFile
from reference_trainer.ssm.settings import Settings
from tests.reference_trainer.ssm.fake_jobs import outcome

JOBS = [Job(method, rank, 8, seed) for method in (GD, GNC) for rank in (1, 2) for seed in range(3)]


def opened(path: Path, **changed: object) -> ResultFile:
    return ResultFile(path, Settings(**changed))


def written(path: Path) -> bytes:
    """A file with the outcomes of all jobs; what is in it."""
    file = opened(path)
    for job in JOBS:
        file.add([outcome(job)], "as-found")
    file.close()
    return path.read_bytes()


def refused(path: Path, **changed: object) -> str:
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(TrainerError) as caught:
        opened(path, **changed)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before, "refused, and yet changed"
    return str(caught.value)


def test_outcomes_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results"
    content = written(path)
    repeated = opened(path)
    assert repeated.done == {job: outcome(job) for job in JOBS}
    assert repeated.note == ""
    repeated.close()
    assert path.read_bytes() == content
    rows = [json.loads(line) for line in content.splitlines()[1:]]
    assert {row["variant"] for row in rows} == {"as-found"}


def test_losses_that_json_has_no_word_for(tmp_path: Path) -> None:
    odd = replace(
        outcome(JOBS[0]), fit=replace(outcome(JOBS[0]).fit, train_loss=math.nan, generalization_loss=math.inf)
    )
    file = opened(tmp_path / "results")
    file.add([odd], "as-found")
    file.close()
    text = (tmp_path / "results").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    repeated = opened(tmp_path / "results")
    fit = repeated.done[JOBS[0]].fit
    repeated.close()
    assert math.isnan(fit.train_loss)
    assert fit.generalization_loss == math.inf


def test_a_failed_job_is_to_be_done_again_until_it_is(tmp_path: Path) -> None:
    file = opened(tmp_path / "results")
    file.add([outcome(JOBS[0])], "as-found")
    file.fail(JOBS[:1], "no luck")
    file.fail(JOBS[1:2], "no luck", "line 1\nline 2\n")
    file.conclude({"jobs": 2})
    file.close()
    failed = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()[2:4]]
    assert [row.get("trace") for row in failed] == [None, "line 1\nline 2\n"]
    file = opened(tmp_path / "results")
    assert file.done == {}
    file.add([outcome(JOBS[1])], "fixed")
    file.close()
    file = opened(tmp_path / "results")
    assert [*file.done] == [JOBS[1]]
    file.close()


def test_a_file_that_was_cut_anywhere_is_gone_on_from(tmp_path: Path) -> None:
    """As by kill -9 in the middle of a write, at every byte."""
    path = tmp_path / "results"
    content = written(path)
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    for size in range(ends[3] + 1):
        path.write_bytes(content[:size])
        file = opened(path)
        complete = sum(end <= size for end in ends)
        at_end = size + 1 in ends  # only the end of the line is missing
        assert len(file.done) == max(0, complete - 1 + (at_end and complete > 0)), size
        torn = size not in (0, *ends) and not at_end
        assert bool(file.note) == (torn and size > ends[0]), size
        remainder = [job for job in JOBS if job not in file.done]
        file.add([outcome(job) for job in remainder], "as-found")
        file.close()
        assert path.read_bytes() == content, size


def test_zeros_that_a_power_cut_left_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "results"
    content = written(path)
    path.write_bytes(content + bytes(100))
    file = opened(path)
    assert len(file.done) == len(JOBS)
    assert file.note == f"{path}: a last line that was not finished is cut off; its jobs are done again"
    file.close()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b"",
        b"[]",
        b"null",
        b'{"method": "gd", "rank": 1, "dim": 8}',
        b'{"method": "no", "rank": 1, "dim": 8, "seed": 1, "failure": "x"}',
        b'{"method": "gd", "rank": "1", "dim": 8, "seed": 1, "failure": "x"}',
        b'{"method": "gd", "rank": 1, "dim": 8, "seed": 1, "train_loss": "much"}',
        b"\xff\xfe\xfa",
    ],
)
def test_a_damaged_line_is_refused_by_its_number(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "results"
    lines = written(path).splitlines()
    lines[3] = damage
    path.write_bytes(b"\n".join(lines) + b"\n")
    message = f"--results {path}: line 4 is damaged: remove it (its job is done again), or name another file"
    assert refused(path) == message


@pytest.mark.parametrize("field", ["train_loss", "generalization_loss", "fitted", "epochs", "guesses", "memory_bytes"])
def test_a_value_that_is_missing_or_none(tmp_path: Path, field: str) -> None:
    path = tmp_path / "results"
    lines = written(path).splitlines()
    row = json.loads(lines[2])
    lines[2] = json.dumps({**row, field: None}).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert "line 3 is damaged" in refused(path)
    del row[field]
    lines[2] = json.dumps(row).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert "line 3 is damaged" in refused(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 7}, f"its results are of --epochs {Settings().epochs}, this sweep has 7: name another file"),
        ({"sequence_length": 7}, "its results are of --sequence-length 24, this sweep has 7"),
        ({"optimizer": "sgd"}, "its results are of --optimizer adam, this sweep has sgd"),
        ({"gnc_loss": 0.5}, f"its results are of --gnc-loss {Settings().gnc_loss}, this sweep has 0.5"),
    ],
)
def test_results_of_other_settings_are_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    written(tmp_path / "results")
    assert message in refused(tmp_path / "results", **changed)


def test_a_sweep_may_grow_and_be_done_in_another_way(tmp_path: Path) -> None:
    written(tmp_path / "results")
    grown = {"num_seeds": 99, "teacher_ranks": (7,), "variant": "fixed", "engine": "inline", "report_every": 3}
    file = opened(tmp_path / "results", **grown)
    assert len(file.done) == len(JOBS)
    file.close()


@pytest.mark.parametrize("content", [b"hello\n", b"{}\n", b'{"format": "other"}\n', b"hello", b"\x00\x01" * 99])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results"
    path.write_bytes(content)
    assert refused(path) == f"--results {path}: this is no file of results, or of another version; name another"


def test_places_that_are_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"--results {tmp_path} is a folder: name a file"
    assert refused(tmp_path / "no" / "it").endswith(f"there is no folder {tmp_path / 'no'}")
    os.mkfifo(tmp_path / "pipe")
    assert "it is no plain file" in refused(tmp_path / "pipe")


def test_a_second_writer_is_refused_and_may_write_afterwards(tmp_path: Path) -> None:
    first = opened(tmp_path / "results")
    with pytest.raises(TrainerError, match="another sweep writes into it: wait until it is done, or name another file"):
        opened(tmp_path / "results")
    first.add([outcome(JOBS[0])], "as-found")
    first.close()
    second = opened(tmp_path / "results")
    assert [*second.done] == [JOBS[0]]
    second.close()


@pytest.mark.parametrize("room", [0, 1, 70, 10_000])
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """A part is written, then an error comes."""
    path, write, remaining = tmp_path / "results", os.write, [room]
    file = opened(path)
    file.add([outcome(JOBS[0])], "as-found")
    before = path.read_bytes()

    def short(number: int, data: bytes) -> int:
        part = data[: min(remaining[0], 60)]
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        remaining[0] -= len(part)
        return write(number, part)

    monkeypatch.setattr(result_file.os, "write", short)
    if room < 1000:
        message = f"--results {path}: No space left on device; what is in it is whole; make room and start again"
        with pytest.raises(TrainerError) as caught:
            file.add([outcome(job) for job in JOBS[1:3]], "as-found")
        assert str(caught.value) == message
        assert path.read_bytes() == before
    else:  # in parts, but whole
        file.add([outcome(job) for job in JOBS[1:3]], "as-found")
    monkeypatch.undo()
    file.add([outcome(JOBS[3])], "as-found")
    file.close()
    repeated = opened(path)
    assert [*repeated.done] == ([JOBS[0], JOBS[3]] if room < 1000 else JOBS[:4])
    repeated.close()


def test_an_interrupt_in_the_middle_of_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "results", os.write
    file = opened(path)
    before = path.read_bytes()

    def interrupted(number: int, data: bytes) -> int:
        write(number, data[:50])
        raise KeyboardInterrupt

    monkeypatch.setattr(result_file.os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        file.add([outcome(JOBS[0])], "as-found")
    monkeypatch.undo()
    assert path.read_bytes() == before
    file.close()


def test_no_file_at_all() -> None:
    file = ResultFile(None, Settings())
    file.add([outcome(JOBS[0])], "as-found")
    file.fail([JOBS[1]], "x")
    file.conclude({})
    file.close()
    assert [*file.done] == [JOBS[0]]
