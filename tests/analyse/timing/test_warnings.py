"""The tool's doubts about a run, each with its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Missing, Topic
from profiler.core.notice import Notice
from profiler.run.model import CollectorStatus
from tests.fakes.sentences import note, warnings
from tests.recorded.builders import MS, RunBuilder, S


def notes(builder: RunBuilder) -> tuple[str, ...]:
    return warnings(analyse(builder.build()))


def stepped(lengths: Sequence[int], **options: object) -> RunBuilder:
    builder = RunBuilder(level="light", **options)  # type: ignore[arg-type]
    edge = 0
    for length in lengths:
        builder.step(edge, edge + length)
        edge += length
    return builder


def test_a_steady_run_raises_no_doubt() -> None:
    assert notes(stepped([200 * MS] * 10)) == ()


def test_few_steps_and_little_time() -> None:
    assert notes(stepped([100 * MS] * 3)) == (
        "only 3 measured steps: at least 5 are needed for a mean",
        "only 0.3 s were measured: with less than 1 s, a single interruption is visible",
    )
    assert notes(stepped([2 * S]))[0] == "only 1 measured step: at least 5 are needed for a mean"


def test_drift_and_spread() -> None:
    assert notes(stepped([200 * MS] * 3 + [220 * MS] * 3 + [250 * MS] * 3)) == (
        "steps drift: the last third takes 25% more time than the first",
    )
    found = notes(stepped([100 * MS, 300 * MS] * 6))
    assert found == ("step times spread by 52% of their mean (standard deviation)",)


def test_load_of_others_and_steal() -> None:
    builder = stepped([200 * MS] * 10, host={"cores": 4})
    for time in range(0, 2000, 100):
        builder.sample("machine.cpu_util", time * MS, 0.5, pid=0)
        builder.sample("machine.steal", time * MS, 0.05, pid=0)
        builder.sample("process.cpu", time * MS, 0.7, pid=1)
        builder.sample("process.cpu", time * MS, 0.3, pid=2)
    assert notes(builder) == (
        "other virtual machines took 5.0% of the CPU time of this one (steal)",
        "other programs used 1 of the machine's 4 cores meanwhile",
    )


def test_what_the_recording_lacks() -> None:
    lost = CollectorStatus("stacks", "ok", records=900, dropped=100)
    gone = CollectorStatus("gpu", "unavailable", "no NVIDIA driver found")
    torn = Notice("torn-record", {"file": "calls.bin", "bytes": 7})
    builder = stepped([200 * MS] * 10, collectors=(lost, gone), problems=(torn,), state="failed")
    builder.gauge("activities_dropped", 1234, step=3)
    analysis = analyse(builder.build())
    assert warnings(analysis) == (
        "the run failed: only its first part is here",
        "calls.bin: 7 bytes of an incomplete record were dropped",
        "collector stacks dropped 100 of 1,000 records",
        "the device dropped 1,234 activity records: its idle time is overstated",
    )
    assert Missing(Topic.COLLECTOR, note("no NVIDIA driver found"), "gpu") in analysis.missing


def test_what_is_as_it_should_be_is_no_doubt() -> None:
    came = CollectorStatus("hooks", "ok", "2 of 2", code="hooks-loaded", values={"python": 2, "torch": 2})
    some = CollectorStatus("stacks", "ok", records=1248, dropped=1)
    assert notes(stepped([200 * MS] * 10, collectors=(came, some))) == ()
    part = CollectorStatus("hooks", "ok", "1 of 2", code="hooks-loaded", values={"python": 2, "torch": 1})
    assert notes(stepped([200 * MS] * 10, collectors=(part,))) == (f"collector hooks: {part.reason}",)
