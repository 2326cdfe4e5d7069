"""What a rubric of verifiers gives a right and a wrong completion; run in the environment of verifiers."""

import asyncio
import json

from ansatz.adapters import verifiers_rubric

rubric = verifiers_rubric(weight=0.5)
rewards = []
for text in (r"\boxed{5}", r"\boxed{6}"):
    state = {
        "prompt": [{"role": "user", "content": "2 + 3?"}],
        "completion": [{"role": "assistant", "content": text}],
        "answer": "5",
        "task": "sum",
        "info": {},
    }
    asyncio.run(rubric.score_rollout(state))
    rewards.append(state["reward"])
print(json.dumps(rewards))
