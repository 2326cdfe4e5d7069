"""Chat templates with the structure of well-known families, and tiny tokenizers with their special tokens.

The templates are written for these tests. GENERATION marks what the assistant says; `tokenizer(NAME, marked=True)`
turns it into the tags from which transformers computes its mask of the assistant's tokens.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SAID, END_SAID = "[[", "]]"
TURNS = "{%- for m in messages %}"


@dataclass(frozen=True)
class ChatFamily:
    """template: see the head of the file. turn_end: the token that ends a response. begin: of every text, as the
    tokenizer itself adds it. eos: the tokenizer's end token. others: further special tokens. spaces: a tokenizer that
    puts a space before every text, as Mistral's does."""

    template: str
    turn_end: str
    begin: str = ""
    eos: str = ""
    others: tuple[str, ...] = ()
    spaces: bool = False


_QWEN_TOOLS = (
    "{%- if tools %}<|im_start|>system\n"
    "{%- if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{%- endif %}"
    "Functions:{%- for tool in tools %}\n{{ tool | tojson }}{%- endfor %}<|im_end|>\n"
    "{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
)
_QWEN_OTHERS = (
    "{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{%- elif m.role == 'tool' %}"
    "{{ '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}"
)
FAMILIES: dict[str, ChatFamily] = {
    # A default system prompt; tools in the system turn.
    "Qwen2.5": ChatFamily(
        _QWEN_TOOLS
        + "{%- else %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{%- endif %}"
        + TURNS
        + _QWEN_OTHERS
        + "{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}[[{{ m.content + '<|im_end|>' }}]]{{ '\n' }}"
        + "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}",
        turn_end="<|im_end|>",
        eos="<|endoftext|>",  # as the base models have it
        others=("<|im_start|>",),
    ),
    # Thoughts of responses before the last question are dropped; enable_thinking: false closes an empty thought.
    "Qwen3": ChatFamily(
        _QWEN_TOOLS
        + "{%- endif %}{%- set ns = namespace(last=0) %}"
        + TURNS
        + "{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
        + TURNS
        + _QWEN_OTHERS
        + "{%- elif m.role == 'assistant' %}{%- set parts = m.content.split('</think>') %}"
        + "{%- set thought = parts[0].split('<think>')[-1].strip('\n') if parts | length > 1 else '' %}"
        + "{{ '<|im_start|>assistant\n' }}[[{%- if loop.index0 > ns.last %}"
        + "{{ '<think>\n' + thought + '\n</think>\n\n' }}{%- endif %}{{ parts[-1].lstrip('\n') + '<|im_end|>' }}]]"
        + "{{ '\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
        + "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}"
        + "{%- endif %}{%- endif %}",
        turn_end="<|im_end|>",
        eos="<|im_end|>",
        others=("<|im_start|>", "<|endoftext|>"),
    ),
    # A begin token in the template and from the tokenizer; contents are trimmed; tools in the first user turn.
    "Llama 3": ChatFamily(
        "{{ bos_token }}"
        + "{%- set first = namespace(tools=tools) %}"
        + TURNS
        + "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
        + "{%- if first.tools and m.role == 'user' %}{%- for tool in first.tools %}{{ tool | tojson + '\n' }}"
        + "{%- endfor %}{%- set first.tools = none %}{%- endif %}"
        + "{%- if m.role == 'assistant' %}[[{{ m.content | trim + '<|eot_id|>' }}]]"
        + "{%- else %}{{ m.content | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"
        + "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}",
        turn_end="<|eot_id|>",
        begin="<|begin_of_text|>",
        eos="<|end_of_text|>",
        others=("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"),
    ),
    # Roles must alternate; the system prompt goes into the first user turn; the tokenizer's end token is another one.
    "Gemma 3": ChatFamily(
        "{{ bos_token }}{%- set start = namespace(text='', of=messages) %}"
        + "{%- if messages[0].role == 'system' %}{%- set start.text = messages[0].content + '\n\n' %}"
        + "{%- set start.of = messages[1:] %}{%- endif %}"
        + "{%- for m in start.of %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        + "{{ raise_exception('Roles must alternate') }}{%- endif %}"
        + "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
        + "{%- if loop.first %}{{ start.text }}{%- endif %}"
        + "{%- if m.role == 'assistant' %}[[{{ m.content | trim + '<end_of_turn>' }}]]{{ '\n' }}"
        + "{%- else %}{{ m.content | trim + '<end_of_turn>\n' }}{%- endif %}{%- endfor %}"
        + "{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{%- endif %}",
        turn_end="<end_of_turn>",
        begin="<bos>",
        eos="<eos>",
        others=("<start_of_turn>",),
    ),
    "Phi-4": ChatFamily(
        TURNS
        + "{{ '<|im_start|>' + m.role + '<|im_sep|>' }}"
        + "{%- if m.role == 'assistant' %}[[{{ m.content + '<|im_end|>' }}]]"
        + "{%- else %}{{ m.content + '<|im_end|>' }}{%- endif %}{%- endfor %}"
        + "{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{%- endif %}",
        turn_end="<|im_end|>",
        eos="<|endoftext|>",
        others=("<|im_start|>", "<|im_sep|>"),
    ),
    # The prompt opens the thought, and no rendered response has one; the system prompt comes before all turns.
    "DeepSeek-R1-distill": ChatFamily(
        "{{ bos_token }}"
        + TURNS
        + "{%- if m.role == 'system' %}{{ m.content }}{%- endif %}{%- endfor %}"
        + TURNS
        + "{%- if m.role == 'user' %}{{ '<|User|>' + m.content }}{%- elif m.role == 'assistant' %}"
        + "{{ '<|Assistant|>' }}[[{{ m.content.split('</think>')[-1] + eos_token }}]]{%- endif %}{%- endfor %}"
        + "{%- if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{%- endif %}",
        turn_end="<|end_of_sentence|>",
        begin="<|begin_of_sentence|>",
        eos="<|end_of_sentence|>",
        others=("<|User|>", "<|Assistant|>"),
    ),
    # No beginning of a response; the system prompt is in the last user turn if the conversation ends with it.
    "Mistral": ChatFamily(
        "{{ bos_token }}{%- set start = namespace(text='', of=messages) %}"
        + "{%- if messages[0].role == 'system' %}{%- set start.text = messages[0].content + '\n\n' %}"
        + "{%- set start.of = messages[1:] %}{%- endif %}"
        + "{%- for m in start.of %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        + "{{ raise_exception('Roles must alternate') }}{%- endif %}"
        + "{%- if m.role == 'user' %}"
        + "{%- if tools and loop.last %}{{ '[TOOLS] ' + tools | tojson + '[/TOOLS]' }}{%- endif %}"
        + "{{ '[INST] ' + (start.text if loop.last else '') + m.content + '[/INST]' }}"
        + "{%- else %}[[{{ ' ' + m.content | trim + eos_token }}]]{%- endif %}{%- endfor %}",
        turn_end="</s>",
        begin="<s>",
        eos="</s>",
        others=("[INST]", "[/INST]", "[TOOLS]", "[/TOOLS]"),
        spaces=True,
    ),
}
TOOL_FAMILIES: dict[str, ChatFamily] = {
    # Calls and answers in tags; the answers of several calls share one user turn.
    "Qwen2.5 with tools": ChatFamily(
        _QWEN_TOOLS
        + "{%- endif %}"
        + TURNS
        + "{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}"
        + "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
        + "{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant' }}{%- if m.content %}{{ '\n' + m.content }}"
        + '{%- endif %}{%- for c in m.tool_calls %}{{ \'\n<tool_call>\n{"name": "\' + c.function.name }}'
        + "{{ '\", \"arguments\": ' + (c.function.arguments | tojson) + '}\n</tool_call>' }}{%- endfor %}"
        + "{{ '<|im_end|>\n' }}"
        + "{%- elif m.role == 'tool' %}"
        + "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{%- endif %}"
        + "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
        + "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{%- endif %}"
        + "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}",
        turn_end="<|im_end|>",
        eos="<|endoftext|>",
        others=("<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    ),
    # One call at a time; the answer is JSON in a turn of its own role.
    "Llama 3.1 with tools": ChatFamily(
        "{{ bos_token }}"
        + "{%- if tools %}{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}{%- for tool in tools %}"
        + "{{ tool | tojson + '\n' }}{%- endfor %}{{ '<|eot_id|>' }}{%- endif %}"
        + TURNS
        + "{%- if m.tool_calls %}"
        + "{%- if m.tool_calls | length != 1 %}{{ raise_exception('Only single calls') }}{%- endif %}"
        + "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
        + "{{ '{\"name\": \"' + m.tool_calls[0].function.name + '\", ' }}"
        + "{{ '\"parameters\": ' + (m.tool_calls[0].function.arguments | tojson) + '}<|eot_id|>' }}"
        + "{%- elif m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
        + "{{ (m.content | tojson) + '<|eot_id|>' }}"
        + "{%- else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
        + "{%- endif %}{%- endfor %}"
        + "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}",
        turn_end="<|eot_id|>",
        begin="<|begin_of_text|>",
        eos="<|eot_id|>",
        others=("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>"),
    ),
    # Ids of nine characters; no beginning of a response.
    "Mistral with tools": ChatFamily(
        "{{ bos_token }}"
        + "{%- if tools %}{{ '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}"
        + TURNS
        + "{%- if m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}"
        + "{%- elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}{%- for c in m.tool_calls %}"
        + "{%- if c.id is not defined or c.id | length != 9 %}{{ raise_exception('Ids need nine characters') }}"
        + "{%- endif %}{{ (c.function | tojson)[:-1] + ', \"id\": \"' + c.id + '\"}' }}"
        + "{%- if not loop.last %}{{ ', ' }}{%- endif %}"
        + "{%- endfor %}{{ ']' + eos_token }}"
        + "{%- elif m.role == 'tool' %}"
        + '{{ \'[TOOL_RESULTS] {"content": \' + m.content + \', "call_id": "\' + m.tool_call_id }}'
        + "{{ '\"}[/TOOL_RESULTS]' }}"
        + "{%- elif m.role == 'assistant' %}{{ ' ' + m.content | trim + eos_token }}{%- endif %}{%- endfor %}",
        turn_end="</s>",
        begin="<s>",
        eos="</s>",
        others=(
            "[INST]",
            "[/INST]",
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_CALLS]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
        ),
        spaces=True,
    ),
    # Calls as a list; the answer of a tool is a turn like any other.
    "Phi-4 with tools": ChatFamily(
        "{%- if tools %}{{ '<|system|><|tool|>' + (tools | tojson) + '<|/tool|><|end|>' }}{%- endif %}"
        + TURNS
        + "{%- if m.tool_calls %}{{ '<|assistant|><|tool_call|>[' }}{%- for c in m.tool_calls %}"
        + "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
        + "{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ']<|/tool_call|><|end|>' }}"
        + "{%- elif m.role == 'tool' %}{{ '<|tool_response|>' + m.content + '<|end|>' }}"
        + "{%- else %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}"
        + "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{%- endif %}",
        turn_end="<|end|>",
        eos="<|endoftext|>",
        others=(
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|tool|>",
            "<|/tool|>",
            "<|tool_call|>",
            "<|/tool_call|>",
            "<|tool_response|>",
        ),
    ),
    # Arguments as text, without a beginning of the response after the answer of a tool.
    "DeepSeek with tools": ChatFamily(
        "{{ bos_token }}{%- if tools %}{{ (tools | tojson) + '\n\n' }}{%- endif %}"
        + "{%- set after = namespace(tool=false) %}"
        + TURNS
        + "{%- if m.role == 'user' %}{%- set after.tool = false %}{{ '<|User|>' + m.content }}"
        + "{%- elif m.tool_calls %}{%- set start = '' if after.tool else '<|Assistant|>' %}"
        + "{%- set after.tool = false %}{{ start + '<｜tool▁calls▁begin｜>' }}{%- for c in m.tool_calls %}"
        + "{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + c.function.name + '\n```json\n' + c.function.arguments }}"
        + "{{ '\n```<｜tool▁call▁end｜>' }}{%- endfor %}{{ '<｜tool▁calls▁end｜>' + eos_token }}"
        + "{%- elif m.role == 'tool' %}{%- set after.tool = true %}"
        + "{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}"
        + "{%- elif m.role == 'assistant' %}{{ ('' if after.tool else '<|Assistant|>') + m.content + eos_token }}"
        + "{%- set after.tool = false %}{%- endif %}{%- endfor %}"
        + "{%- if add_generation_prompt and not after.tool %}{{ '<|Assistant|>' }}{%- endif %}",
        turn_end="<|end_of_sentence|>",
        begin="<|begin_of_sentence|>",
        eos="<|end_of_sentence|>",
        others=(
            "<|User|>",
            "<|Assistant|>",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁output▁begin｜>",
            "<｜tool▁output▁end｜>",
        ),
    ),
}
"""The same for calls of tools, with the structure of the families' own templates."""
_CORPUS = ["You help. What is 12 + 30? It is 42, because 12 and 30 make 42.\n\nAnd 7 times 6?\n42 again, so 42. "] * 4


@functools.cache
def tokenizer(name: str, *, marked: bool = False) -> Any:
    """The family's tokenizer with its template. marked: for the mask that transformers computes."""
    family = {**FAMILIES, **TOOL_FAMILIES}[name]
    specials = sorted({family.begin, family.eos, family.turn_end, *family.others} - {""})
    backend = Tokenizer(models.BPE(byte_fallback=family.spaces))
    if family.spaces:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        backend.decoder = decoders.Metaspace(prepend_scheme="always", split=False)
    else:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
    alphabet = [chr(code) for code in range(32, 127)] + ["\n", "\u2581"] if family.spaces else _bytes()
    backend.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=500, special_tokens=specials, initial_alphabet=alphabet)
    )
    if family.begin:
        begin = (family.begin, backend.token_to_id(family.begin))
        backend.post_processor = processors.TemplateProcessing(single=f"{family.begin} $A", special_tokens=[begin])
    template = family.template
    for mark, tag in ((SAID, "{% generation %}"), (END_SAID, "{% endgeneration %}")):
        template = template.replace(mark, tag if marked else "")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=family.begin or None,
        eos_token=family.eos,
        additional_special_tokens=[token for token in specials if token not in (family.begin, family.eos)],
        chat_template=template,
    )


def _bytes() -> list[str]:
    return pre_tokenizers.ByteLevel.alphabet()


def template_ids(of: Any, turns: list[dict[str, str]], *, for_response: bool = True, **settings: Any) -> list[int]:
    """What transformers makes of a conversation."""
    return of.apply_chat_template(turns, add_generation_prompt=for_response, return_dict=False, **settings)
