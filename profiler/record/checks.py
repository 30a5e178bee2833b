"""Holds the checks of `doctor`. Each does once what it is about, where that is harmless."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Lock
from typing import Any, Final

from profiler.core.errors import ProfilerError
from profiler.core.machine import NO, NOT_KNOWN, PARTLY, YES, Answer
from profiler.core.plugins import entry_points
from profiler.core.procfs import cpu_times, process_tree, thread_times
from profiler.core.units import share, size
from profiler.record import kernel
from profiler.record.collectors._pyspy import find_py_spy, may_preempt
from profiler.record.collectors.gpu import GpuReader
from profiler.record.doctor import Check, ProgramError, Setup, check, output_of, waiting_python
from profiler.record.launch import last_output_line, record
from profiler.run.model import HOOKS, RunSpec

# ---------------------------------------------------------------- the Python that trains


_OLDEST_PYTHON: Final = (3, 11)
_ANSWER_TIMEOUT_S: Final = 10.0
_TORCH_IMPORT_TIMEOUT_S: Final = 45.0
"""Importing torch from a cold disk takes 20 s and more."""
_LIBRARIES: Final = (
    "transformers",
    "lightning",
    "pytorch-lightning",
    "accelerate",
    "datasets",
    "tokenizers",
    "sentencepiece",
)
_NAME_PYTHON: Final = "name the Python that trains: doctor --python EXE"

_PYTHON_PROGRAM: Final = """
import json, platform, sys, sysconfig
print(json.dumps([list(sys.version_info[:3]), platform.python_implementation(),
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), bool(sysconfig.get_config_var("Py_DEBUG"))]))
"""
_LIBRARIES_PROGRAM: Final = """
import json, sys
from importlib import metadata
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""
_TORCH_PROGRAM: Final = """
import importlib.util, json, sys
spec = importlib.util.find_spec("torch")
if spec is None:
    print(json.dumps({"missing": True})); sys.exit()
import torch
build = {"version": torch.__version__, "file": torch.__file__, "cuda": torch.version.cuda, "hip": torch.version.hip,
         "kineto": torch.profiler.kineto_available()}
build["activities"] = [str(activity).rpartition(".")[2] for activity in torch.profiler.supported_activities()]
try:
    build["gpus"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if build["gpus"]:
        torch.zeros(1, device="cuda").item()
except Exception as error:
    build["error"] = " ".join(str(error).split())[:200]
print("\\n" + json.dumps(build))
"""
_NUMBA_CUDA_PROGRAM: Final = """
from importlib.metadata import version
numba_cuda = version("numba-cuda")
from cuda.pathfinder import load_nvidia_dynamic_lib
for name in ("nvvm", "nvrtc"):
    load_nvidia_dynamic_lib(name)
print(numba_cuda)
"""


@check("python", "Python", order=10, needed=True, patience_s=15)
def python(setup: Setup) -> Answer:
    """Ask the interpreter for its version and build: it may differ from the one that runs the profiler."""
    try:
        answer = output_of([setup.python, "-c", _PYTHON_PROGRAM], _ANSWER_TIMEOUT_S)
    except ProgramError as error:
        return Answer(NO, f"{setup.python}: {error}", _NAME_PYTHON)
    version, build, free_threaded, debug = json.loads(answer)
    shown = f"{build} {'.'.join(map(str, version))} at {setup.python}"
    if build != "CPython" or tuple(version[:2]) < _OLDEST_PYTHON:
        return Answer(NO, f"{shown}: CPython 3.11 or later is needed", "make an environment with Python 3.11 or later")
    if free_threaded or debug:
        kind = "free-threaded" if free_threaded else "debug"
        return Answer(PARTLY, f"{shown}, a {kind} build, on which this profiler is not tested")
    return Answer(YES, shown)


@check("libraries", "libraries known", order=21, patience_s=15)
def libraries(setup: Setup) -> Answer:
    """List the installed libraries that hooks support, without importing them."""
    try:
        versions = json.loads(output_of([setup.python, "-c", _LIBRARIES_PROGRAM, *_LIBRARIES], _ANSWER_TIMEOUT_S))
    except ProgramError as error:
        return Answer(NOT_KNOWN, str(error))
    if not versions:
        return Answer(YES, f"none of {', '.join(_LIBRARIES)}: steps of plain torch are found too")
    return Answer(YES, ", ".join(f"{name} {version}" for name, version in versions.items()))


@check("torch", "torch", order=11, patience_s=_TORCH_IMPORT_TIMEOUT_S + 2)
def torch(setup: Setup) -> Answer:
    """Find out where torch is, which build it is, and whether it computes on a GPU."""
    build = torch_build(setup.python)
    if isinstance(build, ProgramError):
        return Answer(NO, f"torch cannot be imported: {build}", f"{setup.python} -c 'import torch' shows the fault")
    if build.get("missing"):
        return Answer(NO, f"not installed in {setup.python}", _NAME_PYTHON)
    kind = f"CUDA {build['cuda']}" if build["cuda"] else f"ROCm {build['hip']}" if build["hip"] else "for the CPU only"
    shown, folder = f"{build['version']}, {kind}", f"(in {Path(build['file']).parent})"
    if build.get("error"):
        return Answer(PARTLY, f"{shown}; its GPU fails: {build['error']} {folder}", "ask the driver: nvidia-smi")
    if gpus := build["gpus"]:
        return Answer(YES, f"{shown}; it computes on {gpus} GPU{'s' if gpus > 1 else ''} {folder}")
    if build["cuda"] or build["hip"]:
        return Answer(PARTLY, f"{shown}; it sees no GPU: programs run on the CPU {folder}")
    return Answer(YES, f"{shown}: counts the reads that may wait on a GPU {folder}")


@check("kineto", "torch's trace (full)", order=61, patience_s=_TORCH_IMPORT_TIMEOUT_S + 2)
def kineto(setup: Setup) -> Answer:
    """Find out which activities torch's own profiler can record for level full."""
    build = torch_build(setup.python)
    if isinstance(build, ProgramError):
        return Answer(NOT_KNOWN, "torch cannot be imported")
    if build.get("missing") or not build.get("kineto"):
        reason = "no torch" if build.get("missing") else "this torch was built without Kineto"
        return Answer(NO, reason, "pip install torch")
    if not build["gpus"]:
        return Answer(YES, "operators of the CPU; no GPU is seen, so no kernels")
    if "CUDA" in build["activities"]:
        return Answer(YES, "operators of the CPU and, by CUPTI, every kernel and copy of the GPU")
    return Answer(PARTLY, "operators of the CPU only: CUPTI does not work in this torch")


def torch_build(python: str) -> Mapping[str, Any] | ProgramError:
    """Describe torch, from a process of its own, since a driver may hang it. Both checks share one process."""
    with _one_import:
        return _torch_build(python)


_one_import: Final = Lock()


@cache
def _torch_build(python: str) -> Mapping[str, Any] | ProgramError:
    try:
        build: Mapping[str, Any] = json.loads(
            output_of([python, "-c", _TORCH_PROGRAM], _TORCH_IMPORT_TIMEOUT_S).splitlines()[-1]
        )
    except ProgramError as error:
        return error
    except (ValueError, IndexError):
        return ProgramError("its answer cannot be read")
    return build


@check("numba-cuda", "bundled trainer, GPU", order=62, patience_s=15)
def numba_cuda(setup: Setup) -> Answer:
    """Load libnvvm and nvrtc, which compile the bundled trainer's kernels, in a process of its own."""
    try:
        version = output_of([setup.python, "-c", _NUMBA_CUDA_PROGRAM], _ANSWER_TIMEOUT_S).strip()
    except ProgramError as error:
        remedy = 'pip install "numba-cuda[cu13]" (a driver for CUDA 12: cu12)'
        return Answer(NO, f"it runs on the host device only: {error}", remedy)
    return Answer(YES, f"numba-cuda {version} with libnvvm and nvrtc; a GPU is also needed")


# ---------------------------------------------------------------- recording


_RECORDING_S: Final = 10.0
_DUMP_S: Final = 8.0
_REFUSED: Final = re.compile(r"permission denied|not permitted", re.IGNORECASE)


@check("inside", "steps, waits, syncs", order=20, needed=True, patience_s=20)
def hooks(setup: Setup) -> Answer:
    """Record a program that imports an empty torch, and look whether hooks came in."""
    with TemporaryDirectory(prefix="profiler-doctor-") as folder:
        program = Path(folder) / "program.py"
        program.write_text("import torch\n", encoding="utf-8")
        program.with_name("torch.py").write_text("# stands for the real one: hooks come in when it is imported\n")
        spec = RunSpec(
            (setup.python, str(program)),
            Path(folder) / "run",
            level="standard",
            collectors=(),
            timeout=_RECORDING_S,
            quiet=True,
        )
        try:
            info = record(spec)
        except ProfilerError as error:
            return Answer(NO, str(error))
        printed = last_output_line(spec.out)
    if info.exit_code:
        return Answer(NO, f"a recorded Python exits with {info.exit_code}: {printed or 'it printed nothing'}")
    processes = info.python_processes
    if processes is None or processes[1] == 0:
        status = info.collector(HOOKS)
        reason = printed or (status.reason if status else "") or "it ignores PYTHONPATH"
        return Answer(NO, f"hooks do not come into {setup.python}: {reason}")
    return Answer(YES, "hooks come into the program (not into a Python started with -I, -E or -S: leave these off)")


@check("stacks", "Python stacks", order=30, needed=True, patience_s=20)
def stacks(setup: Setup) -> Answer:
    """Dump the stack of a Python that allows it, as recorded programs do."""
    return _dump_stack(setup, "py-spy read the stack of a Python that was started here", allow_tracing=True)


@check("attach", "attach", order=31, patience_s=20)
def attach(setup: Setup) -> Answer:
    """Dump the stack of a Python that allows nothing, as any other program of the same user."""
    scope = kernel.ptrace_scope()
    shown = f" (kernel.yama.ptrace_scope is {scope})" if scope else ""
    success = "py-spy may read programs of the same user not started with `profiler run`"
    return _dump_stack(setup, success, f" toward programs not started with `profiler run`{shown}", allow_tracing=False)


def _dump_stack(setup: Setup, success: str, toward: str = "", *, allow_tracing: bool) -> Answer:
    py_spy = find_py_spy()
    if py_spy is None:
        return Answer(NO, "py-spy is not installed", "pip install py-spy")
    with waiting_python(setup.python, allow_tracing=allow_tracing) as pid:
        try:
            dump = output_of([py_spy, "dump", "--pid", str(pid)], _DUMP_S)
            refusal = "" if "Thread" in dump else "py-spy saw no thread of a Python that runs"
        except ProgramError as error:
            refusal = "ptrace is forbidden here" if _REFUSED.search(str(error)) else f"py-spy: {error}"
    return Answer(NO, refusal + toward, kernel.remedy()) if refusal else Answer(YES, success)


@check("preempt", "unbiased stacks", order=32)
def preempt(_: Setup) -> Answer:
    """Take real-time priority, and give it back."""
    if may_preempt():
        return Answer(YES, "the sampler may preempt the program (real-time priority)")
    return Answer(
        PARTLY,
        "no real-time priority here: where all cores are busy, samples lean toward waiting",
        "run as root, or start the container with: docker run --cap-add SYS_NICE ...",
    )


@check("gpu", "GPU use (NVML)", order=60, patience_s=10)
def gpu(_: Setup) -> Answer:
    """Read every figure of every GPU once."""
    gpus = GpuReader()
    if gpus.error:
        container = "where there is a GPU: start the container with --gpus all"
        return Answer(NO, str(gpus.error), gpus.error.remedy or container)
    uses = gpus.all()
    driver = gpus.driver()
    gpus.close()
    refused = sorted({name for use in uses for name, value in use.figures().items() if value is None})
    models = Counter(use.name for use in uses)
    shown = f"{', '.join(f'{number} × {model}' for model, number in models.items())}, driver {driver}"
    return Answer(PARTLY, f"{shown}; not supported: {', '.join(refused)}") if refused else Answer(YES, shown)


# ---------------------------------------------------------------- the machine


_MIN_STOLEN: Final = 0.01
"""Share of CPU time since boot. If other virtual machines took more, times are not steady."""
_VARYING_GOVERNORS: Final = ("powersave", "ondemand", "conservative", "schedutil")
_QUIET_LOAD: Final = 0.25
"""Threads that run or wait for a core, per core of the machine, below which a program is hardly disturbed."""
_MIN_DISK: Final = 1 << 30
"""Free bytes below which a long recording at level standard may fill the disk."""
_MIN_MEMORY: Final = 1 << 30
"""Bytes that the recorder, the sampler and the report need beside the program."""
_OTHER_FOLDER: Final = "choose another folder: run --out DIR"


@check("host", "CPU and memory", order=35, needed=True, patience_s=10)
def host(_: Setup) -> Answer:
    """Check whether psutil, the scheduler's clocks and the kernel's lists of children can be read."""
    from profiler.record.collectors.host import HostCollector

    reason = HostCollector().available()
    if reason:
        return Answer(NO, reason, "pip install psutil")
    pid = os.getpid()
    process_tree(pid)
    if not thread_times(pid, [pid]):
        return Answer(PARTLY, "this kernel keeps no times of threads (CONFIG_SCHED_INFO): only processes are measured")
    resolution = time.clock_getres(time.CLOCK_MONOTONIC)
    if resolution > 1e-6:
        return Answer(PARTLY, f"the clock ticks at {resolution * 1e6:g} µs only: short steps cannot be distinguished")
    return Answer(YES, f"processes and threads; the clock ticks at {resolution * 1e9:g} ns")


@check("clocks", "steady times", order=40)
def clocks(_: Setup) -> Answer:
    """Check whether times can be trusted: throttled cores, stolen time, changing frequencies. Nothing is timed."""
    cores, limit, governor, times = kernel.cores(), kernel.cpu_limit(), kernel.governor(), cpu_times()
    stolen = times.stolen / times.total if times and times.total else 0.0
    problems, remedies = [], []
    if limit is not None and limit < cores:
        problems.append(f"the container may use {limit:g} of the {cores} cores that programs see: they are throttled")
        remedies.append(f"export OMP_NUM_THREADS={max(1, int(limit))}")
    if stolen > _MIN_STOLEN:
        problems.append(f"other virtual machines took {share(stolen)} of the CPU time since boot")
    if governor in _VARYING_GOVERNORS:
        problems.append(f"the CPU changes its frequency (governor {governor})")
        remedies.append("sudo cpupower frequency-set -g performance")
    if problems:
        return Answer(PARTLY, "; ".join(problems), remedies[0] if remedies else "")
    shown = f"CPU frequency policy {governor or 'unknown'}"
    return Answer(YES, f"{cores} cores, no core is capped; {share(stolen)} taken by other virtual machines; {shown}")


@check("load", "quiet machine", order=41)
def load(_: Setup) -> Answer:
    """Check whether other programs compute, by the mean of the last minute: the doctor itself hardly changes it."""
    try:
        busy = os.getloadavg()[0]
    except OSError:
        return Answer(NOT_KNOWN, "the kernel reports no load average")
    cores = os.cpu_count() or 1  # the load is of the whole machine, whatever this container may use
    shown = f"load {busy:.1f} on {cores} cores in the last minute"
    if busy < _QUIET_LOAD * cores:
        return Answer(YES, shown)
    effect = "more threads want a core than there are cores" if busy > cores else "other programs are at work"
    return Answer(PARTLY, f"{shown}: {effect}, times will vary", "see which: top")


@check("disk", "room for runs", order=50, needed=True)
def disk(setup: Setup) -> Answer:
    """Check whether the folder of runs, or the nearest existing one above it, can be written, and how much is free."""
    runs = setup.runs.absolute()
    folder = next((path for path in (runs, *runs.parents) if path.exists()), Path("/"))
    try:
        if not folder.is_dir():
            return Answer(NO, f"{folder} is not a folder", _OTHER_FOLDER)
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 12))
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Answer(NO, f"{folder} cannot be written: {error.strerror}", _OTHER_FOLDER)
    if free < _MIN_DISK:
        return Answer(PARTLY, f"{size(free)} free at {folder}: long recordings may not fit", _OTHER_FOLDER)
    return Answer(YES, f"{size(free)} free at {folder}")


@check("memory", "memory", order=51)
def memory(_: Setup) -> Answer:
    """Read how much memory there is, and whether a container allows less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    allowed = min(machine, kernel.memory_limit() or machine)
    shown = f"the container may use {size(allowed)} of the machine's {size(machine)}"
    if allowed == machine:
        shown = f"{size(machine)}, no limit below it"
    if allowed < _MIN_MEMORY:
        return Answer(PARTLY, f"{shown}: too little for recorder and training", "docker run --memory 4g ...")
    return Answer(YES, shown)


def all_checks() -> list[Check]:
    """Return every check above and of the entry-point group `checks`, in the order of the table."""
    objects = [*globals().values(), *entry_points("checks").values()]
    return sorted((each for each in objects if isinstance(each, Check)), key=lambda check: (check.order, check.name))
