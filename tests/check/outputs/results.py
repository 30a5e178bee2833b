"""Made-up results of checks: nothing in here was measured, and every verdict says SYNTHETIC."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

from profiler.check.model import (
    BASE,
    CANDIDATE,
    CONFIRM,
    FAIL,
    INCONCLUSIVE,
    MEASURE,
    NOT_COMPARABLE,
    PASS,
    Change,
    Conditions,
    CounterLine,
    GateResult,
    Hunk,
    Limit,
    Limits,
    Round,
    SideInfo,
    SlowerLine,
    StepBlock,
    Throughput,
    TimeLine,
    WorseCause,
)
from profiler.check.outputs.history import Entry, History, HistoryBounds
from profiler.check.speed.rounds import round_values
from profiler.core.errors import Notice

HOSTILE = (
    "<script>alert('boo')</script> | `tick` **bold** [link](javascript:alert(1)) & \"quote\"\r\n::error::owned\n"
    "##[error]owned %0A, a:b=c \x1b[31mred\x07\x00\u202eder \ud800 \ufffe ]]> @everyone 数据 naïve"
)
"""Text that some output must escape."""
MACHINE = {
    "cpu": "AMD EPYC 7B13",
    "cores": "2",
    "gpu": "none",
    "kernel": "6.1.0-18-amd64",
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
}


def free(text: str) -> Notice:
    return Notice("text", {"text": text})


SYNC = Change("syncs", "examples/train.py", 104, "train_step", "item", 0.0, 1.0)


def step_block(side: str, begin: int, step_ns: float, noise: random.Random) -> StepBlock:
    steps = tuple(int(step_ns * noise.lognormvariate(0.0, 0.02)) for _ in range(8))
    return StepBlock(side, begin, steps, tokens=8 * 512)


@functools.cache
def rounds(slower: float, count: int = 5, *, confirm: int = 0, seed: int = 1) -> tuple[Round, ...]:
    noise, measured = random.Random(seed), []
    for number in range(1, count + confirm + 1):
        kind = MEASURE if number <= count else CONFIRM
        slots = (BASE, CANDIDATE) if kind == MEASURE else (CANDIDATE, BASE)
        level = 5e7 * noise.lognormvariate(0.0, 0.06)
        speeds = {BASE: level, CANDIDATE: level * (1 + slower)}
        blocks = [
            step_block(side, 1_000_000_000 * (100 * number + 10 * repeat + at), speeds[side], noise)
            for repeat in range(4)
            for at, side in enumerate(slots if repeat % 2 else slots[::-1])
        ]
        load = Conditions(load=1.4 + 0.1 * number, steal=0.004 * number, throttled=(), cores=2)
        measured.append(Round(number, kind, slots, tuple(blocks), seconds=11.7, conditions=load))
    return tuple(measured)


def with_values(gate: Throughput) -> Throughput:
    """With the slow-downs of its rounds, as a concluded result has them."""
    return replace(gate, round_slowdowns=tuple(round_values(item).typical for item in gate.rounds))


def side(label: str, what: str, commit: str | None = None) -> SideInfo:
    command, steps = "python examples/train.py --steps 200", ("profiler.step()", 0.0502, 10_200.0)
    return SideInfo(label, what, command, commit, *steps, {"dtype": "fp32"})


COUNTERS = (
    CounterLine("syncs", PASS, (12.0, 12.0), (12.0, 12.0), 12.0),
    CounterLine("h2d", PASS, (4.0, 4.0), (4.0, 4.0), 4.0),
    CounterLine("d2h", PASS, (2.0, 2.0), (2.0, 2.0), 2.0),
    CounterLine("h2d_bytes", PASS, (1_548_000.0, 1_548_000.0), (1_548_000.0, 1_548_000.0), 1_548_000.0),
    CounterLine("allocations", PASS, (310.0, 312.0), (310.0, 312.0), 312.0),
    CounterLine("tokenized", PASS, (16.0, 16.0), (16.0, 16.0), 16.0, scope="worker"),
)
TIMES = (
    TimeLine("typical step", PASS, 0.003, -0.006, 0.012, 5, 0.031),
    TimeLine("all steps", PASS, -0.012, -0.024, 0.001, 5, 0.036),
)


@functools.cache
def passed() -> GateResult:
    return GateResult(
        PASS,
        "SYNTHETIC: no counter rose, and a slow-down of 5% is ruled out.",
        side(BASE, "origin/main", "3fa2c1d0e9b8a7f6c5d4e3f2a1b0c9d8e7f6a5b4"),
        side(CANDIDATE, "the working tree"),
        Limits(),
        "against",
        COUNTERS,
        PASS,
        throughput=with_values(Throughput(PASS, TIMES, rounds(0.003))),
        notes=(free("A slow-down between 2% and 5% may pass or fail."),),
        machine=MACHINE,
        created_at="2026-11-20T10:30:00+00:00",
        seconds=61.4,
        out="reports/runs/2026-11-20-check",
    )


@functools.cache
def failed() -> GateResult:
    counters = (
        replace(COUNTERS[0], state=FAIL, after=(13.0, 13.0), changes=(SYNC,)),
        replace(COUNTERS[1], after=(3.0, 3.0), reasons=(free("fewer: refresh the baseline"),)),
        *COUNTERS[2:4],
        CounterLine("allocations", PASS, (310.0, 312.0), (310.0, 313.0), 318.0, (free("within the limit of 2%"),)),
        CounterLine("files", FAIL, None, (2.0, 2.0), 0.0, (free("the baseline has none"),)),
        COUNTERS[5],
    )
    times = (
        TimeLine("typical step", FAIL, 0.0521, 0.0411, 0.0631, 5, 0.023),
        TimeLine("all steps", INCONCLUSIVE, 0.037, -0.004, 0.078, 5, 0.061, 4, 47.0),
    )
    speed = Throughput(
        FAIL,
        times,
        rounds(0.053, 5, confirm=3),
        free("confirmed by 3 rounds with slots swapped"),
        confirmed=True,
    )
    stolen = free("4.1% of the cores' time went to other virtual machines.")
    return replace(
        passed(),
        state=FAIL,
        sentence="SYNTHETIC: 1 sync more per step at examples/train.py:104, and a typical step takes 5.3% longer.",
        counters=counters,
        counters_state=FAIL,
        throughput=with_values(replace(speed, warnings=(stolen,))),
        causes=(
            WorseCause(
                "hidden-sync",
                "examples/train.py",
                104,
                0.0,
                0.0031,
                "SYNTHETIC: the host waits for the device at train.py:104 (hidden-sync): new, 3.10 ms of each step.",
                "Keep the value on the device.",
            ),
        ),
        explanation="SYNTHETIC: candidate runs 0.95x the steps/s of base (most at examples/train.py:104).",
        warnings=(free("The load rose from 1.5 to 2.2 runnable threads while this was measured."),),
        limits=Limits(counters={"allocations": Limit(relative=0.02)}),
    )


@functools.cache
def failed_with_changes() -> GateResult:
    """A FAIL against a revision, with the lines that take longer and what changed at them."""
    hunk = Hunk(
        "examples/train.py",
        101,
        101,
        (
            "     loss = model(batch)",
            "     optimizer.zero_grad()",
            "-    total += loss.detach()",
            "+    # <b>as text</b>",
            "+    total += loss.item()",
            "     loss.backward()",
        ),
    )
    lines = (
        SlowerLine("examples/train.py", 104, "train_step", 0.0004, 0.0031, True, "total += loss.item()"),
        SlowerLine("examples/model.py", 12, "Net.forward", 0.0, 0.0011, False, "x = self.norm(x)"),
    )
    return replace(failed(), hunks=(hunk,), slower_lines=lines)


@functools.cache
def failed_baseline() -> GateResult:
    """Counters against a file: sites elsewhere, with odd letters, unknown, twice in a function, and a gain."""
    odd = [replace(SYNC, file=file) for file in ("/usr/lib/a b#c.py", "src/ä%20?.py", "")]
    gain = replace(SYNC, line=90, function="f", before=2.0, after=1.0)
    copy = Change("h2d", "examples/train.py", 50, "train_step", "", 4.0, 5.0)
    counters = (
        replace(COUNTERS[0], state=FAIL, after=(17.0, 17.0), changes=(SYNC, replace(SYNC, line=110), *odd, gain)),
        replace(COUNTERS[1], state=INCONCLUSIVE, after=(5.0, 5.0), changes=(copy, replace(copy, line=0))),
        replace(COUNTERS[2], after=(1.0, 1.0), reasons=(free("fewer"),)),
        CounterLine("files", FAIL, None, (2.0, 2.0), 0.0, (free("the baseline has none"),)),
    )
    limits = {"*": Limit(1.0), "h2d_bytes": Limit(0.0, 0.02)}
    return replace(
        failed(),
        mode="baseline",
        baseline_file="baseline.json",
        throughput=None,
        counters=counters,
        limits=Limits(counters=limits, ignore=("syncs",), inconclusive="pass"),
    )


@functools.cache
def inconclusive() -> GateResult:
    times = (
        TimeLine("typical step", INCONCLUSIVE, 0.028, -0.011, 0.067, 20, 0.071, 12, 141.0),
        TimeLine("all steps", PASS, -0.004, -0.03, 0.02, 20, 0.038),
    )
    bias = (free("The first slot is 3.1% slower."),)
    speed = Throughput(INCONCLUSIVE, times, rounds(0.028, 20), free("20 rounds are over"), warnings=bias)
    sentence = "SYNTHETIC: no counter rose; 20 rounds on this machine could not tell +2.8% from none or from 5%."
    return replace(passed(), state=INCONCLUSIVE, sentence=sentence, throughput=with_values(speed))


def other_machine() -> GateResult:
    """A baseline that says nothing here: no counter was compared."""
    return replace(
        passed(),
        state=NOT_COMPARABLE,
        sentence="SYNTHETIC: the baseline is of torch 2.9, this is torch 2.13: nothing was compared.",
        mode="baseline",
        counters=(),
        counters_state=NOT_COMPARABLE,
        counters_reasons=(free("the baseline is of torch 2.9.0, this is 2.13.0: refresh it with check --update"),),
        throughput=None,
        baseline_file="tests/baseline.json",
    )


def unmeasured() -> GateResult:
    """A throughput gate of which nothing came."""
    nothing = TimeLine("typical step", INCONCLUSIVE, None, None, None, 0, None)
    return replace(
        passed(),
        state=INCONCLUSIVE,
        sentence="SYNTHETIC: the candidate took fewer steps than a turn needs.",
        counters=(),
        counters_state=None,
        throughput=Throughput(INCONCLUSIVE, (nothing,), (), free("too few steps")),
        out="",
        machine={},
    )


@functools.cache
def unknown_conditions() -> GateResult:
    """Rounds of which little is known."""
    gate = speed(failed())
    bare = tuple(replace(item, conditions=Conditions(), blocks=()) for item in gate.rounds)
    slowdowns = (0.39, None)
    return replace(failed(), throughput=replace(gate, rounds=bare, reason=None, round_slowdowns=slowdowns))


@functools.cache
def hostile() -> GateResult:
    """Every text is hostile, and numbers are not finite."""
    bad = HOSTILE
    change = Change(bad, bad, 7, bad, bad, 1.0, float("inf"))
    return GateResult(
        FAIL,
        bad,
        SideInfo(bad, bad, bad, bad, bad, float("nan"), float("inf"), {bad: bad, "nan": float("nan")}),
        SideInfo(bad, bad, bad),
        Limits(counters={bad: Limit(1.0, 0.5)}, ignore=(bad,)),
        bad,
        (CounterLine(bad, FAIL, (1.0, 2.0), (3.0, float("inf")), float("nan"), (free(bad),), (change,)),),
        FAIL,
        (free(bad),),
        Throughput(
            FAIL,
            (TimeLine(bad, FAIL, 900.0, float("-inf"), float("nan"), 3, float("inf"), 3, float("inf")),),
            (replace(rounds(0.05, 1)[0], kind=bad, slots=(bad, bad), conditions=Conditions(throttled=(bad,))),),
            free(bad),
            warnings=(free(bad),),
        ),
        (free(bad),),
        (free(bad),),
        {bad: bad},
        bad,
        bad,
        bad,
        float("nan"),
        bad,
        causes=(WorseCause(bad, bad, 7, float("nan"), float("inf"), bad, bad),),
        slower_lines=(SlowerLine(bad, 7, bad, float("nan"), float("inf"), True, bad),),
        hunks=(Hunk(bad, 5, 5, (f" {bad}", f"-{bad}", f"+{bad}", f"+{bad}")),),
    )


def history() -> History:
    """21 checks; from the 13th on the candidate has a synchronization more and is slower."""
    entries = tuple(
        Entry(
            f"2026-05-{1 + k:02}T12:30:59+00:00",
            FAIL if k == 12 else PASS,
            commit=f"{k:02}abcdef",
            what=f"working tree ({k:02}abcde{'+changes' * (k == 12)})",
            counters={"syncs": (2.0 + (k >= 12),) * 2, "h2d_bytes (workers)": (4096.0,) * 2},
            slowdowns={
                "typical step": HistoryBounds(0.01 if k == 12 else 0.001 * (k % 3), -0.01, 0.06, 7),
                "all steps": HistoryBounds(0.03, 0.02 if k == 12 else -0.02, 0.04, 7),
            },
            step_time=0.05 * (1.05 if k >= 12 else 1) + 0.0001 * (k % 4),
            machine={"cpu": "A | B", "cores": "2"},
        )
        for k in range(20)
    )
    by_command = replace(entries[-1], what="python train.py", command="python train.py")
    return History("history.jsonl", (*entries, by_command), (free("line 3 is damaged"),))


def speed(result: GateResult) -> Throughput:
    assert result.throughput is not None
    return result.throughput


def everything() -> dict[str, GateResult]:
    return {
        "passed": passed(),
        "failed": failed(),
        "failed with changes": failed_with_changes(),
        "failed baseline": failed_baseline(),
        "inconclusive": inconclusive(),
        "other machine": other_machine(),
        "unmeasured": unmeasured(),
        "unknown conditions": unknown_conditions(),
        "hostile": hostile(),
    }
