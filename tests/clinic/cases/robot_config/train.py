"""Train a wheeled robot to drive to a goal in a room, by policy gradients."""

import math
import sys
import time

import torch
import treeconf
from torch import nn

HABITAT = {
    "agents": {"main": {"height": 1.2, "radius": 0.1, "sensors": ["pose", "goal"]}},
    "room": {"width": 6.0, "time_step": 0.1},
    "episode": {"success_distance": 0.4, "max_steps": 40},
    "reward": {"success": 5.0, "slack": -0.01},
    "actions": {"speed": 4.0, "turn": 0.9, "step": "${room.time_step}"},
}


class Room:
    """A room with one robot and one goal."""

    def __init__(self, config):
        self.config = config

    def reset(self):
        """Put robot and goal somewhere."""
        self.x, self.y, self.goal_x, self.goal_y = (torch.rand(4) * 4 - 2).tolist()
        self.heading, self.steps = 0.0, 0
        return self.observe()

    def observe(self):
        """Distance and bearing of the goal as the robot sees it."""
        self.distance = math.hypot(self.goal_x - self.x, self.goal_y - self.y)
        bearing = math.atan2(self.goal_y - self.y, self.goal_x - self.x) - self.heading
        return torch.tensor([self.distance, math.cos(bearing), math.sin(bearing), self.x, self.y])

    def step(self, action):
        """Turn left, drive, or turn right."""
        self.heading += self.config.actions.turn * (action - 1)
        stride = self.config.actions.speed * self.config.actions.step
        limit = self.config.room.width / 2 - self.config.agents.main.radius
        self.x = max(-limit, min(limit, self.x + stride * math.cos(self.heading)))
        self.y = max(-limit, min(limit, self.y + stride * math.sin(self.heading)))
        self.steps += 1
        seen = self.observe()
        success = self.distance < self.config.episode.success_distance
        reward = self.config.reward.slack - 0.1 * self.distance + success * self.config.reward.success
        return seen, reward, success or self.steps >= self.config.episode.max_steps


def main():
    """Train for some hundred episodes."""
    torch.manual_seed(3)
    config = treeconf.Node(HABITAT)
    room = Room(treeconf.to_object(config) if "--cured" in sys.argv else config)
    policy = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)

    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(300):
        seen, taken, rewards, done = [room.reset()], [], [], False
        while not done:
            with torch.no_grad():
                action = torch.multinomial(policy(seen[-1]).softmax(-1), 1).item()
            observation, reward, done = room.step(action)
            seen.append(observation)
            taken.append(action)
            rewards.append(reward)
        gains = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        surprise = nn.functional.cross_entropy(policy(torch.stack(seen[:-1])), torch.tensor(taken), reduction="none")
        loss = (surprise * (gains - gains.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"return {sum(rewards):.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
