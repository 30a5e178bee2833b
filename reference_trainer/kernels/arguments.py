"""Functions by which the body of a host kernel reads the arguments of its command."""

from __future__ import annotations

from numba import carray, types
from numba.extending import intrinsic

from reference_trainer.devices.host_queue import ARGUMENTS
from reference_trainer.devices.native import get64
from reference_trainer.jit import njit


def _pointer(element):
    @intrinsic
    def pointer(typingctx, address):
        def codegen(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), codegen

    return pointer


_floats = _pointer(types.float32)
_ints = _pointer(types.int32)


@njit(inline="always")
def number(command, index):
    """Argument `index` as an integer."""
    return get64(command + ARGUMENTS + 8 * index)


@njit(inline="always")
def vector(command, index, length):
    """Argument `index` as float32 (length,)."""
    return carray(_floats(number(command, index)), (length,))


@njit(inline="always")
def matrix(command, index, rows, columns):
    """Argument `index` as float32 (rows, columns)."""
    return carray(_floats(number(command, index)), (rows, columns))


@njit(inline="always")
def integers_at(address, length):
    """The memory at an address as int32 (length,)."""
    return carray(_ints(address), (length,))


@njit(inline="always")
def indices(command, index, length):
    """Argument `index` as int32 (length,)."""
    return carray(_ints(number(command, index)), (length,))
