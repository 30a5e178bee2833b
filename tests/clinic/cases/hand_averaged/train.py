"""Fine-tune a mask decoder jointly on several ranks, with gradients that the trainer averages itself."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn


class Decoder(nn.Module):
    """Many small two-way blocks between prompts and an image."""

    def __init__(self, width=48, depth=20):
        super().__init__()
        self.prompt = nn.Linear(4, width)
        self.image = nn.Conv2d(3, width, 8, stride=8)
        self.gates = nn.ModuleList(
            nn.ModuleDict(
                {"norm": nn.LayerNorm(width), "look": nn.Linear(width, width), "write": nn.Linear(width, width)}
            )
            for _ in range(depth)
        )
        self.quality = nn.Linear(width, 1)

    def forward(self, images, boxes):
        pixels = self.image(images)
        token = self.prompt(boxes)
        for gate in self.gates:
            weights = torch.einsum("bc,bchw->bhw", gate["look"](gate["norm"](token)), pixels).flatten(1).softmax(-1)
            token = token + gate["write"](torch.einsum("bp,bcp->bc", weights, pixels.flatten(2)))
        return torch.einsum("bc,bchw->bhw", token, pixels), self.quality(token)


class JointTrainer:
    def __init__(self, model, flat):
        self.model, self.flat = model, flat
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def average_gradients(self):
        ranks = dist.get_world_size()
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        if self.flat:
            joined = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(joined)
            parts = joined.div_(ranks).split([gradient.numel() for gradient in gradients])
            torch._foreach_copy_(gradients, [part.view_as(old) for part, old in zip(parts, gradients)])
            return
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient.div_(ranks)

    def iterate(self, images, boxes, masks):
        self.optimizer.zero_grad()
        logits, quality = self.model(images, boxes)
        overlap = ((logits > 0) == (masks > 0.5)).float().mean((1, 2))
        loss = nn.functional.binary_cross_entropy_with_logits(logits, masks)
        loss = loss + nn.functional.mse_loss(quality[:, 0], overlap)
        loss.backward()
        self.average_gradients()
        self.optimizer.step()
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flat", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(17 + dist.get_rank())
    trainer = JointTrainer(Decoder(), options.flat)
    begin, cpu = time.perf_counter(), time.process_time()
    for number in range(90):
        images = torch.rand(2, 3, 64, 64)
        loss = trainer.iterate(images, torch.rand(2, 4), (images.mean(1)[:, ::8, ::8] > 0.5).float())
        if number % 30 == 0 and dist.get_rank() == 0:
            print(f"iteration {number}: {loss.item():.4f}")
    if dist.get_rank() == 0:
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
