"""Accelerate's quick start: a prepared loop with gradient accumulation and an evaluation after each epoch. Expected:
computing; nothing else takes much.

The truth is a second py-spy on the bare program.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(512, 768), nn.Tanh(), nn.Linear(768, 1))
data = TensorDataset(torch.randn(128 * 120, 512), torch.randn(128 * 120, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=128, shuffle=True))
updates = 0
for _epoch in range(2):
    model.train()
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            updates += accelerator.sync_gradients
accelerator.print(f"steps {updates}")
