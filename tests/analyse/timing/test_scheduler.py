"""The clocks of the scheduler on made-up runs: on a core, without one, blocked, throttled; and the ledger of steps."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.intervals import union
from profiler.analyse.model.ledger import Period
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.sampling.attribute import host_time
from profiler.analyse.sampling.blocked import BlockedCalls, BlockedRows, divide_waits
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.timing.breakdown import Strip, take_core
from profiler.analyse.timing.host_timeline import CODE
from profiler.analyse.timing.scheduler import other_threads, step_delays, thread_time
from profiler.analyse.window import measured_window
from profiler.core.machine import Throttling
from profiler.core.metrics import THREAD_NAME, BlockedIn
from profiler.diagnose.findings import find
from profiler.diagnose.rule import StepCosts
from profiler.report.finding_text import finding_text
from profiler.run.tables import NOT_READ, CallKind
from tests.analyse.sampling.test_frames import LOADER
from tests.recorded.builders import MS, PID, TID, RunBuilder

US = MS // 1000
STEP = 10 * MS

LINE = ("t.py:3:main",)


def program(*, delay: float = 0.0, cpu: float = 1.0, steps: int = 100, active: int = 1, **facts: object) -> RunBuilder:
    """Steps of 10 ms at one line; `cpu` of them on a core, `delay` without one."""
    builder = RunBuilder(device="cpu", openmp="gnu", **facts)
    builder.boundary(0)
    builder.steps(steps, STEP)
    for number in range(steps + 1):
        builder.thread_clocks(number * STEP, round(number * cpu * STEP), round(number * delay * STEP))
    for number in range(steps):
        builder.stack(LINE, number * STEP, (number + 1) * STEP, active=active)
        builder.holder(LINE, number * STEP, (number + 1) * STEP)
    builder.gil_window(0, steps * STEP)
    return builder


def shares_of(builder: RunBuilder) -> dict[str, float]:
    parts = {name: measure.value or 0.0 for name, measure in analyse(builder.build()).breakdown.items()}
    return {name: round(100 * value / sum(parts.values()), 6) for name, value in parts.items() if value}


def test_the_time_of_a_thread_is_on_a_core_without_one_or_blocked() -> None:
    run = program(cpu=0.5, delay=0.3).build()
    divided = thread_time(run, PID, TID, union([0, 50 * STEP], [20 * STEP, 60 * STEP]))
    assert divided is not None
    assert (divided.wall, divided.on_core, divided.runnable, divided.blocked) == pytest.approx(
        [each * STEP for each in (30, 15, 9, 6)]
    )


def test_what_a_hypervisor_takes_from_a_running_thread_is_time_without_a_core_and_no_wait() -> None:
    def divided(**parts: float) -> tuple[float, float, float]:
        builder = program(**parts)
        for number in range(0, 101, 10):  # the machine ran for 80% of the time, and a quarter of that was stolen
            builder.sample("machine.cpu_util", number * STEP, 0.8)
            builder.sample("machine.steal", number * STEP, 0.2)
        time = thread_time(builder.build(), PID, TID, union([0], [100 * STEP]))
        assert time is not None
        return time.on_core / time.wall, time.runnable / time.wall, time.blocked / time.wall

    assert divided(cpu=0.6, delay=0.2) == pytest.approx((0.6, 0.4, 0.0)), "all of the rest was stolen"
    assert divided(cpu=0.3, delay=0.1) == pytest.approx((0.3, 0.2, 0.5)), "a thread that waits loses little"
    assert divided(cpu=0.0, delay=0.1) == pytest.approx((0.0, 0.1, 0.9))
    assert divided(cpu=0.9, delay=0.1) == pytest.approx((0.9, 0.1, 0.0)), "its clock counts what is stolen"


def test_the_delay_that_stack_samples_cause_is_not_the_programs() -> None:
    builder = program(cpu=0.5, delay=0.3)
    builder.sample("stacks.preempted_s", 50 * STEP, 0.01, pid=PID)
    builder.sample("stacks.preempted_s", 100 * STEP, 0.1, pid=PID)
    for number in range(101):
        builder.thread_clocks(number * STEP, round(number * 0.5 * STEP), round(number * 0.3 * STEP), tid=PID)
    run = builder.build()
    main, window, other = (
        thread_time(run, PID, tid, union([begin * STEP], [100 * STEP]))
        for tid, begin in ((PID, 0), (PID, 50), (TID, 0))
    )
    assert main is not None
    assert window is not None
    assert other is not None
    caused = 10 * 0.8  # it could run in 80% of the time
    shares = window.on_core / window.wall, window.runnable / window.wall
    assert shares == pytest.approx((25 / (50 - caused), (15 - caused) / (50 - caused))), "as without the samples"
    assert main.runnable / STEP == pytest.approx(50 * (15 - caused) / (50 - caused) + 50 * (15 - 0.8) / (50 - 0.8))
    assert other.runnable / STEP == pytest.approx(30), "only the main thread is preempted"


def test_other_threads_are_sampled_and_threads_without_clocks_are_not_measured() -> None:
    builder = program()
    for second in (0, 1):
        builder.sample("thread.cpu_s", second * 100 * STEP, 0.6 * second, tid=7)
        builder.sample("thread.wait_s", second * 100 * STEP, 0.3 * second, tid=7)
    run = builder.build()
    [(tid, pool)] = other_threads(run, measured_window(run)).items()
    assert (tid, pool.on_core, pool.runnable) == pytest.approx((7, 60 * STEP, 30 * STEP))
    assert thread_time(run, PID, 8, measured_window(run).spans) is None


def test_steps_between_two_readings_share_the_delay() -> None:
    builder = RunBuilder(device="cpu")
    builder.steps(4, STEP)
    for at, delay in ((0, 0), (2 * STEP, 4 * MS), (4 * STEP, 4 * MS)):
        builder.thread_clocks(at, 0, delay)
    run = builder.build()
    delays = step_delays(run, measured_window(run))
    assert delays is not None
    assert delays.tolist() == [2 * MS, 2 * MS, 0, 0]
    assert step_delays(RunBuilder().build(), measured_window(run)) is None


def test_a_delay_between_a_boundary_and_the_reading_of_its_clocks_is_the_next_steps() -> None:
    builder = RunBuilder(device="cpu")
    builder.steps(3, STEP)
    for number, delay in enumerate((0, 25 * MS, 25 * MS, 25 * MS)):
        builder.thread_clocks(number * STEP, 0, delay)
    run = builder.build()
    delays = step_delays(run, measured_window(run))
    assert delays is not None
    assert delays.tolist() == [10 * MS, 10 * MS, 5 * MS]


@pytest.mark.parametrize(
    ("throttled", "others", "expected"),
    [(0.9, 0.0, (1.0, 1.0, 1.0)), (0.2, 0.0, (0.5, 0.5, 0.5)), (0.2, 0.4, (0.25, 0.0, 0.5))],
)
def test_the_share_of_throttling_is_an_estimate_with_bounds(
    throttled: float, others: float, expected: tuple[float, float, float]
) -> None:
    """The thread waits 0.4 s for a core; others of its group wait too."""
    builder = program(cpu=0.6, delay=0.4)
    for second in (0, 1):
        at = second * 100 * STEP
        builder.sample("group.throttled_s", at, throttled * second)
        for tid, delay in ((TID, 0.4), (7, others)):
            builder.sample("thread.cpu_s", at, 0.0, tid=tid)
            builder.sample("thread.wait_s", at, delay * second, tid=tid)
    run = builder.build()
    divided = thread_time(run, PID, TID, measured_window(run).spans)
    assert divided is not None
    assert divided.throttling == Throttling(*map(pytest.approx, expected))


def test_what_ran_without_a_core_is_no_python() -> None:
    assert shares_of(program(cpu=0.3, delay=0.7)) == {"python": 30, "core": 70}


@pytest.mark.parametrize(("threads", "rule"), [(8, "more-threads-than-cores"), (2, "noisy-machine")])
def test_more_threads_than_cores_are_named_as_the_reason(threads: int, rule: str) -> None:
    analysis = analyse(program(cpu=0.3, delay=0.7, torch_threads=threads, cores=2).build())
    (told,) = (finding for finding in find(analysis).findings if "core" in finding.costs and finding.has_cure)
    assert (told.rule.name, round(told.seconds / (analysis.value("step_time") or 1.0), 2)) == (rule, 0.7)


def test_threads_that_spin_are_named_as_the_reason() -> None:
    facts = {"torch_threads": 2, "cores": 2, "omp_wait_policy": "active"}
    analysis = analyse(program(cpu=0.3, delay=0.7, **facts).build())
    (told,) = (finding for finding in find(analysis).findings if "core" in finding.costs)
    assert "OMP_WAIT_POLICY" in " ".join(finding_text(told).evidence)


def test_a_delay_that_does_not_fit_into_a_step_counts_in_others() -> None:
    ns = np.zeros((2, len(HOST_CATEGORIES)), np.int64)
    ns[:, CODE["compute"]], ns[:, CODE["ranks"]] = 100, 100  # samples divide both steps alike
    delays = np.array([150, 10])
    divided = take_core(Strip(ns, 0), delays, Throttling(), np.ones(len(HOST_CATEGORIES))).ns
    assert divided[:, CODE["core"]].tolist() == [100, 60]
    assert divided.sum(axis=1).tolist() == [200, 200]
    assert divided[:, CODE["ranks"]].tolist() == [100, 100]


def test_each_step_has_its_own_time_without_a_core_and_sums_to_its_wall_time() -> None:
    builder = RunBuilder(device="cpu")
    builder.boundary(0)
    builder.steps(3, STEP)
    for at, delay in ((0, 0), (STEP, 7), (2 * STEP, 7), (3 * STEP, 7 + STEP)):
        builder.thread_clocks(at, 0, delay)
        builder.stack(LINE, at, at + STEP)
    builder.region("data", STEP * 2, STEP * 3)
    run = builder.build()
    window = measured_window(run)
    _, ledger, _ = host_time(Stacks(run), window)
    assert ledger is not None
    assert (ledger.ns.sum(axis=1) == window.wall).all()
    assert ledger.ns[:, CODE["core"]].tolist() == pytest.approx([7, 0, STEP], abs=2)


@pytest.mark.parametrize(
    ("call", "holder", "expected"),
    [
        (BlockedIn.TIMED_FUTEX, 8, {"python": 20, "gil": 80}),
        (BlockedIn.TIMED_FUTEX, TID, {"python": 20, "waiting": 80}),
        (BlockedIn.SLEEP, 8, {"python": 20, "waiting": 80}),
        (BlockedIn.FUTEX, TID, {"python": 20, "waiting": 80}),
        (BlockedIn.OPENMP, TID, {"python": 20, "compute": 50, "core": 30}),
    ],
)
def test_what_a_blocked_thread_waits_for(call: BlockedIn, holder: int, expected: dict[str, float]) -> None:
    """The thread runs Python for 2 of 10 ms and is blocked in a call; a thread of a pool computes, or has no core."""
    builder = program(cpu=0.2, active=-1)
    for number in range(100):
        builder.holder(LINE, number * STEP, (number + 1) * STEP, tid=holder)
        for tenth in range(10):
            at, kind = number * STEP + tenth * MS, call if tenth > 1 else BlockedIn.NOTHING
            builder.sample("thread.blocked_in", at, int(kind), pid=PID, tid=TID)
    for second in (0, 1):
        builder.sample("thread.cpu_s", second * 100 * STEP, 0.5 * second, tid=7)
        builder.sample("thread.wait_s", second * 100 * STEP, 0.3 * second, tid=7)
    assert shares_of(builder) == pytest.approx(expected, abs=0.5)


def test_a_wait_is_placed_at_its_line_though_other_lines_run_before_the_next_sample() -> None:
    """Half of each step is a wait for a lock; a stack is sampled every 2.7 steps, its call at another moment."""
    builder, length = RunBuilder(device="cpu", openmp="gnu"), 400 * STEP
    builder.boundary(0)
    builder.steps(400, STEP)
    for number in range(401):
        builder.thread_clocks(number * STEP, number * STEP // 2, 0)
    for at in range(0, length, 27 * MS):
        line = ("t.py:9:main",) if at % STEP < STEP // 2 else LINE
        builder.stack(line, at, min(length, at + 27 * MS), active=-1)
    for at in range(0, length, 21 * MS):
        kind = BlockedIn.FUTEX if at % STEP < STEP // 2 else BlockedIn.NOTHING
        builder.sample("thread.blocked_in", at, int(kind), pid=PID, tid=TID)
    analysis = analyse(builder.build())
    site = StepCosts(analysis).sites("waiting")[0]
    assert site.line == 9
    waits = [(cell.place, cell.seconds) for cell in analysis.ledger.of(Period.STEPS) if cell.kind == "waiting"]
    assert sum(seconds for place, seconds in waits if place == site) > 0.85 * sum(seconds for _, seconds in waits)


def test_a_wait_in_the_loader_of_a_fast_loop_stays_in_the_loader() -> None:
    """A step of 2 ms waits in the loader for 1.2 ms; stacks are sampled every 7.3 ms, by a clock that is 1 ms off."""
    builder, steps, wait, step = RunBuilder(device="cpu", openmp="gnu"), 3000, 1200 * US, 2 * MS
    builder.boundary(0)
    builder.steps(steps, step)
    for number in range(steps):
        builder.region("data", number * step, number * step + wait)
        builder.thread_clocks(number * step, number * (step - wait), 0)
    for at in range(0, steps * step, 7300 * US):
        frames = (*LINE, LOADER) if at % step < wait else ("t.py:4:main",)
        builder.stack(frames, at + MS, at + 8300 * US, active=-1)
    for at in range(0, steps * step, 20100 * US):
        kind = BlockedIn.OTHER if at % step < wait else BlockedIn.NOTHING
        builder.sample("thread.blocked_in", at, int(kind), pid=PID, tid=TID)
    shares = shares_of(builder)
    assert shares["input"] == pytest.approx(60)
    assert shares.get("waiting", 0.0) < 1, shares


def test_the_delay_of_waits_for_a_device_is_taken_out_once_though_the_clocks_are_read_less_often() -> None:
    """Every 10th step waits for a device for 4 ms without a core; the clocks are read every 10 steps of 10 ms."""
    builder = RunBuilder(device="host")
    builder.steps(100, STEP)
    for number in range(100):
        builder.call(CallKind.SYNC, number * STEP, number * STEP + STEP // 2, blocked=STEP // 2)
        for name in ("waits_stalled_ns", "waits_delayed_ns"):
            builder.counter(name, 4 * MS if number % 10 == 0 else 0, step=number)
    for number in range(11):
        builder.thread_clocks(number * 10 * STEP, number * 50 * MS, number * 4 * MS)
    assert shares_of(builder)["core"] == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize(("read", "expected"), [(True, 40), (False, 45)])
def test_the_delay_of_the_loader_is_that_of_its_own_regions(read: bool, expected: float) -> None:
    """Half of each step is in the loader, and a tenth of the time lacks a core: all of it within the loader."""
    builder = program(cpu=0.9, delay=0.1, active=-1)
    for number in range(100):
        begin, end = number * STEP, number * STEP + STEP // 2
        builder.region("data", begin, end)
        builder.stack((*LINE, LOADER), begin, end)
        builder.stack(LINE, end, begin + STEP)
        for at, delay in ((begin, 0), (end, MS)) if read else ():
            builder.thread_clocks(at, NOT_READ, number * MS + delay)
    shares = shares_of(builder)
    assert shares["core"] == pytest.approx(10, abs=0.1)
    assert shares["input"] == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(("thread", "expected"), [("python", 50), ("gloo_tcp_loop", None)])
def test_threads_that_communicate_belong_to_no_pool(thread: str, expected: float | None) -> None:
    builder = program(cpu=0.2, active=-1)
    builder.sample(THREAD_NAME + thread, 0, 1, tid=7)
    for number in range(1000):
        kind = BlockedIn.OPENMP if number % 10 > 1 else BlockedIn.NOTHING
        builder.sample("thread.blocked_in", number * MS, int(kind), pid=PID, tid=TID)
    for second in (0, 1):
        builder.sample("thread.cpu_s", second * 100 * STEP, 0.5 * second, tid=7)
        builder.sample("thread.wait_s", second * 100 * STEP, 0.3 * second, tid=7)
    assert shares_of(builder).get("compute") == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(("held", "gil"), [(10, 90), (4, 40)])
@pytest.mark.parametrize("place", [(*LINE, LOADER), ("t.py:9:main",)])
def test_waits_for_the_gil_in_the_loader_and_at_a_line_that_never_runs(
    place: tuple[str, ...], held: int, gil: float
) -> None:
    """A step waits for the GIL for 9 of 10 ms, but no longer than another thread holds it."""
    is_loader = place[-1] == LOADER
    builder = RunBuilder(device="cpu", openmp="gnu")
    builder.boundary(0)
    builder.steps(100, STEP)
    for number in range(101):
        builder.thread_clocks(number * STEP, number * MS, 0)
    for begin in range(0, 100 * STEP, STEP):
        if is_loader:
            builder.region("data", begin, begin + 9 * MS)
        builder.stack(place, begin, begin + 9 * MS, active=0)
        builder.stack(LINE, begin + 9 * MS, begin + STEP, active=1)
        builder.holder(LINE, begin, begin + held * MS, tid=8)
        for number in range(10):
            kind = BlockedIn.TIMED_FUTEX if number < 9 else BlockedIn.NOTHING
            builder.sample("thread.blocked_in", begin + number * MS, int(kind), pid=PID, tid=TID)
    builder.gil_window(0, 100 * STEP)
    shares = shares_of(builder)
    assert shares["gil"] == pytest.approx(gil, abs=2)
    assert shares.get("input" if is_loader else "waiting", 0.0) == pytest.approx(90 - gil, abs=2)
    _, ledger, _ = host_time(Stacks(builder.build()), measured_window(builder.build()))
    assert ledger is not None
    assert (ledger.ns.sum(axis=1) == STEP).all()


def test_samples_that_stand_for_no_time_wait_for_nothing() -> None:
    """Samples between steps have a mixture of system calls, but none of the steps' time."""
    builder = program()
    builder.holder(LINE, 0, 10 * STEP, tid=8)
    run = builder.build()
    shares = np.zeros((len(run.stack_frames), len(BlockedIn)))
    shares[:, BlockedIn.TIMED_FUTEX] = 1
    rows = BlockedRows(np.zeros(2, np.int64), *np.zeros((2, 2)), *np.zeros((3, 2), np.bool_))
    waits = divide_waits(run, measured_window(run), BlockedCalls(shares, 100, tells_openmp=True), rows)
    assert (waits.gil.tolist(), waits.gil_error[0].tolist()) == ([1, 1], [0, 0])


@pytest.mark.parametrize(("counted", "used", "share"), [(False, 0.0, 0.6), (True, 0.0, 0.35), (False, 1.75, 0.125)])
def test_the_share_of_waits_for_a_core(counted: bool, used: float, share: float) -> None:
    """The stepping thread lacks a core for 20% of each step, another thread of the program for 40%.

    A device that is a thread counts waits of 25% without a core, of which the host lacked it for 10%. Of 2 cores that
    are in use the program takes `used`: where that is most of them, its threads lose the others' share of the machine.
    """
    builder = RunBuilder(device="host", host={"cores": 2})
    builder.steps(100, STEP)
    for number in range(101):
        at = number * STEP
        builder.thread_clocks(at, at // 2, at // 5)
        for name, value in (("thread.cpu_s", 0.1), ("thread.wait_s", 0.4)):
            builder.sample(name, at, value * at / 1e9, pid=PID, tid=7)
        builder.sample("machine.cpu_util", at, 1.0)
        builder.sample("process.cpu", at, used, pid=PID)
        for name, part in (("waits_stalled_ns", 25), ("waits_delayed_ns", 10)) if counted and number < 100 else ():
            builder.counter(name, part * STEP // 100, step=number)
        if number < 100:
            builder.counter("device_busy_ns", STEP // 4, step=number)
            builder.counter("device_lacked_ns", STEP // 2, step=number)
    analysis = analyse(builder.build())
    assert analysis.value("without_core") == pytest.approx(share, abs=0.001)
    # neither busy nor idle is what the device lacked, and at most what the program lacked
    assert analysis.value("device_utilization") == pytest.approx(0.25 / (1 - min(share, 0.5)), abs=0.001)
