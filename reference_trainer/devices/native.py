"""Machine operations for Numba: atomics, clocks, semaphores and calls by address, all without the GIL.

Everything here is compiled into the host device's worker and its enqueue functions. Addresses are plain
int64; symbols are looked up by name (not through ctypes), which keeps the compiled code cacheable.
"""

from __future__ import annotations

import platform

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from reference_trainer.jit import njit

sem_init = types.ExternalFunction("sem_init", types.int32(types.intp, types.int32, types.uint32))
sem_wait = types.ExternalFunction("sem_wait", types.int32(types.intp))
sem_post = types.ExternalFunction("sem_post", types.int32(types.intp))
sched_yield = types.ExternalFunction("sched_yield", types.int32())
memcpy = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))

_CLOCK_MONOTONIC = 1
_WORD = ir.IntType(64)
# The CPU's hint that a loop waits: it frees the sibling hyper-thread and ends the loop's speculation.
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}


@intrinsic
def load(typingctx, address):
    """Read the int64 at `address`, sequentially consistent."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(builder.inttoptr(args[0], _WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store(typingctx, address, value):
    """Write the int64 `value` at `address`, sequentially consistent."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], builder.inttoptr(args[0], _WORD.as_pointer()), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _plain_store(typ, width):
    @intrinsic
    def write(typingctx, address, value):
        def codegen(context, builder, signature, args):
            number = builder.trunc(args[1], width) if width != _WORD else args[1]
            builder.store(number, builder.inttoptr(args[0], width.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    write.__doc__ = f"Write `value` as {typ} at `address`, in no particular order."
    return write


put64 = _plain_store("int64", _WORD)
put32 = _plain_store("int32", ir.IntType(32))


@intrinsic
def get64(typingctx, address):
    """Read the int64 at `address`, in no particular order."""

    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], _WORD.as_pointer()), align=8)

    return types.int64(types.int64), codegen


@intrinsic
def call_by_address(typingctx, function, argument):
    """Call the C function `void f(int64)` at address `function`."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_WORD])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def pause(typingctx):
    """Tell the processor that a loop waits."""

    def codegen(context, builder, signature, args):
        if platform.machine() in _PAUSE:
            name, values = _PAUSE[platform.machine()]
            word = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [word] * len(values))
            hint = builder.module.declare_intrinsic(name, (), kind)
            builder.call(hint, [word(value) for value in values])
        return context.get_dummy_value()

    return types.void(), codegen


@njit("int64(int64)", cache=True)
def now(timespec):
    """CLOCK_MONOTONIC in ns, by way of the 16 bytes at `timespec` (each thread needs its own)."""
    _clock_gettime(_CLOCK_MONOTONIC, timespec)
    return get64(timespec) * 1_000_000_000 + get64(timespec + 8)
