"""Without CUDA, one line tells the reason and what to install."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from reference_trainer.devices import NAMES, cuda_probe, open_device
from reference_trainer.errors import TrainerError
from tests.fakes.programs import ROOT
from tests.reference_trainer.processes import raising

_SPEC = importlib.util.spec_from_file_location("gpu_packages", ROOT / "scripts/gpu_packages.py")
assert _SPEC is not None
assert _SPEC.loader is not None
gpu_packages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(gpu_packages)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_probe, "_DRIVER", "libno-such-driver.so.1")
    assert cuda_probe.unavailable() == "no NVIDIA driver on this machine (libno-such-driver.so.1 not found)"
    with pytest.raises(TrainerError, match=r"^device cuda: no NVIDIA driver on this machine \(libno-such"):
        open_device("cuda")
    device = open_device("auto")
    assert device.kind == "host"
    device.close()


@pytest.mark.parametrize(("real", "is_usable"), [(0, True), (1, False)])
def test_the_simulator_needs_a_virtual_device(monkeypatch: pytest.MonkeyPatch, real: int, is_usable: bool) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: real, raising=False)
    assert (cuda_probe.unavailable() == "") is is_usable


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Says why CUDA is missing on a machine with a driver, with torch of this CUDA, with a GPU or not."""

    def made(
        cuda: str | None = "13.0", *, gpu: bool = True, without: str = "", nvvm: Callable[[], None] | None = None
    ) -> str:
        find = cuda_probe.importlib.util.find_spec
        found = lambda name: None if name == without else find(name)  # noqa: E731
        monkeypatch.setattr(cuda_probe, "_DRIVER", None)  # dlopen(NULL): this program itself, which is always there
        monkeypatch.setattr(cuda_probe.importlib.util, "find_spec", found)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        if nvvm:
            monkeypatch.setattr(pytest.importorskip("numba.cuda.cudadrv.nvvm"), "NVVM", nvvm)
        return cuda_probe.unavailable()

    return made


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"without": "torch"}, "torch is not installed: "),
        ({"cuda": None}, "is built without CUDA"),
        ({"gpu": False}, "finds no GPU"),
        # the cure names the extra for torch's own CUDA
        ({"cuda": "12.8", "without": "numba_cuda"}, "numba-cuda is not installed: pip install 'numba-cuda[cu12]'"),
        ({"cuda": "13.0", "without": "numba_cuda"}, "numba-cuda is not installed: pip install 'numba-cuda[cu13]'"),
    ],
)
def test_what_is_missing(machine: Callable[..., str], what: dict[str, Any], reason: str) -> None:
    assert reason in machine(**what)


def test_no_libnvvm(machine: Callable[..., str]) -> None:
    nvvm = pytest.importorskip("numba.cuda.cudadrv.nvvm")
    reason = machine(nvvm=raising(nvvm.NvvmSupportError("libNVVM cannot be found.\nDo this and that.")))
    assert "libnvvm, which compiles kernels, is not found: pip install 'numba-cuda[cu13]'" in reason
    assert "\n" not in reason


def test_kernels_cannot_be_loaded(machine: Callable[..., str]) -> None:
    """Whatever the libraries say: here, that there is no driver to load a kernel with."""
    if not cuda_probe.unavailable():
        pytest.skip("kernels can be loaded here")
    reason = machine(nvvm=lambda: None)
    assert reason.startswith("no kernel can be compiled and loaded: ")
    assert reason.endswith("; install nvidia-nvvm==13.0.* (pip install 'numba-cuda[cu13]')")
    assert "\n" not in reason


def closure(names: Iterable[str]) -> set[str]:
    """These packages and all that they need, as installed here."""
    found: set[str] = set()
    left = list(names)
    while left:
        requirement = Requirement(left.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += importlib.metadata.requires(name) or []
    return found


def test_the_packages_of_a_comparison_are_those_that_it_requires() -> None:
    """Those of the project and of the trainers, without what comes with torch and numba-cuda anyway."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = closure([*project["dependencies"], *project["optional-dependencies"]["trainer"]])
    assert set(gpu_packages.PACKAGES) == needed - closure(["torch", "numba-cuda", "numba"])
    pinned = {line.partition("==")[0] for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()}
    assert set(gpu_packages.PACKAGES) <= pinned


def test_the_page_lists_the_wheels_to_bring() -> None:
    text = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    [names] = re.findall(r"pip download .*? -d wheels (.*?)\n\n", text, re.DOTALL)
    assert names.replace("\\\n", " ").split() == list(gpu_packages.PACKAGES)


def test_missing_packages_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_packages.missing_packages() == ""
    without = {"pydantic_core": "pydantic-core", "zstandard": "zstandard"}
    find = importlib.util.find_spec
    monkeypatch.setattr(gpu_packages.importlib.util, "find_spec", lambda name: None if name in without else find(name))
    monkeypatch.setattr(
        gpu_packages.importlib.metadata, "distribution", raising(importlib.metadata.PackageNotFoundError("py-spy"))
    )
    said = gpu_packages.missing_packages()
    assert said.startswith("it lacks py-spy, pydantic-core, zstandard: put their wheels into the folder wheels")


def test_a_package_of_another_platform_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_packages.importlib, "import_module", raising(ImportError("wrong ELF class\nand more")))
    said = gpu_packages.missing_packages()
    assert said == "annotated-types cannot be imported: ImportError: wrong ELF class and more"


def test_unknown_device() -> None:
    with pytest.raises(TrainerError, match=f"unknown device 'gpu': choose one of {', '.join(NAMES)}"):
        open_device("gpu")
