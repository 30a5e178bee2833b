"""Host memory that a device reads by itself, as a NumPy array that `upload` and `download` recognise."""

from __future__ import annotations

import numpy as np


class Pinned(np.ndarray):
    """Pinned memory: uploads read it in place, everything else is pageable. Make it with `pinned_view`.

    Views keep the type, and so do results of arithmetic and copies, which are pageable: `pinned_address` tells them
    apart.
    """

    _region: tuple[int, int] | None
    _address: int | None
    """It is looked up at the first copy, which takes NumPy a microsecond."""

    def __array_finalize__(self, parent: np.ndarray | None) -> None:
        self._region = getattr(parent, "_region", None)
        self._address = None


def pinned_view(array: np.ndarray) -> Pinned:
    """A view of `array`, whose memory is pinned, as Pinned."""
    view = array.view(Pinned)
    view._region = (array.ctypes.data, array.ctypes.data + array.nbytes)
    return view


def pinned_address(array: np.ndarray) -> int:
    """The address of `array` if it is in pinned memory, which outlives the call that takes it; else 0."""
    if type(array) is not Pinned or array._region is None:
        return 0
    if array._address is None:
        low, high = array._region
        address = array.ctypes.data
        array._address = address if low <= address < high else 0
    return array._address


def is_pinned(array: np.ndarray) -> bool:
    """Whether `array` is in pinned memory."""
    return pinned_address(array) != 0
