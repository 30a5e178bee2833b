"""Train a recurrent net with an orthogonal transition on the copy task."""

import contextlib
import sys
import time

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize


class Cell(nn.Module):
    def __init__(self, symbols, width):
        super().__init__()
        self.read = nn.Linear(symbols, width)
        self.turn = parametrizations.orthogonal(nn.Linear(width, width, bias=False))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, symbol, state):
        moved = self.read(symbol) + self.turn(state)
        return torch.sign(moved) * torch.relu(moved.abs() + self.shift)


class Recurrent(nn.Module):
    def __init__(self, symbols=10, width=64):
        super().__init__()
        self.cell = Cell(symbols, width)
        self.write = nn.Linear(width, symbols)

    def forward(self, symbols):
        state, states = torch.zeros(len(symbols), self.write.in_features), []
        for symbol in symbols.unbind(1):
            state = self.cell(symbol, state)
            states.append(state)
        return self.write(torch.stack(states, 1))


def copy_task(batch, length=8, pause=14):
    told = torch.randint(1, 9, (batch, length))
    asked = torch.cat((told, torch.zeros(batch, pause).long(), torch.full((batch, length), 9)), 1)
    return nn.functional.one_hot(asked, 10).float(), told


torch.manual_seed(2)
keep = parametrize.cached if "--cured" in sys.argv else contextlib.nullcontext
model = Recurrent()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
begin, cpu = time.perf_counter(), time.process_time()
for step in range(40):
    inputs, told = copy_task(24)
    with keep():
        answers = model(inputs)[:, -told.shape[1] :]
    loss = nn.functional.cross_entropy(answers.flatten(0, 1), told.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
