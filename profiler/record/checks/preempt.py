"""Whether stack samples may be taken at the moment that the sampler chooses."""

from __future__ import annotations

from profiler.core.capability import PARTLY, YES, Answer
from profiler.record.checks import Place
from profiler.record.collectors import _preempt


class PreemptCheck:
    """Real-time priority, taken and given back."""

    name = "preempt"
    title = "unbiased stacks"
    order = 32
    needed = False
    patience_s = 5.0

    def look(self, place: Place) -> Answer:
        if _preempt.permitted():
            return Answer(YES, "the sampler may preempt the program (real-time priority)")
        return Answer(
            PARTLY,
            "no real-time priority here: where all cores are busy, samples lean toward waiting",
            "run as root, or start the container with: docker run --cap-add SYS_NICE ...",
        )


PLUGIN = PreemptCheck()
