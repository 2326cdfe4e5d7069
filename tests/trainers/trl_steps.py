"""Two steps of TRL's GRPOTrainer with our rewards, run in TRL's environment: trl_steps.py MODEL OUT."""

import json
import sys

from ansatz_verify import adapters
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from ansatz.adapters import trl_reward

model, out = sys.argv[1:]
rows = [{"prompt": f"Question: {number} + 1?\nAnswer:\n", "answer": str(number + 1)} for number in range(8)]
trainer = GRPOTrainer(
    model=model,
    reward_funcs=[trl_reward({"math_answer": {"correct": 2.0, "wrong": -1.0}}), adapters.trl_reward()],
    args=GRPOConfig(
        output_dir=out,
        max_steps=2,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
    ),
    train_dataset=Dataset.from_list(rows),
)
trainer.train()
print(json.dumps([row for row in trainer.state.log_history if "reward" in row]))
