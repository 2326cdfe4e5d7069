"""Responses and losses of three steps of TRL's DistillationTrainer: trl_distillation_steps.py MODEL TEACHER CASES.

It runs in TRL's environment. CASES: {name: {keys of its DistillationConfig}} as JSON. The last line: {name: [{prompts,
completions, loss} of each step]}: the trainer samples the responses, so whoever compares takes them from here.
"""

import json
import sys
import tempfile

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DistillationConfig, DistillationTrainer

model, teacher, cases = sys.argv[1:]


class Recorded(DistillationTrainer):
    """Keeps the tokens and the loss of each step."""

    steps: list[dict]

    def _compute_loss(self, student, inputs, num_items_in_batch):
        loss, *rest = super()._compute_loss(student, inputs, num_items_in_batch)
        tokens = {
            kind: [
                [token for token, kept in zip(ids, mask, strict=True) if kept]
                for ids, mask in zip(inputs[f"{kind}_ids"].tolist(), inputs[f"{kind}_mask"].tolist(), strict=True)
            ]
            for kind in ("prompt", "completion")
        }
        self.steps.append({"prompts": tokens["prompt"], "completions": tokens["completion"], "loss": loss.item()})
        return (loss, *rest)


def steps_of(settings):
    with tempfile.TemporaryDirectory() as out:
        trainer = Recorded(
            model=AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
            teacher_model=AutoModelForCausalLM.from_pretrained(teacher, dtype="float32"),
            args=DistillationConfig(
                output_dir=out,
                max_steps=3,
                per_device_train_batch_size=8,
                max_completion_length=12,
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
            train_dataset=Dataset.from_list([{"prompt": f"Question: {n} + {n % 7}?\nAnswer:\n"} for n in range(40)]),
        )
        trainer.steps = []
        trainer.train()
        return trainer.steps


print(json.dumps({name: steps_of(settings) for name, settings in json.loads(cases).items()}))
