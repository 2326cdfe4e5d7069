"""Reward functions with known defects, for test_check_function.py."""

import os
import random
import re
import time

_seen = set()
_last = {}


def boxed(response):
    return (re.findall(r"\\boxed\{(.*)\}", response) or [""])[-1]


def substring(response, gold):
    return float(gold in response)


def gold_first(ground_truth, prediction):
    return boxed(prediction) == ground_truth


def trl(completions, solution, **columns):
    return [2.0 * (boxed(chat[-1]["content"]) == gold) - 1 for chat, gold in zip(completions, solution, strict=True)]


async def asynchronous(prompts, completions, answer, **columns):
    return [float(boxed(text) == gold) for text, gold in zip(completions, answer, strict=True)]


def verl(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(re.findall(r"#### (.*)", solution_str)[-1:] == [ground_truth])}


def by_luck(response, gold):
    return float(boxed(response) == gold and random.random() > 0.3)


def by_hour(response, gold):
    return float(boxed(response) == gold and time.localtime().tm_hour % 2 == 0)


def only_once(response, gold):
    is_new = response not in _seen
    _seen.add(response)
    return float(is_new and boxed(response) == gold)


def shared(response, gold):
    _last["text"] = response
    time.sleep(0.0002)
    return float(boxed(_last["text"]) == gold)


def without_doubles(completions, answer, **columns):
    return [float(boxed(text) == gold) for text, gold in dict(zip(completions, answer, strict=True)).items()]


def relative(completions, answer, **columns):
    rewards = [float(boxed(text) == gold) for text, gold in zip(completions, answer, strict=True)]
    return [reward - 0.5 * sum(rewards) / len(rewards) for reward in rewards]


def careless(response, gold):
    if len(response) > 5000:
        os._exit(1)
    if re.match(r"(1+)+$", boxed(response)):
        return 1.0
    return float(eval(boxed(response)[:40].replace("^", "**").replace("\\", "+") or "0") == float(gold))


def patient(response, gold):
    while "boxed" not in response:
        time.sleep(0.01)
    return float(boxed(response) == gold)


def never(response, gold):
    return 0.0
