"""Whether the bundled trainer can run on a GPU: the compiler of its kernels."""

from __future__ import annotations

from typing import Final

from profiler.core.capability import NO, YES, Answer
from profiler.record.checks import Place
from profiler.record.checks._child import ChildError, answer_of

_ASK: Final = """
from importlib.metadata import version
said = version("numba-cuda")
from cuda.pathfinder import load_nvidia_dynamic_lib
for name in ("nvvm", "nvrtc"):
    load_nvidia_dynamic_lib(name)
print(said)
"""


class NumbaCudaCheck:
    """Really loads libnvvm and nvrtc, in a process of its own."""

    name = "numba-cuda"
    title = "bundled trainer, GPU"
    order = 62
    needed = False
    patience_s = 15.0

    def look(self, place: Place) -> Answer:
        try:
            version = answer_of([place.python, "-c", _ASK], 10.0).strip()
        except ChildError as error:
            return Answer(
                NO,
                f"it runs on the host device only: {error}",
                'pip install "numba-cuda[cu13]" (a driver for CUDA 12: cu12)',
            )
        return Answer(YES, f"numba-cuda {version} with libnvvm and nvrtc (a GPU is the other half)")


PLUGIN = NumbaCudaCheck()
