"""Choice letters in prose: which one a sentence asserts, and which ones it denies."""

from __future__ import annotations

from ansatz.rewards.math_answer.phrases import phrases_of

_PHRASE = phrases_of("letters")

_SEARCHED = 4_000  # characters at the end of a text


def asserted_letter(text: str) -> str | None:
    """Return the one choice letter that a text asserts; None when it asserts none or several.

    "For sure D, it can't be A or B" asserts D: a denial covers the letters after it in its clause, or those before it
    where none follows. Letters in a clause that gives a reason do not count.
    """
    asserted: set[str] = set()
    denied: set[str] = set()
    for clause in _PHRASE["clause_end"].split(_PHRASE["letter_list"].sub(" and ", text[-_SEARCHED:])):
        if _PHRASE["reason"].match(clause):
            continue
        clause = _PHRASE["inner_reason"].split(clause)[0]
        letters = [
            letter
            for letter in _PHRASE["letter"].finditer(clause)
            if letter[0] != "A" or not _PHRASE["article"].match(clause, letter.end())
        ]
        denials = [denial.start() for denial in _PHRASE["denial"].finditer(clause)]
        for letter in letters:
            covered = denials and (letter.start() > denials[0] or letters[-1].start() < denials[-1])
            (denied if covered else asserted).add(letter[1])
    return asserted.pop() if len(asserted) == 1 and not asserted & denied else None


def last_letter(text: str) -> str | None:
    """Return the letter that the last sentence with a choice letter asserts.

    For evaluation only: it pays for guesses.
    """
    for sentence in reversed(_PHRASE["sentence_end"].split(text[-_SEARCHED:])):
        if _PHRASE["letter"].search(sentence):
            return asserted_letter(sentence)
    return None
