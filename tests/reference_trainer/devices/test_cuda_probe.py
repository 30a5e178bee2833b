"""Without CUDA, one line tells the reason and what to install."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from reference_trainer.devices import NAMES, cuda_probe, open_device
from reference_trainer.errors import TrainerError
from tests.reference_trainer.processes import raising


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


def test_unknown_device() -> None:
    with pytest.raises(TrainerError, match=f"unknown device 'gpu': choose one of {', '.join(NAMES)}"):
        open_device("gpu")
