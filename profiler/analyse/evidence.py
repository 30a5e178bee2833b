"""What stack samples say of the stepping thread: the stretch that covers each, and its host category.

A sample is on a CPU or not, and its innermost frame is torch's Python or other Python (hooks apart). On a CPU with the
GIL that is `framework` or `python`; on a CPU without it native work: `compute`, or on CUDA `framework`, the launching
of it. Not on a CPU, other Python is `python` (a sleep, a lock, a file: the line says which), and torch's is a wait for
its threads: native work as far as these had the CPU, else `python` too, as of a rank that waits for another. Library
frames that say more win: logging, saving, input. Where no window has seen the GIL's holder, native work below torch's
Python and Python elsewhere are assumed, and the interval spans all that it could be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.blocks import Blocks, block_edges, blocks, in_blocks, looked_in
from profiler.analyse.categories import CODE
from profiler.analyse.covers import (
    NUMBER,
    POOLS,
    WHOLE,
    Floats,
    Numbers,
    corrected,
    exact_covers,
    per_stack,
)
from profiler.analyse.frames import CALL, Stack
from profiler.analyse.gil import USUAL_PERIOD_S, Chance, gil_windows, holder_samples, paired, period_s
from profiler.analyse.host import HostTimeline
from profiler.analyse.model import HOST_CATEGORIES
from profiler.analyse.reading import LEAVES, OF_TORCH, Reader, reader_of
from profiler.analyse.recorded import KINDS, of_calls, region_at
from profiler.analyse.stacks import weighted
from profiler.analyse.timeline import Intervals, Times
from profiler.analyse.window import NS_PER_S, Window, device_kind
from profiler.core.notice import Notice
from profiler.run.model import Run
from profiler.run.tables import CallKind

_WAITING: Final = ("/selectors.py", "/threading.py", "/multiprocessing/connection.py", "/subprocess.py", "/queue.py")
"""The standard library's waits: a thread whose innermost frame is there is not on a CPU, if nothing else tells."""
NO_GIL: Final = Notice("no-gil-samples")


@dataclass(frozen=True, eq=False, slots=True)
class Evidence:
    """The stepping thread's samples in the measured steps, a row for all that have one stack and state."""

    stack: Numbers
    """Of each sample, the number of its stack."""
    cover: Numbers
    """Of each, the number of its cover in COVERS."""
    weight: Floats
    """ns of measured time that each stands for; corrected so that every recorded cover has its exact total."""
    raw: Floats
    """The same as the sampler saw it."""
    shares: Floats
    """Of each, the chance of each of HOST_CATEGORIES (columns): they sum to 1."""
    doubt: Floats
    """Of each, how far the chances may be off below and above for want of knowing the GIL's holder (2 x columns)."""
    stacks: Mapping[int, Stack]
    n: float
    """How many samples they are; of a program of long phases `blocks` count fewer independent ones."""
    blocks: Blocks
    window: Window
    exact: Mapping[str, Numbers]
    """Cover -> ns of it in each measured step, from the records alone; of CALL, all that is in calls."""
    gil_known: bool

    def of(self, cover: str) -> npt.NDArray[np.bool_]:
        """Which samples `cover` covers."""
        return np.asarray(self.cover == NUMBER[cover])


@dataclass(frozen=True, eq=False, slots=True)
class _Kinds:
    """Of each sample its cover, whose Python its innermost frame is, and the chance that it was on a CPU."""

    window: Window
    cover: Numbers
    leaf: Numbers
    """Of each, one of LEAVES."""
    active: Floats
    working: float = 1.0
    """Share of torch's waits off the CPU in which its own threads worked."""


@dataclass(frozen=True, eq=False, slots=True)
class _Looks:
    """When the GIL's holder was looked for, and the blocks of time in which samples and holders are compared."""

    windows: Intervals
    edges: Times
    blocks: Blocks
    n: float
    """How many samples there are in `blocks`."""


def evidence(run: Run, window: Window, host: HostTimeline) -> Evidence | None:
    """The samples of `window`, read; None without any."""
    samples, weight = weighted(run, window)
    if not len(samples):
        return None
    every = weight.astype(np.float64)
    period = period_s(run)
    n = float(every.sum() / (period * NS_PER_S) if period else every.sum() ** 2 / (every**2).sum())
    exact = exact_covers(run, window, host)
    reader = reader_of(run, host, exact)
    # samples of one stack and state are one row: hours of them are millions, of some ten thousand stacks
    inside = region_at(host, reader.own, samples["begin"])
    state = (samples["stack"].astype(np.int64) * 3 + samples["active"] + 1) * (KINDS + 1) + inside + 1
    states, row = np.unique(state, return_inverse=True)
    region, states = states % (KINDS + 1) - 1, states // (KINDS + 1)
    raw = np.bincount(row, every).astype(np.float64)
    number, known = states // 3, (states % 3 - 1).astype(np.int32)
    stacks = reader.stacks(number)
    active = _on_cpu(run, window, number, raw, known)
    doing = per_stack(number, {one: reader.doing(one, said) for one, said in stacks.items()}).astype(np.int64)
    kinds = _Kinds(window, reader.covers(stacks, number, region), reader.leaves(number, stacks), active)
    native = CODE["framework" if on_cuda(run, host) else "compute"]
    if native == CODE["compute"]:
        kinds = replace(kinds, working=_working(kinds, raw, doing))
    windows = gil_windows(run, window)
    edges = block_edges(window, windows)
    in_time = blocks(window, edges, samples["begin"], every, row)
    chances = _chances(reader, kinds, _Looks(windows, edges, in_time, n))
    calls = of_calls(reader.run, reader.host, window, number, region)
    shares, doubt = _shares(kinds, doing, native, calls, chances or {})
    weights = corrected(kinds.cover, raw, exact)
    return Evidence(
        number, kinds.cover, weights, raw, shares, doubt, stacks, n, in_time, window, exact, chances is not None
    )


def _working(kinds: _Kinds, raw: Floats, doing: Numbers) -> float:
    """Share of the time in which torch waits off the CPU that the process's other threads can have worked in."""
    steps, window = kinds.window.steps, kinds.window
    every = int(steps["process_cpu"].sum())
    waits = (kinds.cover < len(POOLS)) & (kinds.leaf == OF_TORCH) & (doing < 0)
    waiting = float((raw * (1 - kinds.active))[waits].sum())
    if not every or not waiting:
        return 1.0
    others = every - int(steps["thread_cpu"].sum())
    return min(1.0, max(0.0, others * float(raw.sum()) / (waiting * window.wall_ns)))


def _on_cpu(run: Run, window: Window, number: Numbers, weight: Floats, known: npt.NDArray[np.int32]) -> Floats:
    """The chance of each sample to have been on a CPU.

    Where the sampler cannot tell, the thread's own CPU clock, read each step or 10 ms, says how much was in all.
    """
    active = known.astype(np.float64)
    unknown = known < 0
    if not unknown.any():
        return active
    waits = {
        one: bool(run.stack_frames[one]) and run.stack_frames[one][-1].file.endswith(_WAITING)
        for one in np.unique(number[unknown]).tolist()
    }
    active[unknown] = 1.0 - per_stack(number, waits)[unknown]
    clock = int(window.steps["thread_cpu"].sum()) / window.wall_ns
    told, open_weight = float(weight[known == 1].sum()), float((weight * active)[unknown].sum())
    if clock and open_weight:
        active[unknown] *= min(1.0, max(0.0, (clock * weight.sum() - told) / open_weight))
    return active


def _chances(reader: Reader, kinds: _Kinds, looks: _Looks) -> dict[tuple[int, int], Chance] | None:
    """For each cover that is divided and kind of innermost frame P(GIL | on a CPU); None where no window saw it."""
    if not len(looks.windows):
        return None
    held, ns = holder_samples(reader.run, kinds.window, looks.windows)
    number = held["stack"].astype(np.int64)
    stacks = reader.stacks(number)
    cover = reader.covers(stacks, number, region_at(reader.host, reader.own, held["begin"]))
    leaf = reader.leaves(number, stacks)
    length = looked_in(looks.edges, looks.windows)
    counts = looks.windows.measure() / NS_PER_S / (period_s(reader.run) or USUAL_PERIOD_S), looks.n
    sampled, found = looks.blocks.ns.sum(axis=0), {}
    for pool in range(len(POOLS)):
        for kind in LEAVES:
            same = (cover == pool) & (leaf == kind)
            own = (kinds.cover == pool) & (kinds.leaf == kind)
            holding = in_blocks(looks.edges, held["begin"][same], ns[same])
            found[pool, kind] = paired(holding, length, kinds.active[own] @ looks.blocks.ns[own], sampled, counts)
    return found


def _shares(
    kinds: _Kinds, doing: Numbers, native: int, calls: Floats, chances: Mapping[tuple[int, int], Chance]
) -> tuple[Floats, Floats]:
    """Chances of the categories of each sample, and how far off they may be.

    :param doing: of each sample the category that its frames stand for, or -1.
    :param native: the category of native work.
    :param calls: of each the categories of the calls that it is in, if it is.
    """
    shares = np.zeros((len(doing), len(HOST_CATEGORIES)))
    doubt = np.zeros((2, *shares.shape))
    for pool in range(len(POOLS)):
        for kind in LEAVES:
            rows = np.flatnonzero((kinds.cover == pool) & (kinds.leaf == kind) & (doing < 0))
            torch, busy = kind == OF_TORCH, kinds.active[rows]
            holder = CODE["framework" if torch else "python"]
            gil = chances.get((pool, kind), Chance(0.0, 0.0, 1.0) if torch else Chance(1.0, 0.0, 1.0))
            shares[rows, holder] += busy * gil.value
            shares[rows, native] += busy * (1 - gil.value)
            idle = (1 - busy) * kinds.working if torch else 0.0
            shares[rows, native] += idle
            shares[rows, CODE["python"] if torch else holder] += 1 - busy - idle
            if holder != native:
                for code, side in ((holder, 1), (native, 0)):
                    doubt[side, rows, code] += busy * (gil.high - gil.value)
                    doubt[1 - side, rows, code] += busy * (gil.value - gil.low)
    told = np.flatnonzero((kinds.cover < len(POOLS)) & (doing >= 0))
    shares[told, doing[told]] = 1.0
    for name, category in WHOLE.items():
        shares[kinds.cover == NUMBER[name], CODE[category]] = 1.0
    rows = kinds.cover == NUMBER[CALL]
    shares[rows] = calls[rows]
    return shares, doubt


def on_cuda(run: Run, host: HostTimeline) -> bool:
    """Whether operators only launch work: the run says so, or calls toward a device were recorded."""
    said = device_kind(run)
    return said == "cuda" or (said != "cpu" and bool((host.calls["kind"] != CallKind.WOULD_SYNC).any()))
