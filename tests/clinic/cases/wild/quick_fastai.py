"""fastai's Learner on a generated table, with validation after each epoch. Expected: the training batches are the
steps, not the 26 validation batches.

The truth is the number of batches that a callback counts, and a second py-spy on the bare program.
"""

import torch
from fastai.basics import Callback, DataLoaders, Learner
from torch.utils.data import TensorDataset


class Count(Callback):
    updates = 0

    def after_step(self) -> None:
        self.updates += 1


torch.manual_seed(0)
train = TensorDataset(torch.randn(64 * 100, 128), torch.randn(64 * 100, 1))
valid = TensorDataset(torch.randn(64 * 13, 128), torch.randn(64 * 13, 1))
loaders = DataLoaders.from_dsets(train, valid, bs=64, num_workers=0, device="cpu")
model = torch.nn.Sequential(torch.nn.Linear(128, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
count = Count()
learner = Learner(loaders, model, loss_func=torch.nn.MSELoss(), cbs=[count])
learner.fit(2, 1e-3)
print(f"steps {count.updates}")
