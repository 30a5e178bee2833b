"""Reports of fits into a file that cannot take them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from reference_trainer.errors import TrainerError
from reference_trainer.ssm.problem import GD, Job
from reference_trainer.ssm.report_log import ReportLog

JOB = Job(GD, 1, 8, 0)


def test_a_full_disk_is_one_line() -> None:
    with (
        ReportLog(Path("/dev/full"), every=1, quiet=False) as log,
        pytest.raises(TrainerError, match=r"^--log /dev/full: No space left on device$"),
    ):
        log.report([JOB], [1], {"loss": torch.ones(1)})


def test_a_line_that_is_written_in_part_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearly full disk writes a part of a line."""
    write = os.write
    path = tmp_path / "log"
    with ReportLog(path, every=1, quiet=False) as log, monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: write(file, data[:5]))
        with pytest.raises(TrainerError, match=rf"^--log {path}: No space left on device, its last line is cut off$"):
            log.report([JOB], [1], {"loss": torch.ones(1)})
    assert path.read_bytes() == b"gd-r1"
