"""Train a denoiser on a GPU with noise that the host draws."""

import torch
from torch import nn

STEPS = 40


def main():
    torch.manual_seed(0)
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    clean = torch.randn(64, 64, device=device)
    for step in range(STEPS):
        noise = torch.randn(64, 64).to(device)
        loss = nn.functional.mse_loss(model(clean + noise), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
