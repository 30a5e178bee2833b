"""torch's sync debug mode on CUDA: a second source of syncs, which includes those without a wrapper.

torch warns at each of its syncs; our warnings filter, the first one, counts and swallows the warning. The mode does not
cover torch.cuda.synchronize, events and torch.distributed: there only wrappers count. As soon as the program sets the
mode itself, it is left to the program.

Counters: debug_syncs, and debug_syncs_seen: those within one of our wrappers.
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
"""From c10/cuda/CUDAFunctions.cpp; torch appends the place in its source."""
PROTOTYPE: Final = "Synchronization debug mode is a prototype feature"
"""torch warns so once in a process, when the mode is first set (torch/csrc/cuda/Module.cpp): a program that sets it
later does not get this warning."""
_OFF: Final = 0
_WARN: Final = 1


class SyncFilter:
    """Stands as `message` in the first entry of warnings.filters, and so sees each warning of the program."""

    def __init__(self) -> None:
        self.entry: Final = ("ignore", self, UserWarning, None, 0)
        self.active = True
        self.on = False
        self.setting = False
        """Whether we are setting the mode."""

    def match(self, text: str) -> bool:
        """Whether to swallow a warning, which is then counted."""
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
        """Libraries pass warnings.filters to their workers: there it becomes an expression that matches nothing."""
        return re.compile, ("(?!)",)

    def first(self) -> None:
        """Become the first filter, whatever the program has inserted or restored."""
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
        """Turn the mode off, because the recording ends before the program."""
        if self.active and self.on:
            torch._C._cuda_set_sync_debug_mode(_OFF)
        self.leave()

    def leave(self) -> None:
        """Remove the filter."""
        self.active = False
        filters: Any = warnings.filters
        filters[:] = [entry for entry in filters if entry is not self.entry]


class CudaSyncsHook:
    """ControlledProgram the mode on when the program initializes CUDA."""

    name: ClassVar[str] = "cuda_syncs"
    modules: ClassVar[tuple[str, ...]] = ("torch",)
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

    def install(self, module: ModuleType) -> None:
        if not hasattr(module._C, "_cuda_set_sync_debug_mode"):
            return  # torch without CUDA
        watch(module, SyncFilter())


def watch(torch: ModuleType, ours: SyncFilter) -> None:
    """Activate the filter `ours` when the program first uses CUDA."""

    def begin() -> None:
        if not ours.active:
            return
        try:
            ours.first()
            patch(warnings, "_filters_mutated", staying)
            ours.turn_on(torch)
        except Exception as error:  # noqa: BLE001 - the program is initializing CUDA and must go on; it reports
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
            ours.active = False  # from now on the program controls it
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
