"""Installs virtual CUDA devices in a program: every wait and copy becomes a record of the run.

Calls have no length, since a CPU's times tell nothing about a GPU.
"""

from __future__ import annotations

import os
from types import FrameType, ModuleType
from typing import Any, NoReturn

from profiler.agent.hooks import _syncs
from profiler.agent.patching import STATE, Hook, on_unpatch, patch
from profiler.agent.recorder import now
from profiler.run.tables import ENV_VIRTUAL_CUDA, NON_BLOCKING, CallKind


def requested() -> bool:
    """Whether this program is to see virtual devices."""
    return bool(os.environ.get(ENV_VIRTUAL_CUDA))


def record(event: Any, frame: FrameType) -> None:
    """Record an event with the line of the program."""
    recorder = STATE.recorder
    if recorder is None or recorder.drains:  # a device of the program's own records what it asks for
        return
    if event.waits:
        recorder.count("syncs")
    if event.kind in ("h2d", "d2h"):
        recorder.count(str(event.kind))
        recorder.count(f"{event.kind}_bytes", event.size)
    if recorder.detailed:
        kind = CallKind.SYNC if event.kind == "sync" else CallKind[event.kind.upper()]
        name = event.name if kind is CallKind.SYNC else _copy_name(event)
        recorder.call(kind, name, now(), size=event.size, **_syncs.sites(recorder, frame))


def _copy_name(event: Any) -> str:
    if event.kind == "launch":
        return str(event.name)
    memory = "" if event.kind == "d2d" else " pinned" if event.pinned else " pageable"
    return f"{event.name}{memory}{'' if event.waits else f' {NON_BLOCKING}'}"


def _install(_: Any) -> None:
    if not requested():
        return
    from profiler.exact import private_api

    private_api.require(private_api.NAMES, "virtual CUDA")
    from profiler.exact.installation import VirtualCuda

    count, _, card = os.environ[ENV_VIRTUAL_CUDA].partition(":")
    devices = VirtualCuda(record, count=int(count), card=card)
    on_unpatch(devices.remove)
    devices.install()
    if STATE.recorder is not None:
        STATE.recorder.add_hook_facts(virtual_cuda=int(count), virtual_card=devices.mode.machine.card.name)


def _refuse_extensions(extensions: ModuleType) -> None:
    """CUDA kernels in C++ need a compiler of CUDA and a GPU."""
    if not requested():
        return

    def checked(original: Any) -> Any:
        def load(name: str, sources: Any = (), *args: Any, **options: Any) -> Any:
            files = [sources] if isinstance(sources, str) else sources
            if options.get("with_cuda") or any(str(file).endswith(".cu") for file in files):
                _refuse(f"the CUDA extension {name}")
            return original(name, sources, *args, **options)

        return load

    def checked_inline(original: Any) -> Any:
        def load_inline(name: str, cpp_sources: Any = (), cuda_sources: Any = None, *args: Any, **options: Any) -> Any:
            if cuda_sources or options.get("with_cuda"):
                _refuse(f"the CUDA extension {name}")
            return original(name, cpp_sources, cuda_sources, *args, **options)

        return load_inline

    patch(extensions, "load", checked)
    patch(extensions, "load_inline", checked_inline)


def _refuse_triton(jit: ModuleType) -> None:
    if not requested():
        return

    def refusing(_: Any) -> Any:
        def run(self: Any, *_args: Any, **_options: Any) -> NoReturn:
            _refuse(f"the Triton kernel {self.fn.__name__}")

        return run

    patch(jit.JITFunction, "run", refusing)


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"profiler: {what} does not run on virtual CUDA devices")


PLUGIN = Hook(
    "virtual_cuda",
    {"torch": _install, "torch.utils.cpp_extension": _refuse_extensions, "triton.runtime.jit": _refuse_triton},
)
