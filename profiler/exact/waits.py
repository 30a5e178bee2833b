"""Tells what makes the host wait for a device: one table, for usual recordings and for exact counts.

Each entry has the name of the wait in a run, and the names of torch's functions and of methods of Tensor that wait.
What depends on arguments, such as `where` with one argument, has a handler of its own (`waiting`).
"""

from __future__ import annotations

from typing import Final

READS: Final = {
    "item": ("item",),
    "tolist": ("tolist",),
    "numpy": ("numpy",),
    "bool": ("__bool__", "is_nonzero"),
    "int": ("__int__", "__index__"),
    "float": ("__float__",),
    "complex": ("__complex__",),
    "print": ("__repr__", "__format__"),
    "nonzero": ("nonzero", "argwhere"),
    "masked_select": ("masked_select",),
    "unique": ("unique", "unique_consecutive"),
    "equal": ("equal",),
    "allclose": ("allclose",),
}
"""What always waits. Usual recordings replace these, where torch has them."""
FURTHER: Final = {
    "contains": ("__contains__",),
    "istft": ("istft",),
    "bincount": ("bincount",),
    "inverse": ("inverse", "cholesky", "svd", "pca_lowrank"),
}
"""What always waits and is seen by exact counts only."""
CHECKED: Final = (
    "inv", "cholesky", "eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals", "lu_factor", "ldl_factor", "pinv",
    "matrix_rank", "cond", "solve", "lstsq", "tensorinv",
)  # fmt: skip
"""Functions of torch.linalg that read whether they failed: those that call `_linalg_check_errors` in
aten/src/ATen/native/BatchLinearAlgebra.cpp."""
OPERATORS: Final = {
    "item": ("_local_scalar_dense",),
    "nonzero": ("nonzero",),
    "masked_select": ("masked_select",),
    "mask index": (
        "index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put",
    ),
}  # fmt: skip
"""Operators of torch's dispatcher that may wait in its own code, as in a backward pass. Those of a mask wait for each
mask among their indices."""
