"""Accelerate's quick start: a prepared loop with gradient accumulation, a scheduler and gathered predictions."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))
data = TensorDataset(torch.randn(16 * 20, 64), torch.randn(16 * 20, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
loader = DataLoader(data, batch_size=16, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for epoch in range(2):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    predictions, targets = accelerator.gather_for_metrics((model(inputs), targets))
    accelerator.print(
        "epoch", epoch, "device", accelerator.device, "loss", nn.functional.mse_loss(predictions, targets).item()
    )
