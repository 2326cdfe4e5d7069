"""docs/models.md: the families of models, with what tools/family_runs.py measured of them.

python -m tools.model_reference
"""

from __future__ import annotations

from typing import Any

from ansatz.model_config import WRAPPERS
from ansatz.models.families import MISSING
from ansatz.models.known_models import ARCHITECTURES
from tools.families import FAMILIES, SUPPORTED, Family
from tools.family_runs import read_results
from tools.pages import DOCS, item, paragraph

PAGE = DOCS / "models.md"

INTRODUCTION = """\
# Models

This page is generated from `tools/families.py` and `tools/family_results.json` by `make docs`; do
not edit it.

`model.path` and `rejection.teacher` take a local folder in Hugging Face format, a GGUF file, or a
model of the hub with an optional branch, tag or commit. `rewards.learned.model` takes no GGUF file.

```yaml
model: {path: Qwen/Qwen2.5-1.5B-Instruct}
model: {path: Qwen/Qwen2.5-1.5B-Instruct@main}
model: {path: SmolLM2-135M-Instruct.Q4_1.gguf}    # a GGUF file; needs the extra gguf
```

What exists wins over a hub name. A file is read as GGUF, once, into a folder of the user's cache
(`~/.cache/ansatz/gguf`), which config.yaml names: the weights as they were rounded, in float32.

A model of the hub is downloaded to the hub's cache before a run writes anything, without files that
are not needed. The run's config.yaml and run.json name the commit, so a resumed run loads the same
weights. `HF_HUB_OFFLINE=1` uses the cache only. Code in a model's repository is never run.

## Families

Each family was tested with random weights at toy size, in float32:

- *log-probs*: the largest difference of a token's log-prob from transformers', in nats, of tokens
  that the sampler drew and of all tokens as training computes them.
- *check*: the rows of `ansatz check` that passed, and the largest measurement of a row as a share
  of its tolerance.
- *RL*: steps of three with a gradient (without one, all rewards were equal by chance), in which
  sampler and trainer agreed.
- *resume*: a run that stopped after step 2 and was resumed ended with the same bits.
- *reload*: the largest difference of a log-prob, in nats, between transformers and Ansatz on the
  last checkpoint.

`make test-slow` repeats this, `python -m tools.family_runs` records it, and the normal tests
compare the log-probs. Every other family is refused by name before its weights are read.
"""

REFUSED = "Refused, for example: {names}."


def page() -> str:
    """The page as Markdown."""
    record = read_results()
    lines = [
        INTRODUCTION,
        "| family | transformers' class | log-probs | check | RL | resume | reload |",
        "|---|---|---|---|---|---|---|",
        *(_row(family, record["families"].get(family.name)) for family in SUPPORTED),
        "",
        paragraph(f"Measured with transformers {record['transformers']}."),
        "",
        paragraph(REFUSED.format(names=", ".join(family.name for family in FAMILIES if family.refused))),
        "",
    ]
    lines += [f"- {family.name}: {family.note}." for family in SUPPORTED if family.note]
    wrappers = paragraph(
        f"Of models that also read images ({', '.join(f'`{kind}`' for kind in WRAPPERS)}) the text part is trained, if "
        "it belongs to one of these families: Gemma 3 from 4B on, Mistral Small 3.1, LLaVA or InternVL, for example. A "
        "run says once how many weights are left out, and checkpoints and exports are models of text only; adapters "
        "fit the original. Problems with images are refused. Log-probs and gradients are compared with the whole "
        "model's in `tests/models/test_text_parts.py`. vLLM and stored weights of 4 or 8 bits are refused for them."
    )
    reasons = [
        item(f"{', '.join(f'`{kind}`' for kind in kinds)}: {reason}.") for reason, kinds in _refused_for().items()
    ]
    shapes = paragraph(
        "Shapes within a family, such as tied embeddings, one key head, biases, partial rotary positions or another "
        "scaling of them, are compared with transformers in `tests/models/test_family_shapes.py`."
    )
    limits = paragraph(
        "Soft caps, attention sinks and sliding windows are computed as in transformers, while sampling and in "
        "training. Soft caps and sinks need the attention scores of a microbatch in memory; bound them with "
        "`train.tokens_per_microbatch`. Qwen2 mixtures of experts with a sliding window run with the window as their "
        "context. With latent attention (DeepSeek-V2 and V3) the cache holds the latents of every row, and keys and "
        "values are computed from them at every step. `ansatz explain` estimates the memory of these model types only: "
        f"{', '.join(f'`{kind}`' for kind in ARCHITECTURES)}."
    )
    stored = paragraph(
        "Weights in the hub's formats mxfp4 (gpt-oss) and fp8 are converted to float32 when they are loaded, and "
        "checkpoints hold ordinary weights. Folders in other formats of few bits, such as gptq, awq or bitsandbytes, "
        "are refused by name. `model.quantize: nf4` gives the linear layers of an ordinary model 4 bits "
        "([memory](memory.md#qlora))."
    )
    lines += ["", wrappers, "", "What is missing for some of the refused model types:", "", *reasons]
    return "\n".join([*lines, "", shapes, "", limits, "", stored, ""])


def _refused_for() -> dict[str, list[str]]:
    """Return the model types that lack the same thing, by what they lack."""
    kinds: dict[str, list[str]] = {}
    for kind, reason in MISSING.items():
        kinds.setdefault(reason, []).append(kind)
    return kinds


def _row(family: Family, results: dict[str, Any] | None) -> str:
    cells = [family.name, f"`{family.config}`"]
    if results is None:
        return "| " + " | ".join([*cells, *["not run"] * 5]) + " |"
    cells += [
        f"{results['logp_gap']:.1e}",
        f"{results['check_rows']}, {results['check_share']:.1%}",
        f"{results['rl_steps']}",
        "same" if results["same_bits"] else "other",
        f"{results['reload_gap']:.1e}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"docs/models.md: {len(SUPPORTED)} families")


if __name__ == "__main__":
    main()
