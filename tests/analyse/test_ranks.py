"""Ranks: which processes are ranks, their own work, and which one makes the others wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import LineCost
from profiler.analyse.model.measures import HOST_CATEGORIES, Measure
from profiler.analyse.model.ranks import CollectiveWait, RankActivity, RankLedger
from profiler.analyse.rank_ledger import MAY_WAIT_FOR_DEVICE, RankTime, rank_ledger, with_rank_waits
from profiler.analyse.ranks import RankSteps, find_straggler, rank_steps
from profiler.analyse.timing.breakdown import Strip
from profiler.analyse.timing.host_timeline import CODE
from profiler.analyse.window import measured_window, rank_windows
from profiler.core.errors import Notice
from profiler.diagnose.rule import Claim, StepCosts
from profiler.diagnose.rules.settings import more_threads_than_cores
from profiler.diagnose.run import diagnose_run
from profiler.report.rank_text import (
    balance_sentence,
    collective_sentences,
    comparison_sentences,
    rank_sentences,
    straggler_sentence,
)
from profiler.report.verdict_text import with_verdict
from profiler.run.model import Run, RunInfo, Site, StepDefinition, StepKind
from profiler.run.tables import ActivityKind, CallKind
from tests.recorded.builders import MS, RunBuilder

STEPS, STEP = 40, 40


def job(
    *data: float, cpu: Sequence[float] = (), backward_until: float = STEP, level: str = "standard", **facts: int
) -> Run:
    """A rank for each time in the region `data` (ms); then it is in its backward pass until the step of 40 ms ends.

    Rank 1 ends its first step first.

    :param cpu: ms of CPU time of each rank in a step.
    """
    builder = RunBuilder(level=level, device="cpu", **facts)
    for rank, wait in enumerate(data):
        pid = 100 + rank
        for step in range(STEPS):
            begin = step * STEP * MS - rank * 1000
            clock = round((cpu[rank] if cpu else 0) * MS)
            builder.step(
                begin, begin + STEP * MS, index=step, pid=pid, tid=pid, rank=rank, thread_cpu=clock, process_cpu=clock
            )
            if level != "light":
                builder.region("data", begin, begin + round(wait * MS), pid=pid, tid=pid)
                end = begin + round(backward_until * MS)
                builder.region("backward", begin + round(wait * MS), end, pid=pid, tid=pid)
    return builder.build()


def analysed(run: Run) -> Analysis:
    analysis = analyse(run)
    return with_verdict(analysis, diagnose_run(analysis))


@pytest.mark.parametrize("late", [0, 1, 2])
def test_the_rank_with_the_slow_loader_is_the_straggler(late: int) -> None:
    waits = [1.0, 1.0, 1.0]
    waits[late] = 33.0
    analysis = analysed(job(*waits))
    assert analysis.ranks is not None
    straggler = analysis.ranks.straggler
    assert straggler is not None
    assert (straggler.rank, straggler.category, analysis.ranks.analysed) == (late, "input", late)
    assert straggler.seconds == pytest.approx(0.033)
    assert straggler.others == pytest.approx(0.001)
    assert straggler.lead == pytest.approx(0.032)
    own = [round(rank.own_work or 0.0, 6) for rank in analysis.ranks.ranks]
    assert own == [0.04 if rank == late else 0.008 for rank in range(3)]
    assert analysis.verdict.startswith(
        f"Rank {late} makes the other ranks wait 32.0 ms of each step: it spends 33.0 ms"
    )


def test_balanced_ranks_have_no_straggler_and_one_verdict() -> None:
    analysis = analysed(job(30.0, 30.0))
    assert analysis.ranks is not None
    assert analysis.ranks.straggler is None
    assert analysis.ranks.analysed == 0
    assert analysis.verdict.endswith("This holds for both ranks.")


def test_a_slow_backward_pass_is_seen_by_the_clock_of_the_process() -> None:
    """All ranks are in their backward pass equally long, but only rank 1 works there."""
    ranks = analyse(job(1.0, 1.0, cpu=(3.0, 38.0))).ranks
    assert ranks is not None
    assert ranks.straggler is not None
    assert ranks.straggler.rank == 1
    assert [round(rank.own_work or 0.0, 4) for rank in ranks.ranks] == [0.004, 0.039]


def test_time_in_collectives_is_time_of_waiting_for_ranks() -> None:
    builder = RunBuilder(device="cpu")
    for rank, work in enumerate((5, 35)):
        pid = 100 + rank
        for step in range(20):
            begin = step * STEP * MS
            builder.step(begin, begin + STEP * MS, index=step, pid=pid, tid=pid, rank=rank)
            end = begin + STEP * MS
            builder.named_call(CallKind.OTHER, "all_reduce", begin + work * MS, end, tid=pid, pid=pid, rank=rank)
    ranks = analyse(builder.build()).ranks
    assert ranks is not None
    assert ranks.straggler is not None
    assert ranks.straggler.rank == 1
    assert [round(rank.categories["ranks"], 4) for rank in ranks.ranks] == [0.035, 0.005]


def ledgers(*by_rank: dict[str, tuple[int, int]], window: int = STEPS) -> list[RankTime]:
    """The time of each rank: category -> ms of each step outside of the backward pass, and in it."""
    times = []
    for parts in by_rank:
        backward, ns = np.zeros((2, window, len(HOST_CATEGORIES)), np.int64)
        for name, (outside, within) in parts.items():
            backward[:, CODE[name]], ns[:, CODE[name]] = within * MS, (outside + within) * MS
        times.append(RankTime(Strip(ns, 0, backward=backward), (LineCost(Site("x.py", 1, "f"), "", 0, 0, 0, 0, 1),)))
    return times


@pytest.mark.parametrize(("outside", "category"), [(True, "python"), (False, "compute")])
def test_the_reason_lies_where_the_straggler_leads(outside: bool, category: str) -> None:
    """What samples find in backward is no reason for a lead that lies outside of it."""
    windows = rank_windows(job(1.0, 1.0))
    rows, own = np.stack([np.arange(STEPS)] * 2, axis=1), np.full((STEPS, 2), 20.0 * MS)
    own[:, 0] += 10 * MS
    steps = RankSteps(windows, rows, True, own, 0, None, outside)
    times = ledgers({"python": (10, 0), "compute": (1, 19)}, {"python": (2, 0), "compute": (1, 1)})
    straggler = rank_ledger(steps, times, 2).straggler
    assert straggler is not None
    assert straggler.category == category


def test_waits_for_other_ranks_are_taken_from_the_backward_pass_first() -> None:
    windows = rank_windows(job(1.0, 1.0))
    rows, waits = np.stack([np.arange(STEPS)] * 2, axis=1), np.full((STEPS, 2), 10.0 * MS)
    steps = RankSteps(windows, rows, True, waits, None, waits=waits)
    [time] = ledgers({"compute": (6, 8)})
    ledger = with_rank_waits(time.ledger, steps, 0)
    assert ledger is not None
    assert ledger.backward is not None
    assert (ledger.ns[0, CODE["compute"]], ledger.ns[0, CODE["ranks"]]) == (4 * MS, 10 * MS)
    assert (ledger.backward[0, CODE["compute"]], ledger.backward[0, CODE["ranks"]]) == (0, 8 * MS)
    on_device = with_rank_waits(time.ledger, steps, 0, MAY_WAIT_FOR_DEVICE)
    assert on_device is not None
    assert on_device.ns[0, CODE["compute"]] == 14 * MS, "the host computes while the device communicates"


def test_the_host_need_not_wait_while_its_device_communicates() -> None:
    """Rank 0 communicates for 28 ms longer than rank 1, but both spend 30 ms of each step in the backward pass."""
    builder = RunBuilder(device="cuda")
    for rank, length in enumerate((30, 2)):
        pid = 100 + rank
        for step in range(STEPS):
            begin, end = step * STEP * MS, (step + 1) * STEP * MS
            builder.step(begin, end, index=step, pid=pid, tid=pid, rank=rank)
            builder.region("backward", begin, begin + 30 * MS, pid=pid, tid=pid)
            builder.activity(ActivityKind.COMMUNICATION, end - length * MS, end, name="nccl", pid=pid, rank=rank)
    ranks = analyse(builder.build()).ranks
    assert ranks is not None
    assert [round(rank.own_work or 0.0, 4) for rank in ranks.ranks] == [0.012, 0.04]
    assert not any(rank.categories.get("ranks") for rank in ranks.ranks)


def test_a_rank_does_not_wait_for_as_long_as_its_trace_is_longer() -> None:
    builder = RunBuilder(device="cuda")
    for rank, length in enumerate((100, 160)):
        end, pid = length * MS, 100 + rank
        builder.step(0, end, index=0, pid=pid, tid=pid, rank=rank)
        builder.activity(ActivityKind.COMMUNICATION, end - 40 * MS, end, name="nccl", pid=pid, rank=rank)
    run = replace(builder.build(), step=StepDefinition(StepKind.WHOLE_TRACE))
    waits = rank_steps(run, rank_windows(run)).waits
    assert waits is not None
    assert waits.tolist() == [[0.0, 0.0]]


def test_ranks_that_share_cores_are_late_only_by_their_work() -> None:
    """Rank 0 of four waits for a core for 8 ms of each step; it does so by chance if there are two cores."""

    def straggler(cores: int, **facts: int) -> int | None:
        builder = RunBuilder(device="cpu", cores=cores, **facts)
        for rank in range(4):
            pid, delay = 100 + rank, 8 if rank == 0 else 0
            for step in range(STEPS):
                begin = step * STEP * MS
                builder.step(begin, begin + STEP * MS, index=step, pid=pid, tid=pid, rank=rank)
                builder.region("backward", begin + (4 + delay) * MS, begin + STEP * MS, pid=pid, tid=pid)
                builder.thread_clocks(begin, step * 4 * MS, step * delay * MS, pid=pid, tid=pid)
            builder.thread_clocks(STEPS * STEP * MS, STEPS * 4 * MS, STEPS * delay * MS, pid=pid, tid=pid)
        ranks = analyse(builder.build()).ranks
        assert ranks is not None
        return ranks.straggler.rank if ranks.straggler else None

    assert (straggler(8), straggler(2)) == (0, None)
    assert (straggler(8, rank_cores=2), straggler(1, rank_cores=4)) == (None, 0), "of all ranks together"


def test_a_straggler_without_samples_has_no_known_reason() -> None:
    windows = rank_windows(job(1.0, 1.0))
    rows, own = np.stack([np.arange(STEPS)] * 2, axis=1), np.full((STEPS, 2), 20.0 * MS)
    own[:, 0] += 10 * MS
    late, other = ledgers({"compute": (1, 19)}, {"compute": (1, 1)})
    ledger = rank_ledger(RankSteps(windows, rows, True, own, 0), [replace(late, lines=()), other], 2)
    assert straggler_sentence(ledger).endswith("its stacks were not sampled, so the reason is unknown.")


def test_which_rank_stands_for_balanced_ones_is_no_chance() -> None:
    assert measured_window(job(5.0, 5.0)).rank == 0  # though rank 1 ended its first step first


def test_processes_that_step_together_are_ranks_without_stating_it() -> None:
    run = job(30.0, 1.0)
    for name in ("steps", "regions"):
        table = getattr(run, name).copy()
        table["rank"] = 0
        object.__setattr__(run, name, table)
    assert [(window.rank, window.pid, len(window)) for window in rank_windows(run)] == [(0, 100, 40), (1, 101, 40)]


def test_processes_that_drift_apart_are_no_ranks() -> None:
    builder = RunBuilder()
    for pid, length in ((100, 10), (101, 12)):
        builder.steps(30, length * MS, pid=pid)
    windows = rank_windows(builder.build())
    assert [(window.pid, window.excluded) for window in windows] == [(100, 30)]


def test_ranks_that_do_not_wait_for_each_other_have_no_straggler() -> None:
    builder = RunBuilder(level="standard")
    for rank, length in enumerate((10, 14)):
        for step in range(30):
            builder.step(step * length * MS, (step + 1) * length * MS, index=step, pid=100 + rank, rank=rank)
    steps = rank_steps(run := builder.build(), rank_windows(run))
    assert not steps.synchronous
    assert steps.analysed.rank == 1  # the slowest
    ranks = analyse(run).ranks
    assert ranks is not None
    assert "do not wait for each other" in balance_sentence(ranks)


def test_level_light_says_that_the_straggler_was_not_measured() -> None:
    ranks = analyse(job(30.0, 1.0, level="light")).ranks
    assert ranks is not None
    assert (ranks.straggler, ranks.ranks[0].own_work) == (None, None)
    assert "--level standard" in balance_sentence(ranks)


def test_ranks_of_which_some_were_not_recorded_claim_nothing_that_was_not_measured() -> None:
    ledger = RankLedger((), 0, synchronous=False, straggler=None, reason=Notice("level-light"), uniform=False, size=4)
    assert balance_sentence(ledger).startswith("Only 0 of 4 ranks were recorded. All of this is about rank 0 of 4; rec")
    assert "none of these clearly makes the others wait" in balance_sentence(replace(ledger, reason=None))


def test_late_ranks_of_some_recorded_ones_claim_nothing_of_the_other_ranks() -> None:
    waits = reduced([5], [17])
    ranks = tuple(RankActivity(rank, rank, 9, 0, 1.0, None, None) for rank in (0, 1))
    ledger = RankLedger(ranks, 0, False, None, Notice("ranks-not-synchronous"), False, 8, collectives=waits)
    late, balance = rank_sentences(ledger)
    assert late.startswith("Rank 1, of the 2 recorded ones, arrives last")
    assert balance == (
        "Only 2 of 8 ranks were recorded. All else is about rank 0 of 8; the ranks do not wait for each other in every "
        "step, since their steps do not end together."
    )
    text = balance_sentence(replace(ledger, reason=None, collectives=(), few_steps=(2,)))
    assert "as the rank with most steps, and is left out. Only 3 of 8 ranks were recorded" in text
    assert "none of the other 2 clearly makes the other wait" in text


def test_noise_and_one_long_step_make_no_straggler() -> None:
    noise = np.random.default_rng(0).exponential(10.0, (200, 4))
    assert find_straggler(noise, 30.0) is None
    noise[7, 2] += 2000.0
    assert find_straggler(noise, 30.0) is None
    noise[:, 1] += 30.0
    assert find_straggler(noise, 60.0) == 1
    assert find_straggler(noise, 1000.0) is None  # less than 5% of a step


def test_checkpoints_of_one_rank_in_few_steps_are_its_work() -> None:
    own = np.full((100, 2), 10.0)
    own[::10, 0] += 100.0
    assert find_straggler(own, 20.0) == 0


def test_other_late_ranks_are_named() -> None:
    ranks = analyse(job(30.0, 29.0, 1.0, 1.0, 1.0)).ranks
    assert ranks is not None
    assert ranks.straggler is not None
    assert (ranks.straggler.rank, ranks.straggler.alike) == (0, (1,))
    assert "Rank 1 is nearly as late." in balance_sentence(ranks)
    assert "median" in straggler_sentence(ranks)
    alike = replace(ranks, straggler=replace(ranks.straggler, seconds=0.01, others=0.02))
    assert straggler_sentence(alike).endswith("takes longer than on the other ranks, so the reason is unknown.")


def clocks(builder: RunBuilder, pid: int, rank: int, cpu: float, delay: float) -> None:
    """Readings of the clocks of a rank's thread: ms of CPU time and of run delay in each step."""
    count = np.arange(STEPS + 1)
    builder.bulk(
        "thread_clocks", STEPS + 1, time=count * STEP * MS, cpu=count * round(cpu * MS),
        delay=count * round(delay * MS), tid=pid, pid=pid, rank=rank,
    )  # fmt: skip


@pytest.mark.parametrize(("work", "category"), [(4.0, "core"), (12.0, "compute")])
def test_a_rank_without_a_core_is_late_for_that_reason_unless_it_has_more_work(work: float, category: str) -> None:
    """Rank 1 waits for a core for 24 ms of each backward pass, in which the others wait for it."""
    builder = RunBuilder(device="cpu")
    for rank, (cpu, delay) in enumerate(((4.0, 0.0), (work, 24.0))):
        pid = 100 + rank
        clocks(builder, pid, rank, cpu, delay)
        for step in range(STEPS):
            begin, used = step * STEP * MS, round(cpu * MS)
            builder.step(
                begin, begin + STEP * MS, index=step, pid=pid, tid=pid, rank=rank, thread_cpu=used, process_cpu=used
            )
            builder.region("backward", begin, begin + STEP * MS, pid=pid, tid=pid)
            builder.boundary(begin + STEP * MS)
    run = builder.build()
    steps = rank_steps(run, rank_windows(run))
    assert steps.own is not None
    assert (steps.own.mean(axis=0) / MS).round(3).tolist() == [4.0, work + 24.0]
    ranks = analyse(run).ranks
    assert ranks is not None
    assert ranks.straggler is not None
    assert (ranks.straggler.rank, ranks.straggler.category) == (1, category)
    assert ranks.straggler.core == pytest.approx(0.0 if category == "core" else 0.024)


def test_time_without_a_core_is_no_wait_for_other_ranks() -> None:
    """Rank 1 is in its backward pass for 30 ms longer than rank 0, but had no core meanwhile."""
    builder = RunBuilder(device="cpu")
    for rank, (backward, delay) in enumerate(((10, 0.0), (40, 30.0))):
        pid = 100 + rank
        clocks(builder, pid, rank, 10.0, delay)
        for step in range(STEPS):
            begin, end, used = step * STEP * MS, (step + 1) * STEP * MS, 10 * MS
            builder.step(begin, end, index=step, pid=pid, tid=pid, rank=rank, thread_cpu=used, process_cpu=used)
            builder.region("backward", end - backward * MS, end, pid=pid, tid=pid)
    run = builder.build()
    own = rank_steps(run, rank_windows(run)).own
    assert own is not None
    assert (own.mean(axis=0) / MS).round(3).tolist() == [40.0, 40.0]


def reduced(
    *work: Sequence[float], until: float = STEP, name: str = "all_reduce", sampled: Sequence[int] = (0, 1, 2)
) -> tuple[CollectiveWait, ...]:
    """The waits in a collective of ranks that each work for these ms before it, in turn; it ends at `until` ms."""
    builder = RunBuilder(device="cpu")
    for rank, times in enumerate(work):
        pid = 100 + rank
        for step in range(STEPS):
            begin, before = step * STEP * MS, round(times[step % len(times)] * MS)
            builder.step(begin, begin + STEP * MS, index=step, pid=pid, tid=pid, rank=rank)
            end = max(begin + before + MS // 100, begin + round(until * MS))
            builder.named_call(CallKind.OTHER, name, begin + before, end, site="t.py:9:f", tid=pid, pid=pid, rank=rank)
            if rank in sampled:
                builder.stack(["t.py:5:spin"], begin, begin + before, tid=pid, pid=pid)
                builder.stack(["t.py:9:f"], begin + before, begin + STEP * MS, active=0, tid=pid, pid=pid)
    ranks = analyse(builder.build()).ranks
    assert ranks is not None
    return ranks.collectives


def test_a_collective_names_the_rank_that_arrives_last_and_its_line() -> None:
    [wait] = reduced([5], [5], [17])
    assert (wait.name, wait.rank, wait.last, wait.before) == ("all_reduce", 2, 1.0, Site("t.py", 5, "spin"))
    assert wait.seconds == pytest.approx(0.012)
    assert wait.site == Site("t.py", 9, "f")


@pytest.mark.parametrize(
    ("first", "sampled", "named"), [(5, (0, 2), True), (5, (2,), False), (5, (0, 1), False), (1, (2,), True)]
)
def test_a_line_is_named_only_beside_a_rank_whose_lines_are_known(
    first: float, sampled: Sequence[int], named: bool
) -> None:
    """Ranks 0 and 1 are before the collective for `first` ms of 40: 1 ms is too short to matter."""
    [wait] = reduced([first], [first], [17], sampled=sampled)
    assert (wait.before, wait.reason) == (
        (Site("t.py", 5, "spin"), None) if named else (None, Notice("few-samples-before"))
    )


def test_ranks_that_take_turns_in_being_late_have_no_late_rank() -> None:
    assert not reduced([5, 17], [17, 5])


def test_asynchronous_collectives_and_messages_between_two_ranks_have_no_late_rank() -> None:
    assert not reduced([5], [17], until=0)
    assert not reduced([5], [17], name="recv")


def test_a_late_rank_that_is_no_straggler_is_told_by_its_collective() -> None:
    ledger = RankLedger((), 0, True, collectives=reduced([5], [17]))
    [sentence] = collective_sentences(ledger)
    assert sentence == (
        "Rank 1 arrives last in 100% of the calls of all_reduce() at t.py:9; the other ranks wait 12.0 ms of each step "
        "for it, while it is at t.py:5, in spin()."
    )
    inner = Site("t.py", 5, "spin.<locals>.<listcomp>")
    [sentence] = collective_sentences(replace(ledger, collectives=(replace(ledger.collectives[0], before=inner),)))
    assert sentence.endswith("while it is at t.py:5, in spin()."), "as the first screen names it"


@pytest.mark.parametrize(("cpu", "category"), [(10.0, "python"), (1.0, "core")])
def test_a_rank_without_more_cpu_time_has_no_more_work_whatever_its_samples_find(cpu: float, category: str) -> None:
    windows = rank_windows(job(1.0, 1.0))
    rows, own = np.stack([np.arange(STEPS)] * 2, axis=1), np.full((STEPS, 2), 20.0 * MS)
    own[:, 0] += 10 * MS
    steps = RankSteps(windows, rows, True, own, 0, cpu=np.array([5.0 + cpu, 5.0]) * MS)
    times = ledgers({"python": (9, 5), "core": (8, 0)}, {"python": (1, 5), "core": (2, 0)})
    straggler = rank_ledger(steps, times, 2).straggler
    assert straggler is not None
    assert straggler.category == category


def test_a_comparison_tells_how_the_ranks_differ() -> None:
    slow, alike = (analyse(job(*waits)).ranks for waits in ((33.0, 1.0), (1.0, 1.0, 1.0)))
    assert comparison_sentences([("slow", slow, 2), ("cured", alike, 3), ("alone", None, 1)]) == [
        "The numbers of ranks differ (2 in slow, 3 in cured and 1 in alone), so a step need not be the same work.",
        "In slow rank 0 makes the other rank wait 32.0 ms of each step; its figures are about that rank.",
        "In cured no rank clearly makes the others wait; its figures are about rank 0.",
    ]
    assert not comparison_sentences([("cured", alike, 3), ("again", alike, 3)])


def test_one_recorded_rank_of_a_job_has_the_size_of_the_job() -> None:
    runs = job(1.0, world_size=8), job(1.0), job(1.0, 1.0)
    assert [analyse(run).job_size for run in runs] == [8, 1, 2]


@pytest.mark.parametrize(
    ("own_cores", "threads", "shared", "expected"),
    [(1, 1, {}, None), (4, 4, {}, (8, 4)), (2, 2, {"rank_cores": 2}, (4, 2)), (2, 2, {"rank_cores": 4}, None)],
)
def test_the_threads_of_all_ranks_share_the_cores_that_these_may_use(
    own_cores: int, threads: int, shared: dict[str, int], expected: tuple[int, int] | None
) -> None:
    facts = {"torch_threads": threads, "cores": own_cores, **shared}
    ranks = RankLedger(tuple(RankActivity(rank, rank, 9, 0, 1.0, None, None) for rank in (0, 1)), 0, True)
    info = RunInfo(1, "r", "r", ("x",), facts=facts, host={"cores": 4})
    core = {"core": Measure("core", 0.5, "s")}
    step = {"step_time": Measure("step_time", 1.0, "s")}
    claim = more_threads_than_cores.judge(StepCosts(Analysis(info, step, core, {}, ranks=ranks)))
    assert (isinstance(claim, Claim) and (claim.values["threads"], claim.values["limit"])) == (expected or False)


def test_a_rank_that_ended_few_steps_is_left_out_and_named() -> None:
    builder = RunBuilder(device="cpu", world_size=2)
    for rank, steps in enumerate((40, 10)):
        for step in range(steps):
            builder.step(step * MS, (step + 1) * MS, index=step, pid=100 + rank, tid=100 + rank, rank=rank)
    ledger = analyse(builder.build()).ranks
    assert ledger is not None
    assert balance_sentence(ledger) == (
        "Rank 1 ended fewer than half as many steps as rank 0, and is left out. All of this is about rank 0 of 2."
    )
