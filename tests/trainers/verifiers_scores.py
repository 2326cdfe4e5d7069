"""What a task of verifiers 0.4 scores a right and a wrong reply with our reward, in the environment of verifiers."""

import asyncio
import json

import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Sum(vf.Task[Data]):
    """It has no reward of its own; the configuration names ours."""


config = vf.TaskConfig(rewards={"answer": {"fn": "ansatz_verify.adapters:verifiers_reward", "weight": 0.5}})
rewards = []
for text in (r"\boxed{5}", r"\boxed{6}"):
    trace = vf.Trace.model_construct(root_reply=text)
    asyncio.run(Sum(Data(prompt="2 + 3?", answer="5"), config).score(trace))
    rewards.append(trace.reward)
print(json.dumps(rewards))
