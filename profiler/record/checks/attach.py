"""Whether py-spy may read programs that run already and were not started by us."""

from __future__ import annotations

from profiler.core.capability import NO, YES, Answer
from profiler.record.checks import Place, _pyspy


class AttachCheck:
    """Really dumps the stack of a Python that allows nothing: as any other program of the same user."""

    name = "attach"
    title = "attach"
    order = 31
    needed = False
    patience_s = 20.0

    def look(self, place: Place) -> Answer:
        pyspy = _pyspy.program()
        if pyspy is None:
            return Answer(NO, "py-spy is not installed", "pip install py-spy")
        refused = _pyspy.refusal(pyspy, place.python, allows=False)
        if refused:
            scope = f" (kernel.yama.ptrace_scope is {_pyspy.scope()})" if _pyspy.scope() else ""
            return Answer(NO, f"{refused} toward programs that we did not start{scope}", _pyspy.permit())
        return Answer(YES, "py-spy may read programs of the same user that we did not start")


PLUGIN = AttachCheck()
