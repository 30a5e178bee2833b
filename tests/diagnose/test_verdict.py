"""Verdicts: one sentence from the numbers, for every way in which a run or a comparison can turn out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.compare.comparison import SideRuns, compare
from profiler.analyse.model import Analysis
from profiler.run.tables import ActivityKind, CallKind
from tests.fakes.sentences import compare_verdict, method, verdict
from tests.recorded.builders import MS, RunBuilder

KERNEL = ActivityKind.KERNEL


def slow(length: int = 100 * MS, *, level: str = "standard", steps: int = 6, **facts: Any) -> Analysis:
    """Busy for the first 10%, idle after a sync for 60% of the step, then tokenizing; 50 syncs counted a step."""
    builder = RunBuilder(level=level, **{"device": "host", **facts})
    for step in range(steps):
        begin, tenth = step * length, length // 10
        builder.step(begin, begin + length, tokens=1000)
        builder.counter("syncs", 50, step=step)
        builder.counter("allocations", 4, step=step)
        builder.counter("device_busy_ns", tenth, step=step)
        if level != "light":
            builder.activity(KERNEL, begin, begin + tenth)
            builder.call(CallKind.SYNC, begin, begin + tenth + 10, blocked=tenth, site="src/train.py:88:loop")
            builder.call(CallKind.LAUNCH, begin + 7 * tenth, begin + 7 * tenth + 20, site="src/train.py:91:loop")
            builder.region("tokenize", begin + 7 * tenth + 20, begin + length)
    return analyse(builder.build())


def fast(length: int = 10 * MS, *, level: str = "standard", steps: int = 6, **facts: Any) -> Analysis:
    """Busy for 90%; one sync counted a step."""
    builder = RunBuilder(level=level, **{"device": "host", **facts})
    for step in range(steps):
        begin, tenth = step * length, length // 10
        builder.step(begin, begin + length, tokens=1000)
        builder.counter("syncs", 1, step=step)
        builder.counter("allocations", 4, step=step)
        builder.counter("device_busy_ns", 9 * tenth, step=step)
        if level != "light":
            builder.activity(KERNEL, begin, begin + 9 * tenth)
            builder.call(CallKind.SYNC, begin + 5, begin + 9 * tenth + 5, blocked=9 * tenth, site="src/fixed.py:7:loop")
            builder.call(CallKind.LAUNCH, begin + length - 5, begin + length)
    return analyse(builder.build())


def sides(make_base: Any, make_other: Any, pairs: int = 3, detail: bool = True) -> tuple[SideRuns, SideRuns]:
    found = []
    for number, (label, make) in enumerate((("as-found", make_base), ("fixed", make_other))):
        runs = tuple(
            make((100 + number + pair) * MS // (1 if make is slow else 10), level="light") for pair in range(pairs)
        )
        found.append(SideRuns(label, "", runs, make() if detail else None))
    return found[0], found[1]


def test_an_idle_device_is_explained_with_site_and_points() -> None:
    assert verdict(slow()) == (
        "The host device (CPU) was idle 90% of the time: 60 points of it after the sync at train.py:88, "
        "30 points in region tokenize."
    )


def test_several_lines_of_one_category_are_added_up() -> None:
    builder = RunBuilder(device="cuda", device_label="NVIDIA H200")
    builder.step(0, 1000)
    for begin, site in ((0, "a.py:1"), (400, "a.py:2")):
        builder.activity(KERNEL, begin, begin + 20)
        builder.call(CallKind.SYNC, begin, begin + 30, blocked=30, site=site)
        builder.call(CallKind.LAUNCH, begin + 395, begin + 400)
    text = verdict(analyse(builder.build()))
    assert text.startswith("The NVIDIA H200 was idle 96% of the time: 75 points of it in and after syncs")
    assert "(most: 36 points after the sync at a.py:" in text


def test_a_busy_device_is_said_to_be_busy() -> None:
    text = verdict(fast())
    assert text.startswith("The host device (CPU) was busy 90% of the time: the host is not what limits this run (")
    light = verdict(fast(level="light"))
    assert light == "The host device (CPU) was busy 90% of the time: the host is not what limits this run."


def test_where_the_cause_was_not_recorded_it_is_not_guessed() -> None:
    assert verdict(slow(level="light")) == (
        "The host device (CPU) was idle 90% of the time; why was not measured: "
        "recorded at level light: record again with --level standard."
    )


def test_without_a_queue_the_host_is_described() -> None:
    builder = RunBuilder(device="cpu")
    builder.step(0, 100 * MS)
    builder.region("data", 0, 60 * MS)
    text = verdict(analyse(builder.build()))
    assert text == (
        "The largest part of a step is input: 60.0 ms, 60% of it "
        "(device idle time: plain torch on the CPU has no queue of its own that could be busy or idle)."
    )
    empty = RunBuilder(level="light")
    empty.step(0, 10)
    assert "where the host's time went was not recorded" in verdict(analyse(empty.build()))


def waiting(region: str, **facts: Any) -> Analysis:
    builder = RunBuilder(device="cpu", **facts)
    builder.step(0, 100 * MS)
    builder.region(region, 0, 90 * MS)
    return analyse(builder.build())


def test_a_process_that_waits_for_its_workers() -> None:
    assert verdict(waiting("workers", engine="pool")) == (
        "The process that steps waits for its workers 90% of each step: what takes their time is in their own stacks."
    )


@pytest.mark.parametrize("facts", [{}, {"engine": "inline"}])
def test_a_wait_of_a_program_without_workers_is_for_no_workers(facts: dict[str, Any]) -> None:
    assert verdict(waiting("sync", **facts)).startswith("The largest part of a step is sync: 90.0 ms, 90% of it (")


def test_nothing_measured() -> None:
    assert verdict(analyse(RunBuilder().build())) == "Nothing was measured: no step was closed."


def test_faster_with_its_cause() -> None:
    text = compare_verdict(compare(sides(slow, fast)))
    ratio, _, rest = text.partition(" the tokens/s of as-found on the host device (CPU), ")
    assert ratio.startswith("fixed runs ")
    assert "× (95% " in ratio
    assert rest == (
        "because idle in and after syncs fell from 60% to 10% of a step (train.py:88), with syncs from 50 to 1 a step."
    )


def test_a_verdict_reads_at_a_glance() -> None:
    """One sentence of about 250 characters, with an interval, a cause with its line, and counters."""
    text = compare_verdict(compare(sides(slow, fast)))
    assert len(text) < 250, (len(text), text)
    assert text.count(". ") == 0


def test_slower_names_what_rose() -> None:
    text = compare_verdict(compare(sides(fast, slow)))
    assert text.startswith("fixed runs 0.0")
    assert "because idle in and after syncs rose from 10% to 60% of a step (train.py:88)" in text
    assert text.endswith("with syncs from 1 to 50 a step.")


def reading(count: int, length: int, points: int) -> SideRuns:
    builder = RunBuilder(device="cpu", unit="points", level="light")
    for step in range(4):
        builder.step(step * length, (step + 1) * length, tokens=points)
        builder.counter("would_sync", count, step=step)
    return SideRuns(f"reads {count}", "", (analyse(builder.build()),) * 2, None)


def test_what_is_counted_a_step_is_named_of_steps_of_one_size_only() -> None:
    text = compare_verdict(compare((reading(50, 10 * MS, 100), reading(2, MS, 100))))
    assert "the points/s of reads 50 on the CPU" in text
    assert "with reads that would sync on a GPU from 50 to 2 a step" in text
    larger = compare((reading(50, 10 * MS, 100), reading(2, MS, 500)))
    assert "would sync" not in compare_verdict(larger)
    (said,) = [sentence for sentence in method(larger) if "different sizes" in sentence]
    assert said.startswith("A step of reads 2 has 5.00× the points of a step of reads 50: figures per step")
    assert not any("different sizes" in one for one in method(compare((reading(5, MS, 100), reading(2, MS, 105)))))


def test_work_that_moved_to_other_processes_has_no_cause_in_this_one() -> None:
    def pool(*args: Any, **more: Any) -> Analysis:
        return fast(*args, **more, engine="pool", workers=2)

    def inline(*args: Any, **more: Any) -> Analysis:
        return slow(*args, **more, engine="inline", workers=1)

    (base, _), (_, other) = sides(slow, fast), sides(slow, fast)
    made = [
        replace(base, light=tuple(inline(length * MS, level="light") for length in (100, 101)), detail=inline()),
        replace(other, light=tuple(pool(length * MS, level="light") for length in (10, 11)), detail=pool()),
    ]
    assert compare_verdict(compare(made)).endswith(", with its work done by 2 workers (engine pool).")
    assert "because" in compare_verdict(compare((base, other))), "engines that nobody states are the same"


def test_the_start_that_programs_state_is_said_to_be_left_out() -> None:
    made = []
    for side, starts in zip(sides(slow, fast), ((0.25, 0.5, 0.75), (True, 5.5, 5.7)), strict=True):
        runs = [
            replace(run, info=replace(run.info, facts={**run.info.facts, "start_s": start}))
            for run, start in zip(side.light, starts, strict=True)
        ]
        made.append(replace(side, light=tuple(runs)))
    said = "The start before the first step, 500 ms of as-found and 5.60 s of fixed, is not in it."
    assert compare_verdict(compare(made)).endswith(f" a step. {said}")
    assert "start" not in compare_verdict(compare(sides(slow, fast))), "nobody states any"


def test_no_difference_is_said() -> None:
    base, _ = sides(slow, slow)
    runs = tuple(reversed(base.light))
    text = compare_verdict(compare((base, SideRuns("again", "", runs, None))))
    assert text.startswith(
        "no difference seen between again and as-found in tokens/s on the host device (CPU): 1.00× (95%"
    )


def test_one_pair_has_no_interval() -> None:
    text = compare_verdict(compare(sides(slow, fast, pairs=1, detail=False)))
    assert "× (one pair: no interval) the tokens/s of as-found" in text
    assert "because" not in text, "nothing was recorded that could be a cause"
    assert text.endswith("with busy from 10% to 90% of the time and syncs from 50 to 1 a step.")


def with_idle(length: int, idle: int, *, level: str = "standard", doing: str = "tokenize") -> Analysis:
    """A step of `length`, of which `idle` in region `doing`; the device is busy for the rest."""
    builder = RunBuilder(level=level, device="host")
    builder.step(0, length, tokens=1000)
    if level != "light":
        builder.activity(KERNEL, 0, length - idle)
        builder.region(doing, length - idle, length)
    return analyse(builder.build())


def two(before: tuple[int, int], after: tuple[int, int], *, light: tuple[int, int], pairs: int = 2, **more: Any) -> str:
    """Verdict from breakdown passes of (length, idle) and light runs of the lengths `light`, all in ms."""
    made = []
    for number, (length, idle) in enumerate((before, after)):
        runs = tuple(with_idle(light[number] * MS + pair * (1 + number), 0, level="light") for pair in range(pairs))
        made.append(SideRuns(("a", "b")[number], "", runs, with_idle(length * MS, idle * MS, **more)))
    return compare_verdict(compare(made))


INPUT = "idle while the host prepared input"


def test_a_cause_explains_half_of_the_change_or_is_none() -> None:
    assert f", because {INPUT} fell from 50% to 10% of a step." in two((100, 50), (50, 5), light=(90, 45))
    small = two((100, 50), (20, 8), light=(90, 18))  # 42 of 80 ms; then 30 of 80 ms
    assert f", because {INPUT} fell from 50% to 40% of a step." in small
    text = two((100, 38), (20, 7), light=(90, 18))
    assert f", with {INPUT} from 38% to 35% of a step." in text
    assert "because" not in text


def test_breakdown_passes_that_went_the_other_way_give_no_cause() -> None:
    text = two((50, 40), (60, 5), light=(90, 45))
    assert "because" not in text, text
    assert f", with {INPUT} from 80% to 8.3% of a step." in text


def test_seconds_of_the_breakdown_pass_are_named_as_such() -> None:
    """Where the share rose although the time fell, the share would mislead."""
    text = two((100, 60), (10, 7), light=(90, 9))
    assert f"because {INPUT} fell from 60.0 ms to 7.00 ms a step in the breakdown pass." in text


@pytest.mark.parametrize(("light", "word"), [((90, 9), "with"), ((90, 46), "with"), ((44, 90), "")])
def test_one_pair_gives_no_cause_however_fast(light: tuple[int, int], word: str) -> None:
    text = two((100, 50), (50, 5), light=light, pairs=1)
    assert (f", {word} {INPUT}" in text) if word else (INPUT not in text), text


@pytest.mark.parametrize(("light", "label"), [((60, 45), "a"), ((90, 30), "b")])
def test_a_breakdown_pass_that_was_much_slower_gives_no_cause(light: tuple[int, int], label: str) -> None:
    text = two((100, 50), (50, 5), light=light)
    assert f", with {INPUT} from 50% to 10% of a step (the breakdown pass of {label} took 1.67" in text
    assert text.endswith("the time of its light runs).")
    assert "because" not in text


def test_recording_itself_is_never_a_cause() -> None:
    text = two((100, 50), (50, 5), light=(90, 45), doing="recording")
    assert text.endswith("the tokens/s of a on the host device (CPU)."), text
    alone = verdict(with_idle(100, 50, doing="recording"))
    assert alone == "The host device (CPU) was idle 50% of the time: nothing of the program was seen to cause it."
    builder = RunBuilder(device="host")
    builder.step(0, 100)
    builder.activity(KERNEL, 0, 20)
    builder.region("recording", 20, 80)
    builder.region("tokenize", 80, 100)
    assert verdict(analyse(builder.build())).endswith("idle 80% of the time: 20 points of it in region tokenize.")


def test_what_may_be_a_wait_inside_cuda_is_not_called_python() -> None:
    builder = RunBuilder(device="cuda", device_label="NVIDIA H200")
    builder.step(0, 100 * MS)
    builder.region("forward", 0, 60 * MS)
    builder.sample("gpu.util", 100 * MS, 0.6, pid=0)
    assert verdict(analyse(builder.build())) == (
        "The largest part of a step is Python or a wait inside CUDA: 60.0 ms, 60% of it (device idle time: not "
        "measured; NVML saw a kernel run 60% of the time, but no short gaps)."
    )


def test_not_comparable_and_forced() -> None:
    base, _ = sides(slow, fast)
    other = SideRuns("fixed", "", tuple(fast(level="light", preset="small") for _ in range(3)), None)
    why = "preset: not stated against small"
    assert compare_verdict(compare((base, other))) == f"Not comparable: {why}."
    forced = compare_verdict(compare((base, other), anyway=True))
    assert forced.startswith(f"Not comparable ({why}), compared all the same: fixed runs ")


def test_nothing_measured_on_a_side() -> None:
    empty = analyse(RunBuilder(level="light", device="host").build())
    base, _ = sides(slow, fast)
    text = compare_verdict(compare((base, SideRuns("fixed", "", (empty,) * 3, None))))
    assert text == "how fast fixed is beside as-found is not known: not measured in fixed: no step was closed."


@pytest.mark.parametrize("make", [slow, fast])
def test_the_host_device_is_never_called_a_gpu(make: Any) -> None:
    for text in (verdict(make()), compare_verdict(compare(sides(make, fast)))):
        assert "GPU" not in text
        assert "host device (CPU)" in text
