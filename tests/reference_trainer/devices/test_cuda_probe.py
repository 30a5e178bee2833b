"""Where CUDA is missing: one line that says what, and what to install."""

from __future__ import annotations

import pytest
import torch

from reference_trainer.devices import NAMES, cuda_probe, open_device
from reference_trainer.errors import TrainerError


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_probe, "_DRIVER", "libno-such-driver.so.1")
    assert cuda_probe.unavailable() == "no NVIDIA driver on this machine (libno-such-driver.so.1 not found)"
    with pytest.raises(TrainerError, match=r"^device cuda: no NVIDIA driver on this machine \(libno-such"):
        open_device("cuda")
    device = open_device("auto")
    assert device.kind == "host"
    device.close()


def with_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_probe, "_DRIVER", None)  # dlopen(NULL): this program itself, which is always there


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch)
    monkeypatch.setattr(cuda_probe.importlib.util, "find_spec", lambda name: None)
    assert cuda_probe.unavailable().startswith("torch is not installed: ")


def test_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is built without CUDA" in cuda_probe.unavailable()


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "finds no GPU" in cuda_probe.unavailable()


@pytest.mark.parametrize("version", ["12.8", "13.0"])
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """The cure names the extra for torch's own CUDA."""
    with_driver(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    result = cuda_probe.importlib.util.find_spec
    monkeypatch.setattr(
        cuda_probe.importlib.util, "find_spec", lambda name: None if name == "numba_cuda" else result(name)
    )
    assert f"numba-cuda is not installed: pip install 'numba-cuda[cu{version[:2]}]'" in cuda_probe.unavailable()


def test_no_libnvvm(monkeypatch: pytest.MonkeyPatch) -> None:
    nvvm = pytest.importorskip("numba.cuda.cudadrv.nvvm")
    with_driver(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def missing() -> None:
        raise nvvm.NvvmSupportError("libNVVM cannot be found.\nDo this and that.")

    monkeypatch.setattr(nvvm, "NVVM", missing)
    reason = cuda_probe.unavailable()
    assert "libnvvm, which compiles kernels, is not found: pip install 'numba-cuda[cu13]'" in reason
    assert "\n" not in reason


def test_kernels_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the libraries say: here, that there is no driver to load a kernel with."""
    nvvm = pytest.importorskip("numba.cuda.cudadrv.nvvm")
    if not cuda_probe.unavailable():
        pytest.skip("kernels can be loaded here")
    with_driver(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(nvvm, "NVVM", lambda: None)
    reason = cuda_probe.unavailable()
    assert reason.startswith("no kernel can be compiled and loaded: ")
    assert reason.endswith("; install nvidia-nvvm==13.0.* (pip install 'numba-cuda[cu13]')")
    assert "\n" not in reason


def test_unknown_device() -> None:
    with pytest.raises(TrainerError, match=f"unknown device 'gpu': choose one of {', '.join(NAMES)}"):
        open_device("gpu")
