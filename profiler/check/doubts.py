"""What speaks against trusting the rounds, in plain sentences: the gate doubts itself aloud.

On clean rounds each doubt is seldom raised: those that test something do so at ODD, and what they find must matter
beside the slow-down to detect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from profiler.check import doubts_amount, doubts_machine, doubts_method, doubts_rounds
from profiler.check.evidence import Evidence, collect
from profiler.check.model import Limits, Round

_QUESTIONS: Final[tuple[Callable[[Evidence], str | None], ...]] = (
    doubts_amount.few_rounds,
    doubts_amount.lost_rounds,
    doubts_amount.few_turns,
    doubts_amount.work_said,
    doubts_amount.work_differs,
    doubts_rounds.drift,
    doubts_rounds.odd_round,
    doubts_rounds.rare,
    doubts_method.slots,
    doubts_method.positions,
    doubts_method.control,
    doubts_machine.speed,
    doubts_machine.steal,
    doubts_machine.load,
    doubts_machine.throttled,
)


def doubts(rounds: Sequence[Round], limits: Limits) -> tuple[str, ...]:
    """One sentence each; none where nothing is odd, or where there are no rounds."""
    if not rounds:
        return ()
    evidence = collect(rounds, limits)
    return tuple(said for question in _QUESTIONS if (said := question(evidence)))
