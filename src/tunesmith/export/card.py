"""The README of an exported model: what it is made of, and how it is used."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the card says."""

    base: str
    adapters: tuple[str, ...]
    combination: str
    dtype: str
    num_parameters: int
    template: str | None
    end_markers: Sequence[str]
    is_reward: bool
    compressed: str | None = None
    """Scheme of torchao that the weights are compressed in."""


def render_card(facts: CardFacts, name: str) -> str:
    """Return the card as Markdown with the header that hubs read."""
    task = "text-classification" if facts.is_reward else "text-generation"
    header: dict[str, object] = {"library_name": "transformers", "pipeline_tag": task}
    if _is_hub_id(facts.base):
        header["base_model"] = facts.base
    header["tags"] = ["tunesmith"]
    lines = ["---", yaml.safe_dump(header, sort_keys=False).strip(), "---", "", f"# {name}", "", *_facts(facts)]
    return "\n".join([*lines, "", "## Use", "", "```python", *_usage(facts, name), "```", ""])


def _facts(facts: CardFacts) -> list[str]:
    lines = [f"- Base model: {_shown(facts.base)}"]
    if facts.adapters:
        how = "merged in turn" if facts.combination == "in_turn" else f"combined by {facts.combination} and merged"
        how = "merged" if len(facts.adapters) == 1 else how
        lines.append(f"- Adapters, {how}: {', '.join(map(_shown, facts.adapters))}")
    how = f", compressed to {facts.compressed} (package torchao)" if facts.compressed else ""
    lines.append(f"- {facts.num_parameters:,} weights in {facts.dtype}{how}")
    if facts.template is not None:
        lines.append(f"- Chat template: {facts.template}, saved with the tokenizer")
    if facts.end_markers:
        lines.append(f"- Answers end at {', '.join(f'`{marker}`' for marker in facts.end_markers)}")
    return lines


def _usage(facts: CardFacts, name: str) -> list[str]:
    if facts.is_reward:
        return [
            "from transformers import AutoModelForSequenceClassification, AutoTokenizer",
            "",
            f'model = AutoModelForSequenceClassification.from_pretrained("{name}", dtype="auto")',
            f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
            'score = model(**tokenizer("...", return_tensors="pt")).logits',
        ]
    if facts.template is None:
        return [
            "from transformers import pipeline",
            "",
            f'generate = pipeline("text-generation", "{name}", dtype="auto")',
            'print(generate("Once upon a time")[0]["generated_text"])',
        ]
    return [
        "from transformers import pipeline",
        "",
        f'chat = pipeline("text-generation", "{name}", dtype="auto")',
        'messages = [{"role": "user", "content": "Hello!"}]',
        'print(chat(messages)[0]["generated_text"][-1]["content"])',
    ]


def _shown(name: str) -> str:
    """Name a folder by its last part: where it lies on this machine is nobody's business."""
    return name if _is_hub_id(name) else Path(name).name


def _is_hub_id(name: str) -> bool:
    return not Path(name).exists() and name.count("/") == 1 and not name.startswith((".", "/", "~"))
