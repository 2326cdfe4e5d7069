"""The options of sampling: the one definition for recipes (`rollout`, `evaluate`, `rejection`) and for commands.

The name and the meaning of an option are the same everywhere. On the command line `top_k` is written `--top-k`; the
descriptions below are also the help texts there.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from ansatz.config.fields import Count, Fraction, Positive, PositiveFraction, Section, Temperature
from ansatz.files import has_half_character

THOUGHT_START, THOUGHT_END = "<think>", "</think>"


class SamplingOptions(Section):
    """The filters apply in this order: temperature, top_k, top_p, min_p."""

    samples_per_prompt: Annotated[Positive, Field(le=65_536)] = 8
    """Number of responses to each prompt, at most 65,536."""
    max_response_tokens: Count = 0
    """Longest response in tokens, end token included. 0: the room that the longest prompt leaves in the model's
    context, at most 2048."""
    min_response_tokens: Count = 0
    """End-of-sequence tokens are masked out for the first N tokens. Stop strings still end a response."""
    temperature: Temperature = 1.0
    """Divides the logits. 0: always the most likely token, which makes sense only with one response per prompt."""
    top_k: Count = 0
    """Sample from the N most likely tokens; 0: off."""
    top_p: PositiveFraction = 1.0
    """Sample from the smallest set of most likely tokens with at least this probability in all; 1: off."""
    min_p: Fraction = 0.0
    """Keep tokens whose probability is at least this fraction of the most likely token's; 0: off."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A response ends as soon as its text contains one of these strings."""
    thinking_budget: Count = 0
    """After N tokens without </think>, `closing` is forced in and the answer begins; 0: off."""
    closing: str = THOUGHT_END
    """Text that ends a thought when its budget is used up. It must contain </think>."""

    @model_validator(mode="after")
    def temperature_fits(self) -> SamplingOptions:
        if self.temperature == 0 and self.samples_per_prompt > 1:
            raise ValueError(
                f"temperature = 0 with samples_per_prompt = {self.samples_per_prompt}: every response would be the "
                "same; use samples_per_prompt = 1 or a temperature above 0"
            )
        return self

    @model_validator(mode="after")
    def texts_are_whole(self) -> SamplingOptions:
        for name, texts in (("closing", (self.closing,)), ("stop", self.stop)):
            for text in texts:
                if has_half_character(text):
                    raise ValueError(f"{name} = {text!a} is not valid UTF-8; write it in UTF-8")
        return self

    @model_validator(mode="after")
    def a_response_can_end(self) -> SamplingOptions:
        limit = self.max_response_tokens
        if limit and self.min_response_tokens >= limit:
            raise ValueError(
                f"min_response_tokens = {self.min_response_tokens}: no response could end within "
                f"max_response_tokens = {limit}; make it smaller"
            )
        if limit and self.thinking_budget >= limit:
            raise ValueError(
                f"thinking_budget = {self.thinking_budget}: it leaves no room for an answer within "
                f"max_response_tokens = {limit}; make it smaller"
            )
        return self

    @model_validator(mode="after")
    def the_closing_closes_a_thought(self) -> SamplingOptions:
        if THOUGHT_END not in self.closing:
            raise ValueError(f"closing = {self.closing!r} does not end a thought; it must contain {THOUGHT_END}")
        return self


class AsRollout(SamplingOptions):
    """Sampling options. If a recipe leaves out those in `AS_ROLLOUT`, they are as in `rollout`.

    A resolved recipe says everything, so they are filled in there.
    """

    AS_ROLLOUT: ClassVar[tuple[str, ...]] = ()

    max_response_tokens: Annotated[Positive, Field(validate_default=False)] = 0  # until it is completed
    """Longest response in tokens, end token included."""

    def completed(self, rollout: SamplingOptions) -> Self:
        """Return the section with the options of `rollout` that it does not give itself."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{name: getattr(rollout, name) for name in self.AS_ROLLOUT} | given)
