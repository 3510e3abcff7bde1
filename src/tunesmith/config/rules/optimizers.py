"""Rules about `optim_args`, the details of optimizers: transformers drops a name that it does not look for."""

from collections.abc import Iterator

from tunesmith.config.coercion import find_number
from tunesmith.config.optimizers import OPTIMIZER_INPUTS, Detail
from tunesmith.config.rules.registry import Finding, Question, rule

_ALLOWED = {
    "number": "a number",
    "whole": "a whole number",
    "switch": "true or false",
    "true": "true, or leave it out",
}


@rule()
def optimizer_knows_its_details(question: Question) -> Iterator[Finding]:
    """Each optimizer has details of its own, written as `name=value,name=value`."""
    training = question.config.training
    text = training.optim_args
    if not text:
        return
    pairs = [part.partition("=") for part in text.replace(" ", "").split(",")]
    if not all(name and equals and "=" not in value for name, equals, value in pairs):
        yield Finding(("optim_args",), f"`optim_args` is '{text}'; allowed is name=value,name=value.")
        return
    known = OPTIMIZER_INPUTS[training.optim].details
    unknown = [name for name, _, _ in pairs if name not in known]
    if unknown:
        allowed = f"it takes {', '.join(known)}" if known else "it takes none"
        hint = "; weight decay is `weight_decay`" if "weight_decay" in unknown else ""
        yield Finding(
            ("optim_args", "optim"),
            f"`optim_args` has {', '.join(unknown)}, which `{training.optim}` does not know; {allowed}{hint}.",
        )
    for name, _, value in pairs:
        if name in known and not _fits(value, known[name]):
            yield Finding(("optim_args",), f"`optim_args` has {name}={value}; allowed is {_ALLOWED[known[name]]}.")


def _fits(text: str, detail: Detail) -> bool:
    number = find_number(text)
    if detail == "number":
        return number is not None
    if detail == "whole":
        return isinstance(number, int)
    return text.lower() in (("true", "false") if detail == "switch" else ("true",))
