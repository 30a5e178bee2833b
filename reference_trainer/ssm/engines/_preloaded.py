"""What the server does once from which workers are forked: imports, and a first kernel, which begins no thread.

A worker would need 1.5 s for torch, 0.5 s for Numba and 0.7 s for the types that Numba looks up before its first
kernel, each of them.
"""

import signal
import sys
from contextlib import suppress
from types import TracebackType

# Ctrl-C is the sweep's own; the server ignores it only after this, and its children take from it what they do.
signal.signal(signal.SIGINT, signal.SIG_IGN)


def _but_for_orphans(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Nothing of a process that a sweep had asked for before Ctrl-C ended it: what they were to share is gone.

    A sweep that is there says itself that its worker died.
    """
    if not issubclass(kind, (OSError, EOFError)):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _but_for_orphans

with suppress(Exception):  # else there is no server to fork from; a worker meets the same error and reports it
    import torch

    import reference_trainer.ssm.group_work  # noqa: F401
    import reference_trainer.ssm.kernels.scan  # noqa: F401
    from reference_trainer.ssm.draws import INPUTS, Stream, fill_normals

    fill_normals([Stream(0, INPUTS)], torch.empty(1, 1))
