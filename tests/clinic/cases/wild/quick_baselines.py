"""Stable-Baselines3: PPO on CartPole by learn(). Expected: roll-out, in collect_rollouts(), which takes most of the
time; the script's line learn() says nothing.

The truth is the number of updates (n_updates epochs of 2 minibatches), and a second py-spy on the bare program.
"""

from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", n_steps=1024, batch_size=128, n_epochs=2, seed=0, device="cpu", verbose=0)
model.learn(total_timesteps=8192)
print(f"steps {model._n_updates * 8}")
