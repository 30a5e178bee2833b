"""Write verses with a small decoder, one token after the other."""

import sys
import time

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x, past):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            past[:] = [k, v]
        y = scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x, past=None):
        x = x + self.attend(self.first(x), past)
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


def main(verses=2, length=160):
    torch.manual_seed(3)
    model = Decoder().eval()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(verses):
        verse = model.write(torch.randint(96, (1, 8)), length, "--keep" in sys.argv)
        print("".join(chr(32 + token) for token in verse[0].tolist()))
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
