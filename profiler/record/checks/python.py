"""Checks of the Python that trains: its build, its torch and the libraries that hooks support."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

from profiler.core.machine import NO, NOT_KNOWN, PARTLY, YES, Answer
from profiler.record.checks._programs import ProgramError, output_of
from profiler.record.doctor import Setup, check

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
