"""The losses of five steps of a trainer of TRL for each case: trl_preference_steps.py MODEL ROWS CASES.

It runs in TRL's environment. ROWS: {prompt, chosen, rejected} for the DPOTrainer, {prompt, completion, label} for the
KTOTrainer, in the order of the steps, 8 in each. CASES: {name: {keys of its config}} as JSON.
"""

import json
import sys
import tempfile

from datasets import Dataset
from torch.utils.data import SequentialSampler
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer

model, pairs, cases = sys.argv[1:]
with open(pairs, encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
Trainer, Config = (KTOTrainer, KTOConfig) if "label" in rows[0] else (DPOTrainer, DPOConfig)


class InOrder(Trainer):
    """Takes the rows in their order and keeps the loss of each step in full precision."""

    losses: list[float]

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append(loss.item())
        return loss


def losses_of(settings):
    with tempfile.TemporaryDirectory() as out:
        trainer = InOrder(
            model=AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
            args=Config(
                output_dir=out,
                max_steps=5,
                per_device_train_batch_size=8,
                learning_rate=1e-3,
                lr_scheduler_type="constant",
                weight_decay=0.0,
                max_grad_norm=1.0,
                bf16=False,
                gradient_checkpointing=False,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                **settings,
            ),
            processing_class=AutoTokenizer.from_pretrained(model),
            train_dataset=Dataset.from_list(rows),
        )
        trainer.losses = []
        trainer.train()
        return trainer.losses


print(json.dumps({name: losses_of(settings) for name, settings in json.loads(cases).items()}))
