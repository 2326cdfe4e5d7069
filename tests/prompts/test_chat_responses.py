"""What SFT teaches of a conversation in a chat template, against what transformers makes of the whole conversation."""

from __future__ import annotations

import dataclasses

import pytest
from chat_families import FAMILIES, template_ids, tokenizer

from ansatz.config.chat import ChatTemplate
from ansatz.data.fusion import fusion
from ansatz.errors import ModelError
from ansatz.prompts.render import Demonstration, render_demonstration
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.types import Problem

PLAIN = ChatTemplate(name="chat", user="none")
SYSTEM = {"role": "system", "content": "You help."}
EARLIER = [{"role": "user", "content": "What is 7 times 6?"}, {"role": "assistant", "content": "It is 42."}]
PROBLEM = Problem(
    id="p", question="And 12 + 30?", answers=("42",), source="test", split="train", solution="42 again.\n\nSo 42."
)
ASKED = {"role": "user", "content": PROBLEM.question}
STABLE = ("Qwen2.5", "Llama 3", "Gemma 3", "Phi-4", "Mistral")
THINKS = "<think>\n12 and 30 make 42.\n</think>\n\nIt is 42."


def after(*turns, solution: str = PROBLEM.solution or "") -> Problem:
    return dataclasses.replace(PROBLEM, solution=solution, meta={"earlier_turns": list(turns)})


def said(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def ids(demonstration: Demonstration) -> list[int]:
    return [*demonstration.prompt.token_ids, *demonstration.response_ids]


def taught(demonstration: Demonstration) -> list[int]:
    mask = demonstration.assistant_mask or [True] * len(demonstration.response_ids)
    return [token for token, is_said in zip(demonstration.response_ids, mask, strict=True) if is_said]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "DeepSeek-R1-distill"])
@pytest.mark.parametrize("before", [[], EARLIER], ids=["one turn", "two turns"])
def test_prompt_and_response_are_the_conversation_up_to_the_end_of_the_turn(name, before) -> None:
    words = tokenizer(name)
    demonstration = render_demonstration(after(*before), PLAIN, words)
    whole = template_ids(words, [*before, ASKED, said(PROBLEM.solution)], for_response=False)
    assert ids(demonstration) == whole[: len(ids(demonstration))]
    assert words.convert_ids_to_tokens(demonstration.response_ids[-1]) == FAMILIES[name].turn_end
    assert words.decode(whole[len(ids(demonstration)) :]).strip() == ""
    assert list(demonstration.prompt.token_ids) == template_ids(words, [*before, ASKED])


@pytest.mark.parametrize("name", STABLE)
@pytest.mark.parametrize("system", [[], [SYSTEM]], ids=["no system prompt", "system prompt"])
def test_all_responses_of_a_conversation_are_taught_and_nothing_else(name, system) -> None:
    """Against the mask that transformers computes where a template marks what the assistant says."""
    problem, marked = after(*system, *EARLIER), tokenizer(name, marked=True)
    turns = [*system, *EARLIER, ASKED, said(PROBLEM.solution)]
    if name == "Mistral" and system:  # the system prompt moves to the newest question, so no text has both prompts
        with pytest.raises(ModelError, match=r"differently when the conversation goes on"):
            render_demonstration(problem, PLAIN, tokenizer(name), every_response=True)
        return
    expected = marked.apply_chat_template(turns, return_dict=True, return_assistant_tokens_mask=True)
    demonstration = render_demonstration(problem, PLAIN, tokenizer(name), every_response=True)
    length = len(ids(demonstration))
    assert ids(demonstration) == expected["input_ids"][:length]
    mask = [0] * len(demonstration.prompt.token_ids) + [int(is_said) for is_said in demonstration.assistant_mask]
    assert mask == expected["assistant_masks"][:length]
    assert sum(mask) == sum(expected["assistant_masks"])
    packed = pack_rollouts([TrainSample.from_demonstration(demonstration, group=0)], device="cpu")
    assert packed.sampled_mask_T.int().tolist() == mask


def test_a_conversation_with_a_tool_teaches_the_responses_around_it() -> None:
    words, used = tokenizer("Qwen2.5"), [said("Let me add."), {"role": "tool", "content": "42"}, said("It is 42.")]
    problem = after(EARLIER[0], *used)
    demonstration = render_demonstration(problem, PLAIN, words, every_response=True)
    text = words.decode(taught(demonstration))
    assert text == "Let me add.<|im_end|>It is 42.<|im_end|>42 again.\n\nSo 42.<|im_end|>"
    whole = template_ids(words, [EARLIER[0], *used, ASKED, said(PROBLEM.solution)], for_response=False)
    assert ids(demonstration) == whole[: len(ids(demonstration))]


@pytest.mark.parametrize("name", ["Qwen3", "DeepSeek-R1-distill"])
def test_a_template_that_changes_earlier_responses_cannot_teach_all_in_one_text(name: str) -> None:
    problem = after(EARLIER[0], said(THINKS), solution=THINKS)
    with pytest.raises(ModelError, match=r"renders the response .* of problem 'p' differently.*each_response: true"):
        render_demonstration(problem, PLAIN, tokenizer(name), every_response=True)
    assert taught(render_demonstration(problem, PLAIN, tokenizer(name)))


def test_a_thought_that_the_prompt_opens_is_continued_and_kept() -> None:
    words = tokenizer("DeepSeek-R1-distill")
    demonstration = render_demonstration(after(solution=THINKS), PLAIN, words)
    assert words.decode(demonstration.prompt.token_ids).endswith("<|Assistant|><think>\n")
    assert words.decode(demonstration.response_ids) == "12 and 30 make 42.\n</think>\n\nIt is 42.<|end_of_sentence|>"
    sampled = THINKS.removeprefix("<think>\n")  # such as a response of rejection sampling
    assert render_demonstration(after(solution=sampled), PLAIN, words) == dataclasses.replace(
        demonstration, prompt=dataclasses.replace(demonstration.prompt, problem=after(solution=sampled))
    )


CLOSED = ChatTemplate(name="chat", user="none", arguments={"enable_thinking": False})


@pytest.mark.parametrize(
    ("name", "chat", "solution", "message"),
    [
        ("DeepSeek-R1-distill", PLAIN, "It is 42.", "opens a thought.*but the solution of problem 'p'.*closes none"),
        ("Qwen3", CLOSED, THINKS, "a thought of its own, but the solution of problem 'p' of 'test' has another one"),
    ],
)
def test_a_thought_that_does_not_fit_the_prompt_is_refused(name, chat, solution, message) -> None:
    with pytest.raises(ModelError, match=message):
        render_demonstration(after(solution=solution), chat, tokenizer(name))


@pytest.mark.parametrize("switch", ["flag", "template"])
@pytest.mark.parametrize("name", ["Qwen3", "DeepSeek-R1-distill"])
def test_both_modes_of_fusion_go_through_the_template(name: str, switch: str) -> None:
    words = tokenizer(name)
    of = {"source": "arithmetic", "count": 40}
    problems = list(fusion(split="train", of=of, switch=switch, unmarked_frac=0.3))
    assert {problem.meta["mode"] for problem in problems} == {"think", "no_think"}
    if switch == "template" and name != "Qwen3":
        with pytest.raises(ModelError, match="does not use enable_thinking"):
            [render_demonstration(problem, PLAIN, words) for problem in problems]
        return
    for problem in problems:
        demonstration = render_demonstration(problem, PLAIN, words)
        text = words.decode(ids(demonstration))
        assert text.count("<think>") == text.count("</think>") == 1
        thinks = problem.meta["mode"] == "think"
        assert ("<think>\n\n</think>" in text) == (not thinks)
        if switch == "flag":
            assert demonstration.prompt.text.count("/no_think") == (not thinks)
        if name == "Qwen3":
            arguments = {} if switch == "flag" else problem.template_arguments
            turns = [{"role": "user", "content": problem.question}]
            assert list(demonstration.prompt.token_ids) == template_ids(words, turns, **arguments)
            whole = template_ids(words, [*turns, said(problem.solution)], for_response=False, **arguments)
            assert ids(demonstration) == whole[: len(ids(demonstration))]


def test_without_an_end_of_turn_the_response_is_the_solution_and_the_end_token() -> None:
    words = tokenizer("Phi-4")
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}assistant: "
    plain = type(words)(tokenizer_object=words.backend_tokenizer, eos_token="<|endoftext|>", chat_template=template)
    demonstration = render_demonstration(after(*EARLIER), PLAIN, plain)
    assert plain.decode(demonstration.response_ids) == "42 again.\n\nSo 42.<|endoftext|>"
    with pytest.raises(ModelError, match="differently when the conversation goes on"):
        render_demonstration(after(*EARLIER), PLAIN, plain, every_response=True)


def test_the_limit_on_responses_holds_for_the_last_one() -> None:
    problem, words = after(EARLIER[0], said("It is 42. " * 30)), tokenizer("Phi-4")
    demonstration = render_demonstration(problem, PLAIN, words, max_response_tokens=30, every_response=True)
    assert len(demonstration.response_ids) > 60
    with pytest.raises(ModelError, match=r"has \d+ tokens, but the limit is 5"):
        render_demonstration(problem, PLAIN, words, max_response_tokens=5, every_response=True)
