"""Whether the use of GPUs can be sampled: utilisation, memory, power, clocks, throttling."""

from __future__ import annotations

from collections import Counter

from profiler.core.capability import NO, PARTLY, YES, Answer
from profiler.record.checks import Place
from profiler.record.collectors._nvml import Gpus


class GpuCheck:
    """Really asks every GPU each question once."""

    name = "gpu"
    title = "GPU use (NVML)"
    order = 60
    needed = False
    patience_s = 10.0

    def look(self, place: Place) -> Answer:
        gpus = Gpus()
        if gpus.reason:
            install = "pip install nvidia-ml-py" if "imported" in gpus.reason else ""
            return Answer(NO, gpus.reason, install or "where there is a GPU: start the container with --gpus all")
        uses, _ = gpus.read((), uses_cuda=True)
        driver = gpus.driver()
        gpus.close()
        refused = sorted({name for use in uses for name, value in use.figures().items() if value is None})
        kinds = Counter(use.name for use in uses)
        words = f"{', '.join(f'{number} × {name}' for name, number in kinds.items())}, driver {driver}"
        if refused:
            return Answer(PARTLY, f"{words}; not told: {', '.join(refused)}")
        return Answer(YES, words)


PLUGIN = GpuCheck()
