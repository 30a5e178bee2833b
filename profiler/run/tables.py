"""Defines the fixed-width tables of a run directory: one layout for the writer (struct) and the reader (NumPy).

Light on purpose: the recorded program imports this through `profiler.marks`, so nothing beyond the
standard library may be imported here. All times are integer nanoseconds of CLOCK_MONOTONIC. Records are
little-endian and packed. A change of any layout raises `SCHEMA` and adds a line to HISTORY.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final

SCHEMA: Final = 5
HISTORY: Final = {
    1: "first layout",
    2: "steps may be found at load, among boundaries; stacks of the GIL's holder; calls that would sync on a GPU; "
    "CPU times of a boundary may be NOT_READ",
    3: "backward passes are boundaries where no optimizer steps; the tables `stages` and `thread_clocks`; a record of "
    "kind WOULD_SYNC stands for several calls; kind MIGHT_SYNC",
    4: "the table `counts`",
    5: "the table `library_calls`",
}


_MAX_RESULTS: Final = 4096
_MAX_INDICES: Final = 1 << 16
"""Values of one result that are stored: of numbers, and of indices with margins, of which each one matters."""


def stored_results(count: int, *, has_margins: bool) -> int:
    """Return how many of the values of a result are stored."""
    return min(count, _MAX_INDICES if has_margins else _MAX_RESULTS)


def result_positions(count: int, *, has_margins: bool) -> Sequence[int]:
    """Return the positions of the values of a result that are stored, in ascending order.

    Of more values than are stored, one position lies in each stretch of equal length, at a pseudo-random place in it:
    evenly spaced positions in the values of a matrix could all lie in one column.
    """
    most = stored_results(count, has_margins=has_margins)
    if count == most:
        return range(count)
    positions, random = [], count
    for number in range(most):
        random = next_random(random)
        begin, end = number * count // most, (number + 1) * count // most
        positions.append(begin + random * (end - begin) // RANDOM_END)
    return positions


RANDOM_END: Final = 1 << 31


def next_random(random: int) -> int:
    """Return the pseudo-random number from 0 to before RANDOM_END that follows `random`, by the generator of the C
    standard's example. All versions of Python give the same numbers, and the program's own generators are not
    touched."""
    return (1_103_515_245 * random + 12_345) % RANDOM_END


class CallKind(IntEnum):
    """The kind of a call with which the host controls a device."""

    LAUNCH = 0
    H2D = 1
    D2H = 2
    D2D = 3
    MEMSET = 4
    ALLOC = 5
    FREE = 6
    SYNC = 7
    EVENT = 8
    OTHER = 9
    WOULD_SYNC = 10
    """In older runs only: reads of tensors that would be on a GPU, as far as a search of the program's source told. A
    run is loaded as if these were MIGHT_SYNC."""
    MIGHT_SYNC = 11
    """Reads of a tensor on the CPU, which wait if it is on a GPU. `bytes` is the number of reads by one line in one
    step; 0, in older runs, stands for one."""


MIGHT_SYNC: Final = "might_sync"
"""Counter of reads of tensors on the CPU: an estimate, which cannot fail a check."""
WOULD_SYNC: Final = "would_sync"
"""Its name in older runs, and in baselines, where the program's source told that the tensors would be on a GPU."""

WORKER_OF: Final = "worker of"
"""Name of the OTHER call that a loader's worker records: its `bytes` are the pid of the process it works for."""


PAUSED: Final = "paused by the gate"
"""Name of the region in which the speed test paused a program; it belongs to no step."""

MEMORY_FILL: Final = "operator aten::fill_ of new memory"
"""The region of an operator of a foreign trace that fills memory within the operator which gets that memory."""

TOKENIZED: Final = "tokenized"
"""Counter of texts that a tokenizer encoded, and name of the OTHER call of no length that tells where: its `bytes` are
their number."""
RECOMPILED: Final = "recompilations"
"""The same for code that torch.compile compiles again; each call stands for one recompilation."""
GRAPH_BROKEN: Final = "graph breaks"
"""The same for lines at which torch.compile ends a graph and begins another one."""
NON_BLOCKING: Final = "non-blocking"
"""Ending of the name of a copy of virtual devices that the host does not wait for."""
ZERO_FILLS: Final = "zero_fills"
"""Counter of the calls that fill all gradients of a model or an optimizer with zeros."""
ZERO_FILL_NS: Final = "zero_fill_ns"
"""Counter of the time of these calls; not at level light."""
REPEATED_GRADIENT_SYNCS: Final = "repeated_gradient_syncs"
"""Counter of the forward passes of DistributedDataParallel whose backward pass synchronizes gradients, although an
earlier one has done so since the optimizer stepped."""
LINE_OF: Final = {"checkpoint": "line of checkpoint"}
"""Region -> name of the OTHER call of no length at its begin that tells the user's line."""
CALLER_OF_CHECKPOINT: Final = "caller of checkpoint"
"""Name of such calls for each line of the program from which it was called, in programs that are counted; `bytes` is
the number of the line, from 0 for the innermost one. The last function may leave the checkpoint out."""
BLOCK_OF_CHECKPOINT: Final = "block of checkpoint"
"""Name of the call after such a one that tells which lines of its function run where that line does: `site` is the
first of them, `bytes` is their number."""
GARBAGE_COLLECTION: Final = "garbage collection"
"""Name of the region of a long garbage collection, which stops all Python of a process."""

BATCH_ITEMS: Final = "batch_items"
"""Counter of the items of the batches that a program gets from its loaders."""
COUNTED: Final = "counted"
"""Name of the fact that a program was counted by line, so that its times tell nothing."""
OPERATORS: Final = "operators"
"""Name of the fact with the operators of one step by line, and of the hook that records it."""
SETTINGS: Final = "setting_lines"
"""Name of the fact with the lines that change settings which slow steps (threads, anomaly, float64, profiler), or make
objects with such settings (threads, processes, and names of classes)."""
MADE_BY: Final = " of an object"
"""End of a name in SETTINGS: a constructor made the objects. The line is the one that called the constructor."""
OF_THREAD: Final = "thread "
"""Before the number of a thread: the name in that fact of the line that started it."""
COUNTED_STEPS: Final = 5
"""Steps from the beginning to the end of that fact."""
COUNTED_LINES: Final = 100
"""Lines that it keeps: those with most time."""

COLLECTIVES: Final = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "all_reduce_coalesced",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)
"""Functions of torch.distributed in which a rank may wait for other ranks: names of OTHER calls."""
COLLECTIVE_METHODS: Final = {
    "nn.parallel.DistributedDataParallel._sync_buffers": "broadcast of buffers",
    "_C._distributed_c10d.Work.wait": "wait for a collective",
}
"""Methods below torch in which a rank may wait for other ranks -> names of OTHER calls."""


class CountKind(IntEnum):
    """What is counted exactly, by line. The table `counts` has those from OPERATOR to COLLECTIVE, and FILE; the table
    `calls` has the others."""

    SYNC = 0
    """The host waits for the device."""
    H2D = 1
    D2H = 2
    D2D = 3
    OPERATOR = 4
    """Operators that compute, which torch's dispatcher executes; `name` is the operator. A GPU would launch at least
    one kernel for each."""
    VIEW = 5
    """Operators that make a view of a tensor or only allocate one: a GPU would launch nothing."""
    FLOPS = 6
    """Floating-point operations of the operators for which `torch.utils.flop_counter` has a formula; a multiplication
    with an addition counts as two."""
    ALLOCATION = 7
    """Storages, and bytes, that operators allocate for their results."""
    GROWTH = 8
    """By how much more of these is in use than at the boundary before."""
    PEAK = 9
    """Bytes of these in use at the moment since the last boundary at which most were."""
    COLLECTIVE = 10
    """Collectives, and bytes of the tensors that they communicate."""
    GRAPH_BREAK = 11
    RECOMPILATION = 12
    TEXT = 13
    """Texts that a tokenizer encodes."""
    LAUNCH = 14
    """Kernels and CUDA graphs that the program itself launches, other than through torch's operators."""
    FILE = 15
    """Files that are opened for writing."""


class ActivityKind(IntEnum):
    """The kind of work that occupied a device's queue."""

    KERNEL = 0
    H2D = 1
    D2H = 2
    D2D = 3
    MEMSET = 4
    COMMUNICATION = 5


class BoundaryKind(IntEnum):
    """A kind of event at which a step may end."""

    OPTIMIZER = 0
    """An optimizer has stepped; flag 1: its GradScaler skipped the update."""
    LOADER = 1
    """A loader was asked for the next batch; flag 1: it had none, the epoch has ended."""
    BACKWARD = 2
    """A backward pass has ended. It is recorded only while no optimizer steps: an optimizer step takes precedence."""


MARK: Final = "mark"
"""Key of a marked step on the control socket; other boundary events have the key `KIND NAME` (BoundaryKind)."""


STEP_BOUNDARIES: Final = (BoundaryKind.OPTIMIZER, BoundaryKind.BACKWARD, BoundaryKind.LOADER)
"""Kinds of boundaries, the first of which that there is ends the steps: batches of a validation are no steps where
gradients are computed, and several backward passes may accumulate the gradients of one optimizer step."""

GRADIENTS: Final = "gradients"
"""Name of the boundary, of the kind BACKWARD, at which `torch.autograd.grad` has computed gradients."""


def boundary_priority(key: str) -> int:
    """Precedence of an event as the end of a step: a mark before an optimizer, a backward pass and a loader (0)."""
    if key == MARK:
        return len(STEP_BOUNDARIES)
    kind = BoundaryKind(int(key.partition(" ")[0]))
    return len(STEP_BOUNDARIES) - 1 - STEP_BOUNDARIES.index(kind)


class StageKind(IntEnum):
    """What a row of the table `stages` tells about the stage of a program: training, evaluation, compilation, ..."""

    EVAL_MODE = 0
    """`Module.eval()` switched a module, with its submodules, to evaluation mode; `object` is the module's id."""
    TRAIN_MODE = 1
    """`Module.train()` switched it to training mode."""
    NO_GRAD = 2
    """Time within the outermost `no_grad` or `inference_mode`; `object` is the number of backward passes before it."""
    COMPILE = 3
    """Time in which torch.compile compiled code."""
    FORWARD = 4
    """The moment at which a line began to make gradient functions that a backward pass executed; only in programs that
    are counted."""


class ValueKind(IntEnum):
    """The way in which the values of one name add up."""

    COUNTER = 0
    """Amount in that step: summed over steps."""
    GAUGE = 1
    """State at that time: averaged, or the last value counts."""


# field, struct code (all little-endian: q int64, i int32, d float64)
STEPS: Final = (
    ("index", "q"),  # from 0, over the whole process, warm-up included
    ("begin", "q"),  # ns: the boundary before
    ("end", "q"),  # ns: the boundary that closed it
    ("tokens", "q"),
    ("thread_cpu", "q"),  # ns of CPU of the thread that closed the step
    ("process_cpu", "q"),  # ns of CPU of the whole process, device threads included
    ("device_cpu", "q"),  # ns of CPU of the threads that are a device (the host device's worker); else 0
    ("tid", "q"),
    ("warmup", "i"),  # 1: not to be measured; an analysis sets ONE_OFF
)
ONE_OFF: Final = 2
"""`warmup` of a step that did work which occurs once: see `profiler.analyse.one_off`. It is never written."""
LATEST_NS: Final = 1 << 62
"""The year 2116 as ns since 1970. Nothing is recorded later, and sums of two such times still fit into 64 bits."""
NOT_READ: Final = -1
"""CPU times of a boundary that came soon after another one."""
BOUNDARIES: Final = (
    ("time", "q"),
    ("thread_cpu", "q"),  # ns so far, of the thread that reached it; or NOT_READ, as the next two
    ("process_cpu", "q"),
    ("device_cpu", "q"),
    ("tid", "q"),
    ("name", "i"),  # which optimizer, which loader
    ("kind", "i"),  # BoundaryKind
    ("flag", "i"),
)
THREAD_CLOCKS: Final = (
    ("time", "q"),
    # ns of CPU so far, of the thread that recorded a step or a boundary; of readings at the ends of a region NOT_READ
    ("cpu", "q"),
    ("delay", "q"),  # ns so far in which it could have run and waited for a core: the kernel's run_delay
    ("tid", "q"),
)
REGIONS: Final = (
    ("begin", "q"),
    ("end", "q"),
    ("tid", "q"),
    ("name", "i"),
    ("depth", "i"),  # 0: outermost on its thread
)
CALLS: Final = (
    ("begin", "q"),
    ("end", "q"),
    ("blocked", "q"),  # ns within [begin, end] in which the host was blocked on the device; ends at `end`
    ("bytes", "q"),
    ("correlation", "q"),  # joins the activity that it caused; 0: none
    ("tid", "q"),
    ("kind", "i"),  # CallKind
    ("name", "i"),
    ("site", "i"),  # -1: unknown
    ("stream", "i"),
)
LIBRARY_CALLS: Final = (
    ("time", "q"),  # the begin of one of `calls` on this thread
    ("tid", "q"),
    ("site", "i"),  # the line of a library that makes it, where the program's line calls a library
)
ACTIVITIES: Final = (
    ("begin", "q"),
    ("end", "q"),
    ("bytes", "q"),
    ("correlation", "q"),
    ("kind", "i"),  # ActivityKind
    ("name", "i"),
    ("stream", "i"),
    ("device", "i"),
)
NO_MARKED_STEP: Final = -1
"""Step of a value that was written at no marked step; loading assigns it to the step at whose time it was written."""
STEP_OF_ANOTHER_PROCESS: Final = -2
"""Step of a value that a process counted for another process: the step that is open there at that time."""
VALUES: Final = (
    ("time", "q"),
    ("step", "q"),  # index of its step, NO_MARKED_STEP or STEP_OF_ANOTHER_PROCESS
    ("value", "d"),
    ("name", "i"),
    ("kind", "i"),  # ValueKind
)
SAMPLES: Final = (
    ("time", "q"),
    ("pid", "q"),
    ("tid", "q"),  # 0: the whole process, or the machine where pid is 0 too
    ("value", "d"),
    ("name", "i"),
    ("pad", "i"),
)
STACKS: Final = (
    ("begin", "q"),
    ("end", "q"),  # begin of the next sample of this thread: the span this stack stands for
    ("pid", "q"),
    ("tid", "q"),
    ("stack", "i"),  # index into stacks.jsonl of the same source
    ("active", "i"),  # 1: on a CPU, 0: idle (blocked), -1: not known
)

STAGES: Final = (
    ("begin", "q"),
    ("end", "q"),  # equal to `begin` for a change of mode
    ("object", "q"),
    ("tid", "q"),
    ("name", "i"),
    ("kind", "i"),  # StageKind
)

COUNTS: Final = (
    ("time", "q"),  # the end of the step or boundary until which, from the one before, this was counted
    ("count", "q"),
    ("bytes", "q"),
    ("name", "i"),
    ("kind", "i"),  # CountKind
    ("site", "i"),  # -1: no line of the program
)

KINDS: Final[dict[str, type[IntEnum]]] = {
    "calls": CallKind,
    "activities": ActivityKind,
    "values": ValueKind,
    "boundaries": BoundaryKind,
    "stages": StageKind,
    "counts": CountKind,
}
"""Table -> what its column `kind` holds."""

TABLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "steps": STEPS,
    "regions": REGIONS,
    "calls": CALLS,
    "activities": ACTIVITIES,
    "values": VALUES,
    "samples": SAMPLES,
    "stacks": STACKS,
    "boundaries": BOUNDARIES,
    "gil_stacks": STACKS,
    "stages": STAGES,
    "thread_clocks": THREAD_CLOCKS,
    "counts": COUNTS,
    "library_calls": LIBRARY_CALLS,
}
"""gil_stacks: samples of other windows, of only the thread that holds the GIL."""


def packer(table: str) -> struct.Struct:
    """Return the struct that writes one record of `table`."""
    return struct.Struct("<" + "".join(code for _, code in TABLES[table]))


# Manifest and file names.
MANIFEST: Final = "run.json"
SOURCE_META: Final = "source.json"
CHANGED_LOADER: Final = "changed_loader"
"""Fact of a program under `try`: the DataLoader of the blamed line was made, and was changed."""
NAMES: Final = "names.jsonl"
SITES: Final = "sites.jsonl"
STACK_TEXTS: Final = "stacks.jsonl"
RESULTS: Final = "results.jsonl"
STOPPED: Final = "stopped"  # an empty file: this process could not write on (it needs no room on a full disk)
RELEASED: Final = "released"
"""File that tells the processes of a run that enough is recorded, and that they go on without it."""
HOOKED: Final = (
    "hooked"  # a line for each process that our hooks came into: `python PID`, and `torch PID` once it is there
)

# How the recorder tells a recorded program what to do.
ENV_RUN: Final = "PROFILER_RUN_DIR"
ENV_LEVEL: Final = "PROFILER_LEVEL"
ENV_RECORDER: Final = "PROFILER_RECORDER_PID"
ENV_VIRTUAL_CUDA: Final = "PROFILER_VIRTUAL_CUDA"  # number and name of virtual devices, as in 1:h100
ENV_COUNT: Final = "PROFILER_COUNT"  # not empty: count operators, memory and reads by line
ENV_CONTROL: Final = "PROFILER_TURNS"  # the socket of a gate that says how many steps to run
ENV_TRACE_STEPS: Final = "PROFILER_TRACE_STEPS"  # how many steps torch's trace covers
ENV_TRACE_SECONDS: Final = "PROFILER_TRACE_SECONDS"  # of long steps: begin so long after the first, last as long
ENV_MARKS_ONLY: Final = "PROFILER_MARKS_ONLY"  # not empty: of all hooks, only those that leave the program as it is
ENV_HOOKS: Final = "PROFILER_HOOKS"  # where PYTHONPATH brings our hooks in: taken off again for the program
LEVELS: Final = ("light", "standard", "full")


def source_name(pid: int, number: int = 1) -> str:
    """Folder of the number-th process with this pid: after an exec, or when the system uses a pid again."""
    return f"source-{pid}" if number == 1 else f"source-{pid}-{number}"


def pid_of(folder: str) -> int | None:
    """Return the pid in the name of a source folder; None if it is no such folder."""
    prefix, _, numbers = folder.partition("-")
    pid, _, number = numbers.partition("-")
    return int(pid) if prefix == "source" and pid.isdecimal() and (number or "2").isdecimal() else None


def first_to_stop(folder: Path) -> bool:
    """Note that the process of `folder` cannot write any more; True for the first of the run, which reports it."""
    _mark(folder)
    return _mark(folder.parent)


def _mark(folder: Path) -> bool:
    """Empty files need no space. True also if there is no folder: the message may then appear twice."""
    try:
        os.mknod(folder / STOPPED)  # needs no file descriptor either
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
