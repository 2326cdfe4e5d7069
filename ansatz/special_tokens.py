"""Special tokens in text that is not ours: questions, data, the output of tools, and answers for a reward model.

A tokenizer turns <|im_end|> into the token that ends a turn, whoever wrote it. A question or the output of a tool could
so end a response, or open a turn of another role. Here such text is hidden before it enters a template: every marker in
it, which is the text of a special token, becomes a stand-in of the same length. Chat templates show stand-ins like any
other text. `encode` then gives the markers that the template wrote as their tokens, and those behind stand-ins as plain
text. Text without a marker is encoded by the tokenizer as it is.

Where a server encodes the text, or a person may copy it, `broken` puts a space into every marker instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, cast
from weakref import WeakKeyDictionary

from ansatz.types import Prompt
from ansatz.visible import whole

_HIDDEN, _OURS = 0xF0000, 0x100000
"""The planes of private characters for stand-ins, and for markers that a template wrote."""
_ROLES = (("user", "Q1"), ("assistant", "A1"), ("user", "Q2"))
_RESPONSE = "ANSWER"
_TAG = r"/?(?:[sS]|0x[0-9A-Fa-f]{2}|[0-9]*+[^\W\d_][\w\u2581:.-]{1,80}+)>"
_BRACKET = r"/?[A-Za-z]?[A-Z][A-Z_0-9]{2,40}\]|(?:unused|control|reserved)_?[0-9]++\]|[|@][\w\u2581 :.-]{1,80}+[|@]\]"
_COMMON = re.compile(rf"<(?=[|\uff5c]|<?{_TAG})|\[(?=\w{{0,20}}[>~]\[|{_BRACKET})|\](?=[<~]\w{{0,20}}\])")
"""Where markers of the families begin: <|im_end|>, <｜User｜>, </s>, <start_of_turn>, <sop>, [INST], [gMASK], <<SYS>>,
[|assistant|], ]~b]. A tag of one letter, such as in a<b>c, is mathematics."""


def broken(text: str) -> str:
    """Put a space into every marker of a known form, for a server whose tokenizer is not known."""
    return _COMMON.sub(lambda match: f"{match[0]} ", whole(text))


def has_marker(text: str) -> bool:
    """Tell whether a marker of a known form is in the text."""
    return _COMMON.search(text) is not None


class SpecialTokens:
    """The special tokens of a tokenizer. Its own name for text with stand-ins is hidden text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids = {token.content: id_ for id_, token in _reserved(tokenizer).items()}
        self._all = _pattern(self._ids)
        self._hidden = _pattern(_moved(text, _HIDDEN) for text in self._ids)
        self._ours = _pattern(_moved(text, _OURS) for text in self._ids)

    def hide(self, text: str) -> str:
        """Hide text that is not ours."""
        return self._all.sub(_to_hidden, whole(text))

    def hide_response(self, text: str) -> str:
        """Hide the markers of turns in an assistant's text. Its thoughts and calls keep their tokens, but it cannot end
        a turn or open one."""
        return self._of_turns.sub(_to_hidden, whole(text)) if self._all.search(text) else whole(text)

    def hide_value(self, value: Any) -> Any:
        """Hide all texts in a value, also keys."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self.hide_value(key): self.hide_value(item) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.hide_value(item) for item in cast("list[Any]", value)]
        return value

    def hide_turn(self, turn: Mapping[str, Any]) -> dict[str, Any]:
        """Hide a message of somebody else. Its role stays."""
        hidden = {key: self.hide_value(value) for key, value in turn.items()}
        if turn["role"] == "assistant" and isinstance(turn.get("content"), str):
            hidden["content"] = self.hide_response(turn["content"])
        return {**hidden, "role": turn["role"]}

    def hide_prompt(self, prompt: Prompt) -> str:
        """Hide the problem's question and turns in the text of a prompt that was rendered for another model."""
        text, problem = prompt.text, prompt.problem
        for part in (problem.question, *(str(turn["content"]).strip() for turn in problem.earlier_turns)):
            if self._all.search(part):
                text = text.replace(part, self.hide(part))
        return text

    def show(self, hidden: str) -> str:
        """Return hidden text as it reads."""
        return self._hidden.sub(_from_hidden, hidden)

    def encode(self, hidden: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the tokens of hidden text."""
        return self._encoded(hidden, add_special_tokens=add_special_tokens)[0]

    def encode_with_ends(self, hidden: str) -> tuple[list[int], list[int]]:
        """Return the tokens of hidden text with the special tokens at its ends, and where each ends, in characters."""
        return self._encoded(hidden, add_special_tokens=True, ends=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens. Only special tokens are markers in it; plain text that looks like one is
        broken."""
        text = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        if len(self._all.findall(text)) <= sum(token in self._specials for token in token_ids):
            return text
        parts = ((is_ours, list(ids)) for is_ours, ids in groupby(token_ids, key=self._specials.__contains__))
        texts = ((is_ours, self._tokenizer.decode(ids, skip_special_tokens=False)) for is_ours, ids in parts)
        return "".join(part if is_ours else self._all.sub(_broken, part) for is_ours, part in texts)

    def read(self, token_ids: Sequence[int], end_ids: Iterable[int] = ()) -> str:
        """Return the text of a response as graders and people read it: with the markers of thoughts, channels and
        calls, without those that only end it.

        end_ids: tokens that end a response, besides the end token and the end of a turn.
        """
        ends = {*self._ends, *end_ids}
        return self._tokenizer.decode([id_ for id_ in token_ids if id_ not in ends], skip_special_tokens=False)

    def ids_of_sample(self, text: str, token_ids: Sequence[int]) -> list[int] | None:
        """Return the tokens, with an end token, if they decode to the text; None if they are another tokenizer's."""
        if not token_ids:
            return None
        ids = list(token_ids)
        if ids[-1] in self._specials and self.read(ids[:-1]) == text:
            return ids
        end = end_of_turn(self._tokenizer)
        end = self._tokenizer.eos_token_id if end is None else end
        return [*ids, int(end)] if self.read(ids) == text else None

    @cached_property
    def _ends(self) -> frozenset[int]:
        tokenizer = self._tokenizer
        ids = (tokenizer.eos_token_id, getattr(tokenizer, "pad_token_id", None), end_of_turn(tokenizer))
        return frozenset(int(id_) for id_ in ids if id_ is not None)

    def _encoded(self, hidden: str, *, add_special_tokens: bool, ends: bool = False) -> tuple[list[int], list[int]]:
        hidden = whole(hidden)
        if not self._hidden.search(hidden):
            return self._by_tokenizer(hidden, add_special_tokens, ends)
        if self._backend is not None:
            backend, ours = self._backend
            text = self._ours.sub(lambda match: "\ufffd" * len(match[0]), hidden)
            text = self._hidden.sub(_from_hidden, self._all.sub(_to_ours, text))
            encoding = backend.encode(text, add_special_tokens=add_special_tokens)
            inside = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
            if not any(not at_end and token in self._specials for token, at_end in inside):
                return [ours.get(token, token) for token in encoding.ids], [end for _, end in encoding.offsets]
        broken_text = self._hidden.sub(lambda match: _broken_marker(_from_hidden(match)), hidden)
        return self._by_tokenizer(broken_text, add_special_tokens, ends)

    def _by_tokenizer(self, text: str, add_special_tokens: bool, ends: bool) -> tuple[list[int], list[int]]:
        if not ends:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens), []
        encoded = self._tokenizer(text, return_offsets_mapping=True)
        return list(encoded["input_ids"]), [end for _, end in encoded["offset_mapping"]]

    @cached_property
    def _specials(self) -> frozenset[int]:
        return frozenset(self._ids.values())

    @cached_property
    def _backend(self) -> tuple[Any, Mapping[Any, int]] | None:
        """A copy of the tokenizer that reads markers as plain text and private texts as the tokens of markers, and a
        mapping of the ids of these tokens in the copy to the tokenizer's own. None for a tokenizer that cannot be
        copied."""
        backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        if not hasattr(backend, "encode_special_tokens"):
            return None
        content = json.loads(backend.to_str())
        for token in content["added_tokens"]:
            token["special"] = token["special"] or token["content"] in self._ids
        copy: Any = type(backend).from_str(json.dumps(content))
        copy.no_truncation()
        copy.no_padding()
        copy.encode_special_tokens = True
        flags = ("single_word", "lstrip", "rstrip", "normalized")
        added = [
            type(token)(_moved(token.content, _OURS), special=False, **{flag: getattr(token, flag) for flag in flags})
            for token in _reserved(self._tokenizer).values()
        ]
        copy.add_tokens(added)
        return copy, {copy.token_to_id(_moved(text, _OURS)): id_ for text, id_ in self._ids.items()}

    @cached_property
    def _of_turns(self) -> re.Pattern[str]:
        """The markers that begin and end texts and turns: the named ones, and the ones that the chat template writes
        into a conversation."""
        tokenizer = self._tokenizer
        names = ("bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        texts = {str(getattr(tokenizer, name, None)) for name in names}
        if (end := end_of_turn(tokenizer)) is not None:
            texts.add(tokenizer.added_tokens_decoder[end].content)
        if tokenizer.chat_template:
            turns = [{"role": role, "content": content} for role, content in _ROLES]
            try:
                text = tokenizer.apply_chat_template(turns, tokenize=False)
            except Exception:  # a template is a program, which can raise anything; rendering a prompt reports it
                text = ""
            texts.update(match[0] for match in self._all.finditer(text[text.find("Q1") :]))
        return _pattern(text for text in self._ids if text in texts)


_KNOWN = WeakKeyDictionary[Any, tuple[Any, SpecialTokens]]()


def special_tokens(tokenizer: Any) -> SpecialTokens:
    """The special tokens of a tokenizer, with its chat template as it is now."""
    state = (getattr(tokenizer, "chat_template", None), len(getattr(tokenizer, "added_tokens_decoder", ())))
    try:
        known = _KNOWN.get(tokenizer)
        if known is None or known[0] != state:
            known = _KNOWN[tokenizer] = state, SpecialTokens(tokenizer)
        return known[1]
    except TypeError:  # a tokenizer of another kind, which cannot be a key
        return SpecialTokens(tokenizer)


def end_of_turn(tokenizer: Any) -> int | None:
    """Return the id of the special token that the chat template writes after a response, such as <|im_end|>.

    It is often another one than the tokenizer's end token: a base model of Qwen2.5 has <|endoftext|>, and Gemma has
    <eos>. Without it, a response would continue with a user's turn that the policy makes up.

    None without a chat template, if the template refuses two plain turns, or if no special token follows a response.
    """
    if not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": _RESPONSE}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception:  # a template is a program, which can raise anything; rendering a prompt reports it
        return None
    after = text.rpartition(_RESPONSE)[2] if isinstance(text, str) else ""
    special = {token: added.content for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    ids = tokenizer.encode(after, add_special_tokens=False)
    # The text is compared too, because a tokenizer can have a special token for words that it does not know.
    return next((token for token in ids if special.get(token, "") in after and token in special), None)


def _reserved(tokenizer: Any) -> dict[int, Any]:
    """Return the tokens whose text is a marker: special ones, and those that are none by name and that the template
    writes."""
    template = str(getattr(tokenizer, "chat_template", None) or "")
    return {
        id_: token
        for id_, token in getattr(tokenizer, "added_tokens_decoder", {}).items()
        if len(token.content.strip()) > 1
        and all(ord(character) < 0xFFFE for character in token.content)
        and (token.special or (token.content in template and any(sign in token.content for sign in "<[|｜")))
    }


def _pattern(texts: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that finds the longest of the texts at the first place, as tokenizers do; nothing if there
    are none."""
    ordered = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, ordered)) or r"(?!)")


def _moved(text: str, by: int) -> str:
    return "".join(chr(ord(character) + by) for character in text)


def _mover(by: int) -> Callable[[re.Match[str]], str]:
    return lambda match: _moved(match[0], by)


_to_hidden, _from_hidden, _to_ours = _mover(_HIDDEN), _mover(-_HIDDEN), _mover(_OURS)


def _broken_marker(text: str) -> str:
    return f"{text[:1]} {text[1:]}"


def _broken(match: re.Match[str]) -> str:
    return _broken_marker(match[0])
