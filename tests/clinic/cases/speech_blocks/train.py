"""Adapt the encoder of a speech model: blocks of frames attend among themselves, with embeddings of their distances."""

import argparse
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class EncoderConfig:
    mels: int = 40
    width: int = 48
    heads: int = 4
    layers: int = 5
    context: int = 25
    max_distance: int = 64
    has_buffer: bool = False


class BlockAttention(nn.Module):
    """Attention within blocks of `context` frames."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.context, self.size = config.heads, config.context, config.width // config.heads
        self.project, self.out = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)
        self.relative = nn.Embedding(2 * config.max_distance + 1, self.size)
        frames = torch.arange(config.context)
        limit = config.max_distance
        distances = (frames[:, None] - frames[None, :]).clamp(-limit, limit) + limit
        if config.has_buffer:
            self.register_buffer("distances", distances, persistent=False)
        else:
            self.distances = distances

    def forward(self, frames):
        batch, length, width = frames.shape
        blocks = self.project(frames).reshape(-1, self.context, 3, self.heads, self.size)
        query, key, value = blocks.permute(2, 0, 3, 1, 4)
        near = self.relative(self.distances.to(frames.device))
        bias = torch.einsum("bhcd,ckd->bhck", query, near) * self.size**-0.5
        found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.out(found.transpose(1, 2).reshape(batch, length, width))


class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = BlockAttention(config)
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in range(2))
        self.feed = nn.Sequential(
            nn.Linear(config.width, 2 * config.width), nn.SiLU(), nn.Linear(2 * config.width, config.width)
        )

    def forward(self, frames):
        frames = frames + self.attention(self.norms[0](frames))
        return frames + self.feed(self.norms[1](frames))


class Encoder(nn.Module):
    def __init__(self, config, characters=30):
        super().__init__()
        self.input = nn.Linear(config.mels, config.width)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.head = nn.Linear(config.width, characters)

    def forward(self, mels):
        frames = self.input(mels)
        for layer in self.layers:
            frames = layer(frames)
        return self.head(frames)


class Corpus:
    """Frames of recordings and their characters, which lie on the device."""

    def __init__(self, recordings, config, device):
        characters = torch.randint(30, (recordings, 2 * config.context), device=device)
        codes = torch.randn(30, config.mels, device=device)
        self.characters = characters
        self.mels = codes[characters] + torch.randn(*characters.shape, config.mels, device=device)

    def batches(self, size):
        yield from zip(self.mels.split(size), self.characters.split(size), strict=True)


def adapt(encoder, corpus, epochs):
    """Train the encoder; the mean loss of an epoch stays on the device until the end."""
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    means = []
    for _ in range(epochs):
        losses = []
        for mels, characters in corpus.batches(8):
            loss = nn.functional.cross_entropy(encoder(mels).flatten(0, 1), characters.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        means.append(torch.stack(losses).mean())
    return means


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--buffer", action="store_true", help="the distances move to the device with the model")
    options = parser.parse_args()
    torch.manual_seed(5)
    config = EncoderConfig(has_buffer=options.buffer)
    encoder = Encoder(config).to(options.device)
    means = adapt(encoder, Corpus(80, config, options.device), 4)
    print("losses of the epochs:", *(f"{mean.item():.3f}" for mean in means))


if __name__ == "__main__":
    main()
