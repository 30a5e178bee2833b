"""What `compare` says before it records."""

from __future__ import annotations

from profiler.commands._recording import plan_in_words
from profiler.record.pairs import Task


def test_how_often_each_program_runs_and_what_makes_that_shorter() -> None:
    kinds = (("warmup", 0), ("light", 1), ("light", 2), ("detail", 0))
    said = plan_in_words([Task("a", kind, ("x",), "f", round=number) for kind, number in kinds])
    assert said.startswith("4 recordings (1 warm-up, 2 measuring, 1 breakdown pass), each as long as its program runs")
    assert "--pairs" in said
    assert "--pairs" not in plan_in_words([Task("a", "light", ("x",), "f", round=1)])
