from __future__ import annotations

import pytest

from ansatz.cli.opened_model import template_of
from ansatz.config.chat import ChatTemplate
from ansatz.errors import ModelError
from ansatz.prompts.render import render
from ansatz.prompts.templates import STEP_BY_STEP
from ansatz.types import Problem
from tools.families import tokenizer

PROBLEM = Problem(id="p", question="t5 t6", answer="5", source="test", split="train")
TURNS = "{% for m in messages %}"
TEMPLATES = {
    "Qwen2.5": "{% if messages[0].role != 'system' %}<|im_start|>system\nHelp.<|im_end|>\n{% endif %}"
    + TURNS
    + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n",
    "Qwen3": TURNS
    + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}",
    "Llama 3": "<|begin|>" + TURNS + "<|h|>{{ m.role }}<|/h|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}",
    "Phi-4": TURNS + "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant",
    "DeepSeek-R1-distill": TURNS
    + "{% if m.role == 'user' %}<|User|>{% endif %}{{ m.content }}{% endfor %}<|Assistant|><think>\n",
    "Mistral": TURNS
    + "{% if m.role == 'system' %}[SYS] {{ m.content }}[/SYS]{% else %}[INST] {{ m.content }}[/INST]{% endif %}"
    + "{% endfor %}",
}
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>user\n{{ messages[0].content }}<end_of_turn>\n"
)
DROPS = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"


def with_template(text: str):
    words = tokenizer()
    words.chat_template = text
    return words


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("system", [None, "t7 t8"])
@pytest.mark.parametrize("arguments", [{}, {"enable_thinking": False}])
def test_a_chat_prompt_has_the_token_ids_of_the_tokenizers_own_template(name, system, arguments) -> None:
    words = with_template(TEMPLATES[name])
    chat = ChatTemplate(name="chat", system=system, arguments=arguments)
    prompt = render(PROBLEM, chat, words)
    turns = [] if system is None else [{"role": "system", "content": system}]
    turns.append({"role": "user", "content": f"t5 t6\n{STEP_BY_STEP}"})
    expected = words.apply_chat_template(turns, add_generation_prompt=True, return_dict=False, **arguments)
    assert list(prompt.token_ids) == expected
    assert (system is None) == ("t7 t8" not in prompt.text)
    assert (name == "Qwen3" and arguments != {}) == ("</think>" in prompt.text)


def test_the_plain_name_has_no_system_prompt_and_no_arguments() -> None:
    words = with_template(TEMPLATES["Qwen3"])
    assert render(PROBLEM, "chat", words) == render(PROBLEM, ChatTemplate(name="chat"), words)


@pytest.mark.parametrize(("text", "message"), [(GEMMA, "System role not supported"), (DROPS, "drops the system")])
def test_a_template_without_a_system_role_is_refused_and_never_drops_it(text: str, message: str) -> None:
    words = with_template(text)
    with pytest.raises(ModelError, match=message):
        render(PROBLEM, ChatTemplate(name="chat", system="t7 t8"), words)
    assert "t5 t6" in render(PROBLEM, ChatTemplate(name="chat"), words).text


@pytest.mark.parametrize("system", ["You solve: problems.", 'Line 1\n"Line" {2}, #3', None])
def test_the_text_of_a_chat_template_is_what_a_command_takes(system):
    chat = ChatTemplate(name="chat", system=system, arguments={"deep": True, "odd": {"a": [None, 1.5, "b: c"]}})
    assert "\n" not in str(chat)
    assert template_of(str(chat)) == chat
    assert str(ChatTemplate(name="chat")) == "{name: chat}"
