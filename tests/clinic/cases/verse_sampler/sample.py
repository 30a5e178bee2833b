"""Write verses with a small decoder, one token after the other."""

import argparse
import time

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, past=None):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            past[:] = [k, v]
        y = scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(rows, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past=None):
        x = x + self.attention(self.first(x), past)
        return x + self.mlp(self.second(x))


class Decoder(nn.Module):
    def __init__(self, tokens=96, width=192, heads=6, depth=6, limit=512):
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(limit, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens, start=0, pasts=None):
        x = self.token(tokens) + self.place(torch.arange(start, start + tokens.shape[1]))
        for number, layer in enumerate(self.layers):
            x = layer(x, pasts[number] if pasts else None)
        return self.head(x[:, -1])

    @torch.no_grad()
    def write(self, tokens, count, keep):
        pasts = [[] for _ in self.layers] if keep else None
        for _ in range(count):
            new = tokens if not keep or not pasts[0] else tokens[:, -1:]
            logits = self(new, tokens.shape[1] - new.shape[1], pasts)
            tokens = torch.cat((tokens, torch.multinomial(logits.softmax(-1), 1)), 1)
        return tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verses", type=int, default=2)
    parser.add_argument("--length", type=int, default=160)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(3)
    model = Decoder().eval()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(args.verses):
        verse = model.write(torch.randint(96, (1, 8)), args.length, args.keep)
        print("".join(chr(32 + token) for token in verse[0].tolist()))
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
