"""Checks of recording: hooks in the program, stacks by py-spy, GPUs by NVML. Each really does it once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.machine import NO, PARTLY, YES, Answer
from profiler.record import kernel
from profiler.record.checks._programs import ProgramError, output_of, waiting_python
from profiler.record.collectors._pyspy import find_py_spy, may_preempt
from profiler.record.collectors.gpu import GpuReader
from profiler.record.doctor import Setup, check
from profiler.record.launch import last_output_line, record
from profiler.run.model import HOOKS, RunSpec

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
