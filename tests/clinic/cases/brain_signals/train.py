"""Pretrain on brain signals with masked patches on several ranks; a step uses one of two heads."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Signals(nn.Module):
    """Patches of channels through a transformer; either their codes or their spectrum is predicted."""

    def __init__(self, patch=100, width=96, codes=128):
        super().__init__()
        self.cut = nn.Linear(patch, width)
        self.blank = nn.Parameter(torch.zeros(width))
        layer = nn.TransformerEncoderLayer(width, 4, 192, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.codes = nn.Linear(width, codes)
        self.spectrum = nn.Linear(width, patch // 2 + 1)

    def forward(self, patches, mask, on_spectrum):
        tokens = self.cut(patches)
        if not on_spectrum:
            tokens = torch.where(mask[..., None], self.blank, tokens)
        tokens = self.body(tokens)
        return self.spectrum(tokens) if on_spectrum else self.codes(tokens[mask])


def save(model, step):
    if dist.get_rank() == 0:
        print(f"step {step}: {sum(tensor.numel() for tensor in model.module.state_dict().values())} values to keep")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(30 + dist.get_rank())
    model = DistributedDataParallel(Signals(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(60):
        patches = torch.randn(8, 96, 100).cumsum(-1) * 0.1
        mask = torch.rand(8, 96) < 0.5
        if step % 3 == 2:
            target = torch.fft.rfft(patches).abs().log1p()
            loss = nn.functional.mse_loss(model(patches, mask, True), target)
        else:
            target = (patches[..., ::16] > 0).long().mul(2 ** torch.arange(7)).sum(-1)
            loss = nn.functional.cross_entropy(model(patches, mask, False), target[mask])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 19:
            save(model, step)
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f}")
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
