"""torch's own sync debug mode on CUDA: the second source of waits, which sees those that no wrapper stands before.

torch warns at each wait of its own; a filter that stands first takes the warning, counts it, and lets nobody else see
it. It does not see torch.cuda.synchronize, events and torch.distributed: there only wrappers count. The mode belongs to
the program as soon as that sets it.

Counters: debug_syncs, and of them debug_syncs_seen, at which a wrapper of ours was open.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.hooks import _syncs
from profiler.agent.hooks._syncs import OPEN
from profiler.agent.installation import report_failure
from profiler.agent.patching import STATE, on_unpatch, patch
from profiler.agent.recorder import now
from profiler.run.tables import CallKind

MESSAGE: Final = "called a synchronizing CUDA operation"
"""As in c10/cuda/CUDAFunctions.cpp; torch adds where in its source."""
PROTOTYPE: Final = "Synchronization debug mode is a prototype feature"
"""torch says so once a process, as the mode is set for the first time (torch/csrc/cuda/Module.cpp): a program that sets
it too does not hear it any more."""
_OFF: Final = 0
_WARN: Final = 1


class SyncFilter:
    """The message of an entry of warnings.filters: asked first about each warning of the program."""

    def __init__(self) -> None:
        self.entry: Final = ("ignore", self, UserWarning, None, 0)
        self.active = True
        self.on = False
        self.setting = False
        """It is we who set the mode."""

    def match(self, text: str) -> bool:
        """Whether it is ours to swallow; then it has been counted."""
        if self.setting and text.startswith(PROTOTYPE):
            return True
        recorder = STATE.recorder
        if not self.active or recorder is None or not text.startswith(MESSAGE):
            return False
        recorder.count("debug_syncs")
        if OPEN.inside:
            recorder.count("debug_syncs_seen")
        else:
            _syncs.explicit(recorder, CallKind.SYNC, "other", now())
        return True

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        """Libraries hand warnings.filters on to their workers: there it is an expression that nothing matches."""
        return re.compile, ("(?!)",)

    def first(self) -> None:
        """Stand before all other filters, whatever the program has put there or restored."""
        filters: Any = warnings.filters
        if not filters or filters[0] is not self.entry:
            filters[:] = [self.entry, *(entry for entry in filters if entry is not self.entry)]

    def turn_on(self, torch: ModuleType) -> None:
        self.setting = True
        try:
            torch._C._cuda_set_sync_debug_mode(_WARN)
        finally:
            self.setting = False
        self.on = True

    def end(self, torch: ModuleType) -> None:
        """The recording ends before the program does."""
        if self.active and self.on:
            torch._C._cuda_set_sync_debug_mode(_OFF)
        self.leave()

    def leave(self) -> None:
        """Stand before none any more."""
        self.active = False
        filters: Any = warnings.filters
        filters[:] = [entry for entry in filters if entry is not self.entry]


class CudaSyncsHook:
    """ControlledProgram the mode on when the program initialises CUDA, and not before."""

    name: ClassVar[str] = "cuda_syncs"
    modules: ClassVar[tuple[str, ...]] = ("torch",)
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

    def install(self, module: ModuleType) -> None:
        if not hasattr(module._C, "_cuda_set_sync_debug_mode"):
            return  # torch without CUDA
        watch(module, SyncFilter())


def watch(torch: ModuleType, ours: SyncFilter) -> None:
    """Have `ours` asked about the warnings of torch from the moment at which the program uses CUDA."""

    def begin() -> None:
        if not ours.active:
            return
        try:
            ours.first()
            patch(warnings, "_filters_mutated", staying)
            ours.turn_on(torch)
        except Exception as error:  # noqa: BLE001 - the program is about to use CUDA, and must; it reports
            ours.leave()
            report_failure(CudaSyncsHook.name, error)

    def staying(original: Callable[[], None]) -> Callable[[], None]:
        def _filters_mutated() -> None:
            if ours.active:
                ours.first()
            original()

        return _filters_mutated

    def setting(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def set_sync_debug_mode(debug_mode: Any) -> None:
            ours.active = False  # from now on the program's own
            original(debug_mode)

        return set_sync_debug_mode

    def getting(original: Callable[[], int]) -> Callable[[], int]:
        def get_sync_debug_mode() -> int:
            mode = original()
            return _OFF if ours.active else mode

        return get_sync_debug_mode

    patch(torch.cuda, "set_sync_debug_mode", setting)
    patch(torch.cuda, "get_sync_debug_mode", getting)
    on_unpatch(lambda: ours.end(torch))
    torch.cuda._lazy_call(begin)


PLUGIN = CudaSyncsHook()
