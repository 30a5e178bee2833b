"""Reductions that LLVM turns into vector code on the host device; plain Python's are done one element after the other.

Fast-math flags of a whole kernel would do it too, but reordered sums break the rounding inside `elementwise.exp`.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def maxnum(typingctx, a, b):
    """The larger of two floats, neither NaN; of Python's max() comes a branch, which LLVM takes for no reduction."""

    def codegen(context, builder, signature, args):
        number = ir.FloatType() if a == types.float32 else ir.DoubleType()
        maximum = builder.module.declare_intrinsic("llvm.maxnum", [number], ir.FunctionType(number, [number, number]))
        return builder.call(maximum, args, fastmath=("nnan", "nsz"))

    return a(a, a), codegen


@intrinsic
def add_to(typingctx, total, term):
    """total + term, in whatever order such sums of a loop are taken."""

    def codegen(context, builder, signature, args):
        return builder.fadd(*args, flags=("reassoc", "nsz"))

    return total(total, total), codegen
