"""A sweep of fake jobs as a program: `sweeping.py FOLDER WORK [SETTING=VALUE ...]`; results in FOLDER/results."""

from __future__ import annotations

import ast
import sys
from functools import partial
from pathlib import Path

from reference_trainer.program import guarded
from reference_trainer.ssm.settings import Settings
from reference_trainer.ssm.sweep import sweep
from tests.reference_trainer.ssm import fake_jobs


def main(folder: Path, work: str, *arguments: str) -> int:
    values = {name: ast.literal_eval(value) for name, _, value in (item.partition("=") for item in arguments)}
    settings = Settings(results=folder / "results", device="cpu", **values)
    done = partial(getattr(fake_jobs, work), folder)
    return guarded(lambda: min(1, len(sweep(settings, progress=print, work=done).failures)))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
