"""The file of results: read back as it was written, whatever happened to its writer; refused where it is another's."""

from __future__ import annotations

import errno
import json
import math
import os
from contextlib import closing
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


def opened(path: Path | None, **changed: object) -> closing[ResultFile]:
    return closing(ResultFile(path, Settings(**changed)))


def add(file: ResultFile, *jobs: Job) -> None:
    file.add([outcome(job) for job in jobs], "as-found")


def done(path: Path) -> list[Job]:
    """The jobs whose outcomes are in the file."""
    with opened(path) as file:
        return [*file.done]


def written(path: Path) -> bytes:
    """A file with the outcomes of all jobs; what is in it."""
    with opened(path) as file:
        for job in JOBS:
            add(file, job)
    return path.read_bytes()


def damaged(path: Path, number: int, line: bytes) -> None:
    """A file with the outcomes of all jobs, and with this line in the place of another."""
    lines = written(path).splitlines()
    lines[number] = line
    path.write_bytes(b"\n".join(lines) + b"\n")


def refused(path: Path, **changed: object) -> str:
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(TrainerError) as caught:
        ResultFile(path, Settings(**changed))
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before, "refused, and yet changed"
    return str(caught.value)


def test_outcomes_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results"
    content = written(path)
    with opened(path) as repeated:
        assert repeated.done == {job: outcome(job) for job in JOBS}
        assert repeated.note == ""
    assert path.read_bytes() == content
    rows = [json.loads(line) for line in content.splitlines()[1:]]
    assert {row["variant"] for row in rows} == {"as-found"}


def test_losses_that_json_has_no_word_for(tmp_path: Path) -> None:
    fit = replace(outcome(JOBS[0]).fit, train_loss=math.nan, generalization_loss=math.inf)
    with opened(tmp_path / "results") as file:
        file.add([replace(outcome(JOBS[0]), fit=fit)], "as-found")
    text = (tmp_path / "results").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    with opened(tmp_path / "results") as repeated:
        fit = repeated.done[JOBS[0]].fit
    assert math.isnan(fit.train_loss)
    assert fit.generalization_loss == math.inf


def test_a_failed_job_is_to_be_done_again_until_it_is(tmp_path: Path) -> None:
    with opened(tmp_path / "results") as file:
        add(file, JOBS[0])
        file.fail(JOBS[:1], "no luck")
        file.fail(JOBS[1:2], "no luck", "line 1\nline 2\n")
        file.conclude({"jobs": 2})
    failed = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()[2:4]]
    assert [row.get("trace") for row in failed] == [None, "line 1\nline 2\n"]
    with opened(tmp_path / "results") as file:
        assert file.done == {}
        file.add([outcome(JOBS[1])], "fixed")
    assert done(tmp_path / "results") == [JOBS[1]]


def test_a_file_that_was_cut_anywhere_is_gone_on_from(tmp_path: Path) -> None:
    """As by kill -9 in the middle of a write, at every seventh byte and around the end of each line."""
    path = tmp_path / "results"
    content = written(path)
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    for size in sorted({0, *range(1, ends[3], 7), *(end + near for end in ends[:4] for near in (-2, -1, 0, 1))}):
        path.write_bytes(content[:size])
        complete = sum(end <= size for end in ends)
        with opened(path) as file:
            assert len(file.done) == max(0, complete - 1), size
            assert bool(file.note) == (size > ends[0] and size not in ends), size
            add(file, *(job for job in JOBS if job not in file.done))
        assert path.read_bytes() == content, size


def test_zeros_that_a_power_cut_left_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "results"
    content = written(path)
    path.write_bytes(content + bytes(100))
    with opened(path) as file:
        assert len(file.done) == len(JOBS)
        assert file.note == f"{path}: an unfinished last line was removed; its job is done again"
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
    damaged(path, 3, damage)
    message = f"--results {path}: line 4 is damaged: remove it (its job is done again), or name another file"
    assert refused(path) == message


@pytest.mark.parametrize("field", ["train_loss", "generalization_loss", "fitted", "epochs", "guesses", "memory_bytes"])
def test_a_value_that_is_missing_or_none(tmp_path: Path, field: str) -> None:
    path = tmp_path / "results"
    row = json.loads(written(path).splitlines()[2])
    without = {name: value for name, value in row.items() if name != field}
    for changed in ({**row, field: None}, without):
        path.unlink()
        damaged(path, 2, json.dumps(changed).encode())
        assert "line 3 is damaged" in refused(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 7}, f"it was made with --epochs {Settings().epochs} and this sweep has 7: name another file"),
        ({"sequence_length": 7}, "it was made with --sequence-length 24 and this sweep has 7"),
        ({"optimizer": "sgd"}, "it was made with --optimizer adam and this sweep has sgd"),
        ({"gnc_loss": 0.5}, f"it was made with --gnc-loss {Settings().gnc_loss} and this sweep has 0.5"),
    ],
)
def test_results_of_other_settings_are_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    written(tmp_path / "results")
    assert message in refused(tmp_path / "results", **changed)


def test_a_sweep_may_grow_and_be_done_in_another_way(tmp_path: Path) -> None:
    written(tmp_path / "results")
    grown = {"num_seeds": 99, "teacher_ranks": (7,), "variant": "fixed", "engine": "inline", "report_every": 3}
    with opened(tmp_path / "results", **grown) as file:
        assert len(file.done) == len(JOBS)


@pytest.mark.parametrize("content", [b"hello\n", b"{}\n", b'{"format": "other"}\n', b"hello", b"\x00\x01" * 99])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results"
    path.write_bytes(content)
    assert refused(path) == f"--results {path}: this is not a results file, or it has another version; name another"


def test_places_that_are_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"--results {tmp_path} is a folder: name a file"
    assert refused(tmp_path / "no" / "it").endswith(f"there is no folder {tmp_path / 'no'}")
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a regular file" in refused(tmp_path / "pipe")


def test_a_second_writer_is_refused_and_may_write_afterwards(tmp_path: Path) -> None:
    with opened(tmp_path / "results") as first:
        message = "another sweep writes into it: wait until it is done, or name another file"
        assert message in refused(tmp_path / "results")
        add(first, JOBS[0])
    assert done(tmp_path / "results") == [JOBS[0]]


@pytest.mark.parametrize("room", [0, 1, 70, 10_000])
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """A part is written, then an error comes."""
    path, write, remaining = tmp_path / "results", os.write, [room]
    file = ResultFile(path, Settings())
    add(file, JOBS[0])
    before = path.read_bytes()

    def short(number: int, data: bytes) -> int:
        part = data[: min(remaining[0], 60)]
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        remaining[0] -= len(part)
        return write(number, part)

    monkeypatch.setattr(result_file.os, "write", short)
    if room < 1000:
        message = f"--results {path}: No space left on device; its content is complete; free some space and start again"
        with pytest.raises(TrainerError) as caught:
            add(file, *JOBS[1:3])
        assert str(caught.value) == message
        assert path.read_bytes() == before
    else:  # in parts, but whole
        add(file, *JOBS[1:3])
    monkeypatch.undo()
    add(file, JOBS[3])
    file.close()
    assert done(path) == ([JOBS[0], JOBS[3]] if room < 1000 else JOBS[:4])


def test_an_interrupt_in_the_middle_of_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "results", os.write
    file = ResultFile(path, Settings())
    before = path.read_bytes()

    def interrupted(number: int, data: bytes) -> int:
        write(number, data[:50])
        raise KeyboardInterrupt

    monkeypatch.setattr(result_file.os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(file, JOBS[0])
    monkeypatch.undo()
    assert path.read_bytes() == before
    file.close()


def test_no_file_at_all() -> None:
    with opened(None) as file:
        add(file, JOBS[0])
        file.fail([JOBS[1]], "x")
        file.conclude({})
    assert [*file.done] == [JOBS[0]]
