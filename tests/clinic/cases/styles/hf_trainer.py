"""The Hugging Face Trainer drives the loop, on a tiny GPT-2."""

import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60


class Tokens(Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(32) * (index % 7 + 1)) % 128
        return {"input_ids": ids, "labels": ids}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=48, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=8,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    result = Trainer(model=model, args=arguments, train_dataset=Tokens()).train()
print(f"steps {result.global_step} loss {result.training_loss:.6f}")
