"""What the names in a Kineto trace mean in our words: CUDA's, HIP's and torch's, of all years."""

from __future__ import annotations

import re
from typing import Final

from profiler.run.tables import ActivityKind, CallKind

DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
"""Categories of what a device did; the capital ones are of 2021."""
RUNTIME: Final = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"})
OPERATOR: Final = frozenset({"cpu_op", "Operator"})
ANNOTATION: Final = "user_annotation"
STEP: Final = "ProfilerStep#"
ANNOTATIONS: Final = (STEP, "enumerate(DataLoader)", "Optimizer.")
"""Begin the names of torch's own annotations, which until 2021 were among the operators."""
OPERATOR_REGION: Final = "operator "
"""Begins the name of a region that is a torch operator: the ledger calls it framework, on a CPU compute."""

_LIBRARY: Final = re.compile(r"^(cuda|hip|cu)(?=[A-Z])")
_CALLS: Final[tuple[tuple[str, CallKind], ...]] = (
    (r"Memcpy.*(HtoD|HToD)", CallKind.H2D),
    (r"Memcpy.*(DtoH|DToH)", CallKind.D2H),
    (r"Memcpy", CallKind.D2D),
    (r"Memset", CallKind.MEMSET),
    (r"(Device|Stream|Event|Ctx)Synchronize", CallKind.SYNC),
    (r"^Event|StreamWaitEvent", CallKind.EVENT),
    (r"Launch", CallKind.LAUNCH),
    (r"Malloc|HostAlloc|^MemAlloc|^MemCreate|^MemHostAlloc", CallKind.ALLOC),
    (r"^Free|^MemFree|^MemRelease|^HostFree", CallKind.FREE),
)
"""The first that fits; the direction of a copy is that of the activity that it caused, where there is one."""
_WAITING_COPIES: Final = frozenset({"Memcpy", "Memcpy2D", "Memcpy3D", "MemcpyWithStream"})
"""Copies that return when the device is done. MemcpyWithStream is ROCm's: its waits show nowhere else."""
COMMUNICATION: Final = re.compile(r"^(nccl|rccl|msccl|nvshmem)|cross_device_reduce", re.IGNORECASE)


def call_kind(name: str) -> CallKind:
    """Kind of a runtime call by its name."""
    bare = _LIBRARY.sub("", name)
    if bare.startswith(("Func", "Occupancy")):
        return CallKind.OTHER
    return next((kind for pattern, kind in _CALLS if re.search(pattern, bare)), CallKind.OTHER)


def waits_by_itself(name: str) -> bool:
    """Whether the host stays in this call until the device is done, whatever it is asked for."""
    bare = _LIBRARY.sub("", name)
    return bare in _WAITING_COPIES or call_kind(name) is CallKind.SYNC


def activity_kind(category: str, name: str) -> ActivityKind:
    """Kind of something that a device did; copies between devices and within one are D2D."""
    if category in ("kernel", "Kernel"):
        return ActivityKind.COMMUNICATION if COMMUNICATION.search(name) else ActivityKind.KERNEL
    if category in ("gpu_memset", "Memset"):
        return ActivityKind.MEMSET
    if "HtoD" in name:
        return ActivityKind.H2D
    return ActivityKind.D2H if "DtoH" in name else ActivityKind.D2D


def pageable(name: str) -> bool:
    """Whether a memcpy activity had pageable memory on the host's side: its call waits, Async or not."""
    return "Pageable" in name


def region_name(annotation: str) -> str:
    """Our word for an annotation of torch's; those of the program keep their name."""
    if annotation.startswith("enumerate(DataLoader)"):
        return "data"
    return "optimizer" if annotation.startswith("Optimizer.step#") else annotation
