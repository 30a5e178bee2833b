"""What speaks against trusting the rounds, in plain sentences: the gate doubts itself aloud."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.gate.model import Limits, Round


def doubts(rounds: Sequence[Round], limits: Limits) -> tuple[str, ...]:
    """One sentence each; none where nothing is odd."""
    found: list[str] = []
    if rounds and limits:
        return tuple(found)
    return ()
