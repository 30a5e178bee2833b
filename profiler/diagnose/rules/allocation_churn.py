"""Recognizes memory that the kernel gives the program anew in each step, since tensors are freed and made again."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import GainMethod
from profiler.analyse.model import Stage
from profiler.core.syntax import called_functions
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import MAX_SITES, Claim, Rule, StepCosts, largest_sites
from profiler.run.model import Site

_PAGE_BYTES: Final = 4096
"""Of x86-64, and of most kernels for 64-bit Arm. With larger pages less memory is seen than there is."""
_LARGE_BYTES: Final = 32 << 20
"""glibc keeps freed blocks below this size, and gives larger ones back to the kernel at once
(DEFAULT_MMAP_THRESHOLD_MAX in malloc.c, for 64 bits)."""
_FAULT_S: Final = 2e-6
"""Seconds that the first use of a page takes at most: 1.4 µs were measured (virtual machine, AMD EPYC)."""
_MOST_GROWTH: Final = 0.5
"""Share of the new memory that the program may keep: else its memory grows, which is another cause."""
_COPIES: Final = frozenset(("cat", "clone", "contiguous", "hstack", "repeat", "stack", "vstack"))
"""Functions of torch that copy tensors into a new one."""
_MOSTLY: Final = 0.5
"""Share of the time that must lie in the lines that are named. A choice."""


def judge(costs: StepCosts) -> Claim | None:
    """The time in which the kernel hands out memory, where it is as much as one large block per step. Reads of mapped
    files look alike, and a compiler needs new memory too: nothing is claimed then."""
    pages, kernel = costs.analysis.value("page_faults"), costs.analysis.value("kernel_time")
    computing, new = costs.cost("compute"), (pages or 0.0) * _PAGE_BYTES
    if not pages or not kernel or costs.has_queue or costs.is_device_unseen or new < _LARGE_BYTES:
        return None
    grows = (costs.analysis.value("memory_growth") or 0.0) > _MOST_GROWTH * new
    is_other = costs.cost("input").seconds >= NAMED * costs.active or costs.phase(Stage.COMPILE) is not None
    if grows or is_other or not costs.is_known("compute"):
        return None
    seconds = min(kernel, pages * _FAULT_S, computing.seconds)
    claimed = computing.part(seconds / computing.seconds) if computing.seconds else computing
    return Claim(
        {"compute": claimed},
        _sites(costs, claimed.seconds),
        {"new": new, "pages": pages, "kernel": kernel},
        method=GainMethod.ESTIMATE,
    )


def _sites(costs: StepCosts, claimed: float) -> tuple[Site, ...]:
    """The lines that compute most, as many as compute so long that most of this time must lie in them: samples do not
    tell the kernel's time from other computing. Where those are too many, the lines that call functions which copy."""
    lines = sorted(costs.analysis.lines, key=lambda line: -line.categories.get("compute", 0.0))
    elsewhere = costs.cost("compute").seconds
    for number, line in enumerate(lines[:MAX_SITES], 1):
        elsewhere -= line.categories.get("compute", 0.0)
        if claimed - elsewhere >= _MOSTLY * claimed:
            return tuple(each.site for each in lines[:number])
    copying = (line for line in lines if _copies(line.site.source))
    return largest_sites(line.site for line in copying if line.active >= NAMED * costs.active)


def _copies(source: str) -> bool:
    return any(name.rpartition(".")[2] in _COPIES for name in called_functions(source))


PLUGIN = Rule(
    "allocation-churn",
    "Each step gets large tensors anew from the kernel",
    (
        "The kernel gives the training thread {new:size} of memory per step, in {pages:count} pages.",
        "In {kernel:time} of each step that thread is in the kernel.",
    ),
    "Make large tensors once and fill them in each step, or start the program with an allocator that keeps memory.",
    judge,
    # a small transformer of pytorch/examples (word_language_model) on one core: a step takes 0.15 s with these settings
    # of jemalloc, 0.21 s with its own, which give memory back to the kernel, and 0.26 s without it
    code="MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1 LD_PRELOAD=libjemalloc.so.2 python ...",
    threshold=NAMED,
    threshold_source="A tenth: some new memory per step is common. _LARGE_BYTES is glibc's, _FAULT_S was measured.",
)
