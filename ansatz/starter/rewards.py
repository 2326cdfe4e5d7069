"""The project's own rewards. A recipe names them as rewards.py:FUNCTION."""


def brief(response: str, *, max_words: int = 12) -> float:
    """1 for a response of at most `max_words` words, else 0.

    The function can also ask for answer (the gold answer), question, and every other field of the problem by name.
    Parameters after * are settings of the recipe.
    """
    return float(len(response.split()) <= max_words)
