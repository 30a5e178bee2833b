"""Rounds that were measured before a check came to its end: they took minutes, and are kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from profiler.check.model import Round
from profiler.check.nouns import some
from profiler.check.raw import round_to_json
from profiler.core.errors import ProfilerError
from profiler.report.write import write_text

FILE: Final = "rounds.json"
"""Beside the runs, where there is no check.json."""


@contextmanager
def rounds_kept(rounds: Sequence[Round], out: Path) -> Iterator[None]:
    """Write the rounds that there are by then where what is within fails.

    :raises ProfilerError: the error within, which says where they are.
    """
    try:
        yield
    except BaseException as error:  # a fault of the tool too
        if not rounds:
            raise
        where = _written(rounds, out, error)
        if isinstance(error, ProfilerError):
            raise ProfilerError(f"{error}; {where}", error.exit_code) from error
        with suppress(OSError):  # of a terminal that is gone
            print(where, file=sys.stderr, flush=True)
        raise


def _written(rounds: Sequence[Round], out: Path, error: BaseException) -> str:
    number = f"{some(len(rounds), 'round')} measured before"
    why = str(error) or type(error).__name__
    document = {"schema": "check-rounds/1", "ended_by": why, "rounds": [round_to_json(one) for one in rounds]}
    try:
        write_text(out / FILE, json.dumps(document) + "\n")
    except ProfilerError as fault:
        return f"the {number} are lost: {fault}"
    return f"the {number} {'is' if len(rounds) == 1 else 'are'} kept in {out / FILE}"
