"""Recognizes a dataset that takes long for an item, in the training process or in workers that cannot keep up."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.core.syntax import line_nodes
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import NO_MORE_WORKERS, making_claim

_OPENING: Final = frozenset(
    (
        *("ZipFile", "TarFile", "tarfile.open", "h5py.File", "lmdb.open", "sqlite3.connect", "ParquetFile", "memmap"),
        *("read_csv", "read_parquet", "read_feather", "read_pickle", "zarr.open", "open_dataset", "safe_open"),
        *("np.load", "numpy.load", "torch.load", "json.load", "pickle.load", "from_pretrained", "load_dataset"),
    )
)
"""Functions that open or load what holds many items, by their last name, or with their module where that is common."""


def judge(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which the dataset makes items."""
    claim = making_claim(costs, ("dataset", "dataset map"), "items")
    opened = _opened(claim.sites[0].source) if claim and claim.sites else None
    return claim and replace(claim, values={**claim.values, "opened": opened})


def _opened(source: str) -> str | None:
    """The call at a line that opens the same for each item: its first argument is a constant or an attribute of the
    dataset, and no other one is a variable. None where there is no such call."""
    for node in line_nodes(source):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if given and {name, name.rpartition(".")[2]} & _OPENING:
            is_same = not any(isinstance(part, ast.Call) for part in ast.walk(given[0])) and _is_fixed(given[0], ())
            modules = [part.value for each in given for part in ast.walk(each) if isinstance(part, ast.Attribute)]
            if is_same and all(_is_fixed(each, modules) for each in given[1:]):
                return ast.unparse(node)
    return None


def _is_fixed(node: ast.expr, modules: Collection[ast.expr]) -> bool:
    """Whether an argument is the same for each item.

    :param modules: nodes that may be modules, as in `np.uint8`, and no variables.
    """
    parts = [part for part in ast.walk(node) if part not in modules]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    is_item = any(isinstance(part, ast.Subscript) for part in parts)
    return not is_item and all(name in ("self", "cls") or name.isupper() for name in names)


PLUGIN = Rule(
    "slow-dataset-item",
    "The dataset takes long for each item",
    (
        "Making a batch takes {made:time}, of which {items:share} in the dataset's own code.",
        "{share:share} of each step waits for that.",
        *NO_MORE_WORKERS,
    ),
    "Make items cheaper: prepare them once before the training, or replace loops over their elements by operators.",
    judge,
    fixes=("Open or load it once in each process and keep it, not for each item: {opened}.",),
    code="if self.kept is None:  # once in each process\n    self.kept = {opened}",
    threshold_source="Below half of the time of a batch, something else is slow.",
    is_alternative=True,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
)
