"""What each thread was doing, as a report shows it, and the verdict that it gives where there are no steps."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import Analysis, LineCost, ThreadActivity, ThreadState
from profiler.report.blocks import Items, Table
from profiler.report.sections.lines import threads
from profiler.run.model import RunInfo, Site
from tests.fakes.sentences import verdict
from tests.report import samples

WAITING = ThreadActivity(
    pid=7,
    tid=7,
    process="rank 0",
    thread="",
    state=ThreadState.WAITING_FOR_DATA,
    share=0.62,
    low=0.55,
    high=0.69,
    samples=200,
    site=Site("/data/u/train.py", 44, "train"),
    source_line="for batch in loader:",
    calls="queue.Queue.get",
    on_cpu=0.3,
    gil=None,
    states=((ThreadState.WAITING_FOR_DATA, 0.62), (ThreadState.TORCH, 0.37), (ThreadState.IDLE, 0.01)),
)
LAUNCHER = replace(WAITING, pid=6, tid=6, process="main process", state=ThreadState.CHILD, share=1.0)


def analysis(*doings: ThreadActivity) -> Analysis:
    return Analysis(RunInfo(2, "r", "", ("x",), state="attached"), {}, {}, {}, threads=doings)


def test_a_sentence_names_the_line_its_text_and_what_else() -> None:
    section = samples.build_section(threads, analysis(WAITING))
    (items,) = (block for block in section.blocks if isinstance(block, Items))
    assert items.items[0] == (
        "rank 0 (7): waiting for data 62% of the time at …/u/train.py:44: for batch in loader: [in queue.Queue.get]; "
        "else inside torch operators 37%"
    )
    assert section.brief == (items,), "an attached run has nothing that says more"


def test_the_lines_have_their_own_shares_and_the_sentence_that_of_its_line() -> None:
    states = {ThreadState.WAITING_FOR_DATA: 4.5, ThreadState.IDLE: 1.0}
    lines = (
        LineCost(WAITING.site, "queue.Queue.get", 5.5, 0.55, 0.5, 0.6, 110, states),
        LineCost(Site("/data/u/train.py", 9, "log"), "", 1.0, 0.1, 0.06, 0.15, 20, {ThreadState.TORCH: 1.0}),
    )
    section = samples.build_section(threads, analysis(replace(WAITING, lines=lines)))
    items, table, _ = section.blocks
    assert isinstance(items, Items)
    assert "waiting for data 62% of the time, 45% at …/u/train.py:44: for batch" in items.items[0]
    assert isinstance(table, Table)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["…/u/train.py:44", "55.0", "waiting for data", "queue.Queue.get"],
        ["…/u/train.py:9", "10.0", "inside torch operators", "the line itself"],
    ]
    assert section.brief == (items, table)
    said = "rank 0 was waiting for data 62% of the time, 45% at train.py:44"
    assert said in verdict(analysis(replace(WAITING, lines=lines)))


def test_without_steps_the_verdict_is_what_the_job_was_doing() -> None:
    said = "No step was seen; rank 0 was waiting for data 62% of the time at"
    assert verdict(analysis(WAITING)).startswith(said)
    assert verdict(analysis(LAUNCHER, WAITING)).startswith(said), "a launcher waits for its ranks"
    assert "waiting for another process" in verdict(analysis(LAUNCHER))
    assert verdict(analysis()) == "Nothing was measured: no step was completed."
