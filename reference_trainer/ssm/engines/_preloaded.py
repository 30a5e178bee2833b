"""Loads libraries and runs a first kernel, once, in the server from which workers are forked.

It saves each worker 1.5 s for torch, 0.5 s for Numba and 0.7 s for the types that Numba looks up before its first
kernel. No thread is started.
"""

import signal
import sys
from contextlib import suppress
from types import TracebackType

# The sweep handles Ctrl-C. The server ignores it only after this line, and its children inherit that.
signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ignore_orphans(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print no error of a process whose sweep was ended by Ctrl-C, because what they share no longer exists.

    A running sweep itself reports that its worker died.
    """
    if not issubclass(kind, (OSError, EOFError)):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _ignore_orphans

with suppress(Exception):  # else there would be no server to fork from; a worker meets the same error and reports it
    from reference_trainer.ssm.engine import use_one_thread

    use_one_thread()  # libraries read that when they are loaded

    import torch

    import reference_trainer.ssm.group_work  # noqa: F401
    import reference_trainer.ssm.kernels.scan  # noqa: F401
    from reference_trainer.ssm.draws import INPUTS, Stream, fill_normals

    fill_normals([Stream(0, INPUTS)], torch.empty(1, 1))
