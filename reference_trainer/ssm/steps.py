"""What a recorded sweep calls a step: a combination of method, rank and dimension, at the end of its last job.

Not a group: alone a job is one and with batched seeds all seeds are, and what is counted in steps of different sizes
cannot be held against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from profiler import marks
from reference_trainer.ssm.problem import Job

Combination = tuple[str, int, int]


class Steps:
    """Marks them.

    :param jobs: all that are to be done.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._left: Counter[Combination] = Counter(job[:3] for job in jobs)
        self._points: Counter[Combination] = Counter()

    def ended(self, jobs: Sequence[Job], points: int = 0) -> None:
        """Jobs of one combination are done, or given up.

        :param points: that they counted.
        """
        combination = jobs[0][:3]
        self._left[combination] -= len(jobs)
        self._points[combination] += points
        if not self._left[combination]:
            marks.step(tokens=self._points[combination])
