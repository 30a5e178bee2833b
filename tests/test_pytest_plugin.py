"""The fixtures for pytest, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")

ROOT = Path(__file__).parents[1]
TESTS = """
import torch
from torch import nn


def make_step(read, device="cuda"):
    model = nn.Linear(4, 2).to(device)  # no optimizer: the first one of a process imports torch's compiler
    x = torch.randn(8, 4, device=device)

    def step():
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        if read:
            return loss.item()

    return step


def test_healthy(assert_syncs):
    assert_syncs(make_step(read=False))


def test_allowed(assert_syncs):
    assert_syncs(make_step(read=True), at_most=1)


def test_ill(assert_syncs):
    assert_syncs(make_step(read=True))


def test_forgotten(assert_syncs):
    assert_syncs(make_step(read=True, device="cpu"))


def test_library(assert_syncs):
    layer = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).cuda()
    mask = nn.Transformer.generate_square_subsequent_mask(3, device="cuda")
    assert_syncs(lambda: encoder(torch.ones(2, 3, 4, device="cuda"), mask=mask))


def test_device(virtual_cuda):
    torch.ones(2, device="cuda").tolist()
    assert virtual_cuda.syncs == 1
    assert virtual_cuda.bytes("d2h") == virtual_cuda.bytes("h2d") == 0
    torch.ones(2).cuda()
    assert virtual_cuda.bytes("h2d") == 8


def test_no_device_is_left():
    assert not torch.cuda.is_available()
"""
READ = TESTS.splitlines().index("            return loss.item()") + 1


def test_a_step_that_waits_fails_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "test_step.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "profiler.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "AssertionError: the step waits for the device once; at most 0 allowed:" in done.stdout
    assert f"test_step.py:{READ}: item, 1×: return loss.item()" in done.stdout
    assert "AssertionError: the step uses no CUDA device" in done.stdout
    assert "bool in torch/nn/modules/transformer.py:" in done.stdout


def test_the_plugin_imports_no_torch() -> None:
    code = "import sys, profiler.pytest_plugin; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_fixtures_last_for_a_module_where_the_configuration_says_so(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nprofiler_scope = module\n")
    (tmp_path / "test_step.py").write_text(
        "import pytest, torch\n"
        "@pytest.fixture(scope='module')\n"
        "def model(virtual_cuda):\n"
        "    return torch.nn.Linear(4, 2).cuda()\n"
        "def test_one(model, assert_syncs):\n"
        "    assert_syncs(lambda: model(torch.ones(1, 4, device='cuda')))\n"
        "def test_other(model, virtual_cuda):\n"
        "    assert model.weight.is_cuda\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "profiler.pytest_plugin", "-p", "no:cacheprovider", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
