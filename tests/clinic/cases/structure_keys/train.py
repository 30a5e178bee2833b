"""Train a generator so that a frozen transformer sees the structure of one image and the appearance of another."""

import time

import torch
import torch.nn.functional as F
from torch import nn

DEPTH, WIDTH, HEADS, SIDE, PATCH = 4, 48, 4, 32, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.drop = nn.Identity()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = self.drop((q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        wide = 2 * WIDTH
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, wide), nn.GELU(), nn.Linear(wide, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))

    def forward(self, image):
        return self.blocks(self.embed(image).flatten(2).transpose(1, 2))


class FeatureExtractor:
    """Reads what flows through the blocks of the transformer, by hooks that are there for one image."""

    def __init__(self):
        self.model = Transformer().eval().requires_grad_(False)
        self.handlers, self.outputs = [], {"block": [], "attn": [], "qkv": [], "patch": []}

    def _keep(self, kind):
        return lambda module, inputs, output: self.outputs[kind].append(output)

    def _register(self):
        for block in self.model.blocks:
            self.handlers.append(block.register_forward_hook(self._keep("block")))
            self.handlers.append(block.mlp.register_forward_hook(self._keep("patch")))
            self.handlers.append(block.attn.drop.register_forward_hook(self._keep("attn")))
            self.handlers.append(block.attn.qkv.register_forward_hook(self._keep("qkv")))

    def _clear(self):
        for handler in self.handlers:
            handler.remove()
        self.outputs = {kind: [] for kind in self.outputs}

    def read(self, kind, image):
        self._register()
        self.model(image)
        found = self.outputs[kind]
        self._clear()
        return found

    def keys_similarity(self, image):
        keys = F.normalize(self.read("qkv", image)[-1][..., WIDTH : 2 * WIDTH], dim=-1)
        return keys @ keys.transpose(1, 2)

    def summary(self, image):
        return self.read("block", image)[-1].mean(1)


class Generator(nn.Sequential):
    def __init__(self, width=24):
        layers = nn.Conv2d(3, width, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(width, 3, 3, padding=1), nn.Sigmoid()
        super().__init__(*layers)


def train(generator, extractor, structure, appearance, steps):
    optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        crop = structure.roll((step % 4, step % 3), (2, 3))
        optimizer.zero_grad()
        made = generator(crop)
        loss_structure = F.mse_loss(extractor.keys_similarity(made), extractor.keys_similarity(crop))
        loss_appearance = F.mse_loss(extractor.summary(made), extractor.summary(appearance))
        loss = loss_structure + 0.1 * loss_appearance
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: structure {loss_structure.item():.4f}, appearance {loss_appearance.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(7)
    images = torch.rand(2, 1, 3, SIDE, SIDE)
    begin, cpu = time.perf_counter(), time.process_time()
    train(Generator(), FeatureExtractor(), *images, steps=260)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
