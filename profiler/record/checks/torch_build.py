"""The torch that trains: where it is, which build, and whether it can use a GPU."""

from __future__ import annotations

from pathlib import Path

from profiler.core.capability import NO, PARTLY, YES, Answer
from profiler.record.checks import Place, _torch
from profiler.record.checks._child import ChildError


class TorchCheck:
    """Asks it, in a process of its own."""

    name = "torch"
    title = "torch"
    order = 11
    needed = False
    patience_s = _torch.SECONDS + 2

    def look(self, place: Place) -> Answer:
        try:
            said = _torch.said(place.python)
        except ChildError as error:
            return Answer(NO, f"torch does not come up: {error}", f"{place.python} -c 'import torch' shows the fault")
        if said.get("missing"):
            return Answer(NO, f"not installed in {place.python}", "name the Python that trains: doctor --python EXE")
        build = f"CUDA {said['cuda']}" if said["cuda"] else f"ROCm {said['hip']}" if said["hip"] else "for the CPU only"
        words, where = f"{said['version']}, {build}", f"(in {Path(said['file']).parent})"
        if said.get("error"):
            return Answer(
                PARTLY, f"{words}; its GPU fails: {said['error']} {where}", "see what the driver says: nvidia-smi"
            )
        if said["gpus"]:
            return Answer(YES, f"{words}; it computes on {said['gpus']} GPU{'s' if said['gpus'] > 1 else ''} {where}")
        if said["cuda"] or said["hip"]:
            return Answer(PARTLY, f"{words}; it sees no GPU: programs run on the CPU {where}")
        return Answer(YES, f"{words}: syncs are counted as what would sync on a GPU {where}")


PLUGIN = TorchCheck()
