"""The table of long steps."""

from __future__ import annotations

from profiler.analyse.analysis import analyse
from profiler.analyse.sampling.spikes import LONG, LONG_SAVING
from profiler.report.blocks import Table
from profiler.report.model import ReportInput
from profiler.report.sections.throughput import long_steps
from tests.recorded.builders import MS, RunBuilder


def test_the_caption_tells_from_when_on_a_step_with_a_checkpoint_is_long() -> None:
    builder, now = RunBuilder(device="cpu"), 0
    for number in range(60):
        end = now + (16 if number % 10 == 4 else 10) * MS
        if number % 10 == 4:
            builder.region("checkpoint", now + 10 * MS, end)
        builder.step(now, end)
        now = end
    content = long_steps.build(ReportInput.from_results(analyse(builder.build())))
    assert content is not None
    (table,) = content.blocks
    assert isinstance(table, Table)
    assert (LONG, LONG_SAVING) == (2.0, 1.25)
    assert table.caption == "Steps of more than twice the median, or 1.25 times with a checkpoint"
    assert [column.title for column in table.columns] == [
        "Long steps", "How often", "Times as long as others", "Extra share of all time",
    ]  # fmt: skip
    assert [cell.one_line() for cell in table.rows[0]] == ["6 of 60", "every 10th", "1.60×", "5.7%"]
