"""Update a recurrent policy by minibatches of episode fragments of different lengths."""

import sys

import torch
from rollkit import FragmentBatch
from torch import nn

ON_HOST = "--lengths-on-host" in sys.argv


class Policy(nn.Module):
    def __init__(self, seen=6, memory=16, actions=3):
        super().__init__()
        self.cell = nn.RNNCell(seen, memory)
        self.actor, self.critic = nn.Linear(memory, actions), nn.Linear(memory, 1)

    def forward(self, observations):
        state = observations.new_zeros(len(observations), self.cell.hidden_size)
        states = []
        for seen in observations.unbind(1):
            state = self.cell(seen, state)
            states.append(state)
        states = torch.stack(states, dim=1)
        return self.actor(states).log_softmax(-1), self.critic(states).squeeze(-1)


def losses(policy, batch, lengths):
    chances, values = policy(batch.padded("seen"))
    taken = chances.gather(-1, batch.padded("action").unsqueeze(-1)).squeeze(-1)
    edge = batch.padded("gain") - values
    cost = -taken * edge.detach() + 0.5 * edge.square()
    return (cost * batch.mask(lengths)).sum() / batch.count


torch.manual_seed(0)
policy = Policy().to("cuda")
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
for _ in range(3):
    host = torch.randint(3, 10, (32,))
    host[::8] = 10
    lengths = host.to("cuda")
    columns = {
        "seen": torch.randn(32, 10, 6, device="cuda"),
        "action": torch.randint(0, 3, (32, 10), device="cuda"),
        "gain": torch.randn(32, 10, device="cuda"),
    }
    for begin in range(0, 32, 8):
        part = slice(begin, begin + 8)
        known = host[part].tolist() if ON_HOST else lengths[part]
        batch = FragmentBatch({name: column[part] for name, column in columns.items()}, known)
        loss = losses(policy, batch, lengths[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.4f}")
