"""The private functions of torch that counting and virtual devices need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profiler.exact import private_api

ROOT = Path(__file__).parents[2]


def test_this_version_of_torch_has_all_of_them() -> None:
    names = private_api.NAMES + private_api.COUNTING_NAMES + private_api.COMPILER_NAMES
    assert private_api.missing(names) == ()


@pytest.mark.parametrize("name", private_api.COUNTING_NAMES)
def test_an_absent_one_is_told_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, _, attribute = name.rpartition(".")
    monkeypatch.delattr(f"torch.{owner}.{attribute}")
    with pytest.raises(RuntimeError, match=f"^counting does not work with torch .*: it has no torch.{name}$"):
        private_api.require(private_api.COUNTING_NAMES, "counting")


def test_the_names_are_checked_where_one_is_absent_from_the_start() -> None:
    code = (
        "import torch; del torch._C._current_autograd_node\n"
        "from profiler.exact import private_api\n"
        "private_api.require(private_api.COUNTING_NAMES, 'counting')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: counting does not work with torch")
