"""Whether level full works: torch's own trace, with every kernel where there is a GPU."""

from __future__ import annotations

from profiler.core.capability import NO, NOT_KNOWN, PARTLY, YES, Answer
from profiler.record.checks import Place, _torch
from profiler.record.checks._child import ChildError


class KinetoCheck:
    """Asks torch which activities it can record."""

    name = "kineto"
    title = "torch's trace (full)"
    order = 61
    needed = False
    patience_s = _torch.SECONDS + 2

    def look(self, place: Place) -> Answer:
        try:
            said = _torch.said(place.python)
        except ChildError:
            return Answer(NOT_KNOWN, "torch does not come up")
        if said.get("missing") or not said.get("kineto"):
            why = "no torch" if said.get("missing") else "this torch was built without Kineto"
            return Answer(NO, why, "pip install torch")
        if "CUDA" in said["activities"] and said["gpus"]:
            return Answer(YES, "operators of the CPU and, by CUPTI, every kernel and copy of the GPU")
        if said["gpus"]:
            return Answer(PARTLY, "operators of the CPU only: CUPTI does not work in this torch")
        return Answer(YES, "operators of the CPU; no GPU is seen, so no kernels")


PLUGIN = KinetoCheck()
