"""Train a sentence encoder on two ranks, and look how well it finds the partner of each sentence."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS, LENGTH = 400, 24


class Encoder(nn.Module):
    """A small transformer whose outputs are averaged."""

    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, sentences):
        return nn.functional.normalize(self.layers(self.words(sentences) + self.places).mean(1), dim=-1)


def make_pairs(count, generator):
    """Sentences, and others that say the same with some words replaced."""
    first = torch.randint(WORDS, (count, LENGTH), generator=generator)
    replaced = torch.rand(count, LENGTH, generator=generator) < 0.5
    return first, torch.where(replaced, torch.randint(WORDS, first.shape, generator=generator), first)


class RetrievalEvaluator:
    """Accuracy and mean reciprocal rank of the partners among all sentences."""

    def __init__(self, pairs, is_shared, batch_size=32):
        self.pairs, self.is_shared, self.batch_size = pairs, is_shared, batch_size

    def encode(self, model, sentences):
        if not self.is_shared:
            return torch.cat([model(batch) for batch in sentences.split(self.batch_size)])
        mine = sentences.chunk(dist.get_world_size())[dist.get_rank()]
        mine = torch.cat([model(batch) for batch in mine.split(self.batch_size)])
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        return torch.cat(parts)

    @torch.no_grad()
    def __call__(self, model):
        model.eval()
        first, second = (self.encode(model, sentences) for sentences in self.pairs)
        scores = first @ second.T
        ranks = (scores > scores.diagonal()[:, None]).sum(1) + 1
        model.train()
        return {"accuracy": (ranks == 1).float().mean().item(), "mrr": (1 / ranks).mean().item()}


class Trainer:
    def __init__(self, evaluator, eval_steps=10):
        self.model = DistributedDataParallel(Encoder())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.evaluator, self.eval_steps, self.best = evaluator, eval_steps, 0.0

    def training_step(self, first, second):
        left, right = self.model(torch.cat([first, second])).chunk(2)
        scores = left @ right.T / 0.05
        loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def train(self, steps, generator):
        for step in range(1, steps + 1):
            self.training_step(*make_pairs(24, generator))
            if step % self.eval_steps == 0:
                found = self.evaluator(self.model.module)
                self.best = max(self.best, found["mrr"])
                if dist.get_rank() == 0:
                    print(step, {name: round(value, 4) for name, value in found.items()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", action="store_true", help="each rank encodes a part of the sentences")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    evaluator = RetrievalEvaluator(make_pairs(1200, torch.Generator().manual_seed(1)), options.share)
    trainer = Trainer(evaluator)
    begin, cpu = time.perf_counter(), time.process_time()
    trainer.train(80, torch.Generator().manual_seed(10 + dist.get_rank()))
    if dist.get_rank() == 0:
        print(f"best mrr {trainer.best:.4f}")
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
