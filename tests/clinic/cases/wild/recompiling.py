"""torch.compile compiles anew in nearly every step, for a number that differs. Expected: compiling, in scaled().

The truth is the time in scaled() of steps that compile, by the script's clock; CURED=1 passes the number as a tensor.
"""

import os

import torch
import torch._dynamo
from truth import Truth

torch.manual_seed(0)
torch._dynamo.config.recompile_limit = 10_000
torch._dynamo.config.accumulated_recompile_limit = 10_000
torch._dynamo.config.specialize_float = True
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 256), torch.randn(256, 256)


@torch.compile(backend="aot_eager")
def scaled(scale: float | torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x) * scale, y)


def train(steps: int) -> None:
    truth = Truth()
    compiling = truth.part("compile")
    for step in range(steps):
        scale = 1 + step / 1000
        with compiling:
            loss = scaled(torch.tensor(scale) if os.environ.get("CURED") else scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth.end(steps)


train(25)
