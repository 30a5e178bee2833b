"""Whether py-spy may sample the stacks of programs that we start."""

from __future__ import annotations

from profiler.core.capability import NO, YES, Answer
from profiler.record.checks import Place, _pyspy


class StacksCheck:
    """Really dumps the stack of a Python that allows it as recorded programs do."""

    name = "stacks"
    title = "Python stacks"
    order = 30
    needed = True
    patience_s = 20.0

    def look(self, place: Place) -> Answer:
        pyspy = _pyspy.program()
        if pyspy is None:
            return Answer(NO, "py-spy is not installed", "pip install py-spy")
        refused = _pyspy.refusal(pyspy, place.python, allows=True)
        if refused:
            return Answer(NO, refused, _pyspy.permit())
        return Answer(YES, "py-spy read the stack of a Python that was started here")


PLUGIN = StacksCheck()
