"""Reads torch's sync debug mode on CUDA, a second source of syncs, which includes those without a wrapper.

torch warns at each of its syncs; our warnings filter, the first one, counts and swallows the warning. The mode does not
cover torch.cuda.synchronize, events and torch.distributed: there only wrappers count. As soon as the program sets the
mode itself, it is left to the program.

Counters: debug_syncs, and debug_syncs_seen: those within one of our wrappers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, Final

from profiler.agent.hooks import _syncs
from profiler.agent.hooks._syncs import NESTED, OPEN
from profiler.agent.installation import report_failure
from profiler.agent.patching import DETAILED, STATE, Hook, on_unpatch, patch
from profiler.agent.recorder import now
from profiler.run.tables import CallKind

MESSAGE: Final = "called a synchronizing CUDA operation"
"""The text is in c10/cuda/CUDAFunctions.cpp; torch appends the place in its source."""
PROTOTYPE: Final = "Synchronization debug mode is a prototype feature"
"""torch warns so once in a process, when the mode is first set (torch/csrc/cuda/Module.cpp): a program that sets it
later does not get this warning."""
_OFF: Final = 0
_WARN: Final = 1


class _SyncFilter:
    """Stands as `message` in the first entry of warnings.filters, and so sees each warning of the program."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.entry: Final = ("ignore", self, UserWarning, None, 0)
        self.active = True
        """Whether the mode is ours to control."""
        self.on = False
        self.turning_on = False

    def match(self, text: str) -> bool:
        """Whether to swallow a warning, which is then counted."""
        if self.turning_on and text.startswith(PROTOTYPE):
            return True
        recorder = STATE.recorder
        if not self.active or recorder is None or not text.startswith(MESSAGE):
            return False
        recorder.count("debug_syncs")
        if OPEN.inside == NESTED:
            recorder.count("debug_syncs_seen")
        else:
            _syncs.explicit(recorder, CallKind.SYNC, "other", now())
        return True

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        """Libraries pass warnings.filters to their workers: there it becomes an expression that matches nothing."""
        return re.compile, ("(?!)",)

    def move_first(self) -> None:
        """Become the first filter, whatever the program has inserted or restored."""
        filters: Any = warnings.filters
        if not filters or filters[0] is not self.entry:
            filters[:] = [self.entry, *(entry for entry in filters if entry is not self.entry)]

    def begin(self) -> None:
        """Turn the mode on: the program is initializing CUDA."""
        if not self.active:
            return
        try:
            self.move_first()
            patch(warnings, "_filters_mutated", self.staying)
            self.turning_on = True
            self.torch._C._cuda_set_sync_debug_mode(_WARN)
            self.on = True
        except Exception as error:  # noqa: BLE001 - the program is initializing CUDA and must go on; it reports
            self.leave()
            report_failure(PLUGIN.name, error)
        finally:
            self.turning_on = False

    def end(self) -> None:
        """Turn the mode off, because the recording ends before the program."""
        if self.active and self.on:
            self.torch._C._cuda_set_sync_debug_mode(_OFF)
        self.leave()

    def leave(self) -> None:
        """Remove the filter."""
        self.active = False
        filters: Any = warnings.filters
        filters[:] = [entry for entry in filters if entry is not self.entry]

    def staying(self, original: Callable[[], None]) -> Callable[[], None]:
        def _filters_mutated() -> None:
            if self.active:
                self.move_first()
            original()

        return _filters_mutated

    def setting(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def set_sync_debug_mode(debug_mode: Any) -> None:
            self.active = False  # from now on the program controls it
            original(debug_mode)

        return set_sync_debug_mode

    def getting(self, original: Callable[[], int]) -> Callable[[], int]:
        def get_sync_debug_mode() -> int:
            mode = original()
            return _OFF if self.active else mode

        return get_sync_debug_mode


def _install(torch: Any) -> None:
    if not hasattr(torch._C, "_cuda_set_sync_debug_mode"):
        return  # torch without CUDA
    ours = _SyncFilter(torch)
    patch(torch.cuda, "set_sync_debug_mode", ours.setting)
    patch(torch.cuda, "get_sync_debug_mode", ours.getting)
    on_unpatch(ours.end)
    torch.cuda._lazy_call(ours.begin)


PLUGIN = Hook("cuda_syncs", {"torch": _install}, levels=DETAILED)
