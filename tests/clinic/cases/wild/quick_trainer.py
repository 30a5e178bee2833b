"""The Hugging Face Trainer's quick start on a small GPT-2, whose data set tokenizes in __getitem__(). Expected: input
takes part of a step; most of it is computing and the framework.

The truth is a second py-spy on the bare program.
"""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    def __len__(self) -> int:
        return 8 * 80

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(64) * (index % 7 + 1)) % 512
        return {"input_ids": ids, "labels": ids}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=512, n_positions=64, n_embd=96, n_layer=3, n_head=4))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=1,
        per_device_train_batch_size=8,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    result = Trainer(model=model, args=arguments, train_dataset=Tokens(), eval_dataset=Tokens()).train()
print(f"steps {result.global_step}")
