"""Rules about new tokens: said once, described where a description is asked for, and trained."""

from collections.abc import Iterator
from pathlib import Path

from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.config.rules.registry import Finding, Question, rule

_EMBEDDINGS = ("embed", "wte")
"""What names of embeddings have in common."""


@rule()
def new_tokens_are_said_once(question: Question) -> Iterator[Finding]:
    """A token is visible text or a control token, and has some text."""
    model = question.config.model
    both = [token for token in model.add_tokens if token in model.add_special_tokens]
    if both:
        yield Finding(
            ("add_tokens", "add_special_tokens"),
            f"`add_tokens` and `add_special_tokens` both have '{both[0]}'; keep it in one of them: answers show the "
            "first kind and leave out the second.",
        )
    for key, tokens in (("add_tokens", model.add_tokens), ("add_special_tokens", model.add_special_tokens)):
        if "" in tokens:
            yield Finding((key,), f"`{key}` has an empty text; a token has at least one character.")


@rule("train", "generate", "export")
def descriptions_are_there(question: Question) -> Iterator[Finding]:
    """A file that is named exists, and beginning from descriptions needs some."""
    model = question.config.model
    source = model.new_special_tokens_config
    if isinstance(source, str) and not Path(source).is_file():
        yield Finding(
            ("new_special_tokens_config",),
            f"`new_special_tokens_config` is {source}, and no file is there; give a YAML file, or write "
            "`token: description` in its place.",
        )
    if model.init_special_tokens.startswith("desc") and not source:
        yield Finding(
            ("init_special_tokens", "new_special_tokens_config"),
            f"{question.cite('init_special_tokens')} begins from descriptions; give them in "
            "`new_special_tokens_config`.",
        )


@rule()
def new_rows_are_trained(question: Question) -> Iterator[Finding]:
    """With frozen embeddings, new tokens would keep the meaning that chance gave them."""
    model, adapter = question.config.model, question.config.adapter
    adding = [key for key in ("add_tokens", "add_special_tokens", "new_special_tokens_config") if _is_given(model, key)]
    if not adding:
        return
    method = PEFT_METHODS.get(adapter.finetuning_type)
    if method is not None and method.place in ("none", "embeddings"):
        yield Finding(
            (adding[0], "finetuning_type"),
            f"{question.cite(adding[0])} adds tokens whose rows {question.cite('finetuning_type')} cannot train beside "
            "what it trains; set `finetuning_type: lora`.",
        )
    if question.config.training.use_badam:
        yield Finding(
            (adding[0], "use_badam"),
            f"{question.cite(adding[0])} adds tokens, and `use_badam: true` trains layers alone, not the rows of "
            "tokens; use `use_galore` or `use_apollo`.",
        )
    if adapter.finetuning_type != "freeze":
        return
    if not any(part in name for name in adapter.freeze_extra_modules for part in _EMBEDDINGS):
        yield Finding(
            (adding[0], "freeze_extra_modules", "finetuning_type"),
            f"{question.cite(adding[0])} adds tokens whose rows `finetuning_type: freeze` would not train; add the "
            "embedding and the head to `freeze_extra_modules`, such as embed_tokens,lm_head.",
        )


def _is_given(model: object, key: str) -> bool:
    return bool(vars(model)[key])
