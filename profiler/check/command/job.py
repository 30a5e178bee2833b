"""The job of continuous integration that a check runs in: what its variables say, and how it hears of an error."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError

CI: Final = "CI"
ACTIONS: Final = "GITHUB_ACTIONS"
SUMMARY: Final = "GITHUB_STEP_SUMMARY"
_FALSE: Final = ("", "0", "false", "no", "off")


def is_true(name: str) -> bool:
    """Whether a variable of the environment is set, and not to what people mean no by."""
    return os.environ.get(name, "").strip().lower() not in _FALSE


class ToldError(ProfilerError):
    """An error that the job has heard of already."""


def told(error: ProfilerError | OSError) -> ToldError:
    """`error` as the line that ends the check with exit code 2; in a job of GitHub it is annotated and summed up too.

    Whatever code it had: 3 is that of a result, and there is none.
    """
    if isinstance(error, ToldError):
        return error
    line = " ".join((str(error) if isinstance(error, ProfilerError) else _of_system(error)).split())
    if is_true(ACTIONS):
        from profiler.check.outputs.markdown import text
        from profiler.core.terminal import plain

        with suppress(OSError):
            print(f"::error::{plain(line).replace('%', '%25')}", flush=True)
        if summary := os.environ.get(SUMMARY):
            with suppress(OSError), Path(summary).open("a", encoding="utf-8") as file:
                file.write(f"**Performance check: it could not be done.** {text(line)}\n")
    return ToldError(line)


def _of_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
