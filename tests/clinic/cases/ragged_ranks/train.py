"""Tune a text encoder on several ranks with rows of very different lengths."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

ROWS = 8


class Texts(Dataset):
    """Texts whose lengths follow a lognormal law, between 8 and 400."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(4)
        self.lengths = torch.exp(4.0 + torch.randn(count, generator=generator)).int().clamp(8, 400).tolist()
        self.texts = [torch.randint(1, 500, (length,), generator=generator) for length in self.lengths]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index]


class RankBatches(Sampler):
    """The batches of one rank: those of a step together hold ROWS texts for each rank."""

    def __init__(self, lengths, rank, ranks, by_length):
        self.lengths, self.rank, self.ranks, self.by_length = lengths, rank, ranks, by_length

    def __len__(self):
        return len(self.lengths) // (ROWS * self.ranks)

    def __iter__(self):
        order = torch.randperm(len(self.lengths), generator=torch.Generator().manual_seed(6)).tolist()
        share = ROWS * self.ranks
        if self.by_length:
            order.sort(key=lambda index: self.lengths[index])
        for start in (torch.randperm(len(self), generator=torch.Generator().manual_seed(7)) * share).tolist():
            together = order[start : start + share]
            yield together[self.rank :: self.ranks]


class Encoder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(500, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 500)

    def forward(self, rows):
        return self.head(self.layers(self.embed(rows), src_key_padding_mask=rows == 0))


def pad(texts):
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by-length", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    texts = Texts(480)
    sampler = RankBatches(texts.lengths, dist.get_rank(), dist.get_world_size(), options.by_length)
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for rows in DataLoader(texts, batch_sampler=sampler, collate_fn=pad):
        loss = nn.functional.cross_entropy(model(rows).flatten(0, 1), rows.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f}")
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
