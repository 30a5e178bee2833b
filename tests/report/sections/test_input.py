"""The input's section: which conclusion is drawn from which parts, and nothing where no input was seen."""

from __future__ import annotations

import re

import pytest

from profiler.analyse.model import RECEIVE, WAITING_FOR_INDEX, WAITING_FOR_WORKERS, Analysis, InputPart, Measure
from profiler.report.sections.breakdown import input_conclusion
from profiler.run.model import RunInfo, Site
from tests.report import samples

INLINE = " (inline)"
SITE = Site("/project/code/rows.py", 12, "Rows.__getitem__")


def analysis(*parts: tuple[str, str, float], workers: int = 0, cores: int = 8) -> Analysis:
    """A run with these parts: where, name, share."""
    info = RunInfo(2, "run", "2026-01-01T00:00:00Z", ("train.py",), host={"cores": cores})
    made = tuple(
        InputPart(
            name.removesuffix(INLINE),
            where,  # type: ignore[arg-type]
            share / 100,
            share,
            SITE if name == "dataset" else None,
            "inline" if name.endswith(INLINE) else "loader",
        )
        for where, name, share in parts
    )
    measures = {"loader_workers": Measure("loader_workers", float(workers), "1")} if workers else {}
    return Analysis(info, measures, {}, {}, input=made)


def concluded(*parts: tuple[str, str, float], **options: int) -> str:
    return input_conclusion(samples.sides(analysis(*parts, **options))[0])


IDLE, WAITS = ("worker", WAITING_FOR_INDEX, 0.6), ("main process", WAITING_FOR_WORKERS, 0.3)
TOKENIZED = ("main process", "tokenize" + INLINE, 0.2)
OUTSIDE = "Outside of any loader the training thread spends 20.0% of each step on input: tokenize."
BUSY = (
    "2 workers are busy 97.0% of the time and the training thread waits 61.0% of each step: the input is what limits. "
    "Most of their time goes to dataset (…/code/rows.py:12). "
)
LIMITED = (
    ("worker", "dataset", 0.9), ("worker", WAITING_FOR_INDEX, 0.03), ("main process", WAITING_FOR_WORKERS, 0.61)
)  # fmt: skip
RECEIVING = (IDLE, ("main process", WAITING_FOR_WORKERS, 0.02), ("main process", RECEIVE, 0.2))


@pytest.mark.parametrize(
    ("parts", "options", "text"),
    [
        (LIMITED, {"workers": 2}, f"{BUSY}The machine has 8 cores: more workers can help."),
        (LIMITED, {"workers": 2, "cores": 2}, "… more workers would compete for them."),
        (
            (("worker", WAITING_FOR_INDEX, 0.8), ("worker", "dataset", 0.2)),
            {"workers": 4},
            "4 workers wait 80.0% of the time for work: the input keeps up.",
        ),
        ((("worker", WAITING_FOR_INDEX, 0.8),), {"workers": 1}, "The worker waits 80.0% …"),
        (
            RECEIVING,
            {},
            (
                "Receiving batches from workers takes 20.0% of each step, waiting for them 2.0%: fewer and larger "
                "tensors in a batch are received faster."
            ),
        ),
        ((IDLE, WAITS, ("main process", RECEIVE, 0.2)), {}, "Receiving …"),  # idle workers are not what is waited for
        ((IDLE, WAITS), {}, "… waits 30.0% of each step although workers wait 60.0% …"),
        (
            (("main process", "dataset", 0.4),),
            {},
            "… makes its batches itself, which takes 40.0% of each step, most of it dataset …",
        ),
        ((("main process", "dataset", 0.02),), {}, "… little to gain …"),
        ((TOKENIZED,), {}, OUTSIDE),
        ((("worker", WAITING_FOR_INDEX, 0.9), TOKENIZED), {}, f"… {OUTSIDE}"),
        # the first part is not the largest
        (
            (("main process", "dataset" + INLINE, 0.05), TOKENIZED),
            {},
            "… spends 25.0% of each step on input: mostly tokenize.",
        ),
    ],
)
def test_conclusion(parts: tuple[tuple[str, str, float], ...], options: dict[str, int], text: str) -> None:
    """An ellipsis stands for any text."""
    pattern = re.escape(text).replace("…\\ ", ".*").replace("\\ …", ".*")
    assert re.fullmatch(pattern, concluded(*parts, **options)), concluded(*parts, **options)
