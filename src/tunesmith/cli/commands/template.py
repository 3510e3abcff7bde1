"""`tunesmith template`: list the chat templates, show one, and check one against a tokenizer's own."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.cli.actions import run_action
from tunesmith.cli.flags import check_no_words, take_switches, take_value
from tunesmith.config.suggestions import render_suggestion
from tunesmith.errors import ConfigError, TemplateError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tunesmith.data.chat import ChatTemplate

HELP = """
usage: tunesmith template list                                  every name that `template` accepts
       tunesmith template show NAME [--marks]                   the Jinja text of one of ours
       tunesmith template show MODEL                            the Jinja text that a tokenizer carries
       tunesmith template check MODEL [--template NAME]         what a template does with that tokenizer

`check` renders conversations (with and without a system message, several turns, tools, reasoning, empty texts,
special-token text in a question) with the tokenizer's own template and with one of ours, compares text and token ids,
and shows the first difference of each. Without --template it looks for one of ours that prints ordinary conversations
the same. MODEL is a folder, a GGUF file or a hub id, of which only the tokenizer is loaded, or a folder with a
tokenizer alone. With --marks the text has the marks around what is learnt.

  tunesmith template check models/qwen3-0.6b
  tunesmith template check models/my-base-model --template llama3

Exit code 3: the two differ on an ordinary conversation.
"""


def run(arguments: Sequence[str]) -> int:
    """Run one of the actions and return the exit code."""
    return run_action(arguments, _ACTIONS, HELP)


def _list(words: list[str]) -> int:
    check_no_words("template list", words)
    from tunesmith.data.chat.catalog import ENTRIES

    rows = [("NAME", "ENDS ANSWERS WITH", "TOOLS", "REASONING", "SYSTEM MESSAGE")]
    for entry in ENTRIES:
        wire = entry.wire
        system = "in the first question" if wire.system_in_question else "before the first question"
        rows.append(
            (
                ", ".join((entry.name, *entry.aliases)),
                (wire.marker or "the end token").strip(),
                wire.tools,
                wire.thought.opening.strip() if wire.thought else "-",
                system + (", with a default" if wire.default_system else ""),
            )
        )
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
        output.show_text("  ".join((*cells, row[4])))
    return 0


def _show(words: list[str]) -> int:
    switches, places = take_switches(words, ["--marks"])
    (name,) = _expect(places, 1, "show NAME")
    from tunesmith.data.chat.catalog import find_entry, template_names

    entry = find_entry(name)
    hint = render_suggestion(name, template_names())
    if entry is None and hint and "/" not in name and not Path(name).exists():
        raise TemplateError(f"{name!r} is no template of ours and no folder.{hint}")
    if entry is not None:
        output.show_text(entry.marked_source if switches else entry.source)
        return 0
    if switches:
        raise ConfigError(
            f"--marks shows the marks of a template of ours, and {name!r} is none. Leave --marks out, or name one that "
            "`tunesmith template list` shows."
        )
    source = _load_tokenizer(name).chat_template
    if not source:
        raise TemplateError(
            f"the tokenizer of {name} has no chat template of its own, so there is none to show. To use one of ours "
            "with it, set `template` to a name that `tunesmith template list` shows."
        )
    if isinstance(source, str):
        output.show_text(source)
        return 0
    for title, text in source.items():
        output.show_text(f"=== {title} ===\n{text}")
    return 0


def _check(words: list[str]) -> int:
    name, places = take_value(words, "--template")
    (model,) = _expect(places, 1, "check MODEL [--template NAME]")
    tokenizer = _load_tokenizer(model)
    from tunesmith.data.chat import TemplateChoice, resolve_ours, resolve_template
    from tunesmith.data.chat.resolve import resolve_unaided

    ours = resolve_ours(name, tokenizer) if name else None
    if not tokenizer.chat_template:
        output.show_text("The tokenizer has no chat template of its own.")
        if ours is None:
            raise TemplateError("there is nothing to check; name a template: --template NAME")
        _describe(ours)
        return 0
    _describe(resolve_template(TemplateChoice("auto"), tokenizer))
    own = resolve_unaided(tokenizer)
    return _compare(tokenizer, own, ours or _find_same(own, tokenizer))


def _describe(template: "ChatTemplate") -> None:
    ways = {"marks": "by marks, in one rendering", "prefixes": "by rendering the conversation up to each answer"}
    marker = repr(template.ending.marker)
    printed = [
        part
        for part, is_printed in (
            ("schemas", template.tools.schemas),
            ("calls", template.tools.calls),
            ("results", template.tools.results),
        )
        if is_printed
    ]
    lines = {
        "Template": template.name,
        "Answers end with": marker if template.ending.is_printed else f"{marker}, which the template does not print",
        "Answers are found": ways[template.method],
        "Generation stops at": ", ".join(template.end_markers),
        "Tools": f"{', '.join(printed) or 'not printed'} (format {template.tool_format or 'of its own'})",
        "enable_thinking": "known" if template.thinking.is_switchable else "without effect",
    }
    for title, value in lines.items():
        output.show_text(f"{title}: {value}")


def _find_same(own: "ChatTemplate", tokenizer: "PreTrainedTokenizerBase") -> "ChatTemplate | None":
    """Return a template of ours that prints ordinary conversations as the tokenizer's own does, or nothing."""
    from tunesmith.data.chat.resolve import find_agreeing

    names = find_agreeing(own, tokenizer)
    if not names:
        output.show_text("None of ours prints ordinary conversations the same.")
        return None
    from tunesmith.data.chat import resolve_ours

    output.show_text(f"Ordinary conversations are the same as with: {', '.join(names)}.")
    return resolve_ours(names[0], tokenizer)


def _compare(tokenizer: "PreTrainedTokenizerBase", own: "ChatTemplate", ours: "ChatTemplate | None") -> int:
    from tunesmith.data.chat.samples import ALL_SAMPLES, PLAIN_SAMPLES
    from tunesmith.data.tokenization.agreement import compare_templates, learnt_texts

    if ours is None:
        for name, conversation in ALL_SAMPLES.items():
            output.show_text(f"{name}: learnt is {learnt_texts(tokenizer, own, conversation)}")
        return 0
    output.show_text(f"Compared with {ours.name}:")
    differs = False
    for name, difference, same_ids in compare_templates(tokenizer, own, ours, ALL_SAMPLES):
        if difference is None:
            output.show_text(f"  {name}: {'same' if same_ids else 'same text, and other ids are learnt'}")
        else:
            output.show_text(f"  {name}: differs after {difference.place} characters of row {difference.row + 1}")
            output.show_text(f"    the tokenizer's: {difference.left[:100]!r}")
            output.show_text(f"    {ours.name}: {difference.right[:100]!r}")
        differs |= name in PLAIN_SAMPLES and (difference is not None or not same_ids)
    return TemplateError.exit_code if differs else 0


def _expect(places: list[str], count: int, form: str) -> list[str]:
    unknown = next((word for word in places if word.startswith("--")), None)
    if len(places) != count or unknown is not None:
        raise ConfigError(f"`tunesmith template {form}` is the form; there is '{' '.join(places)}'.")
    return places


def _load_tokenizer(model: str) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a model, or of a folder that holds a tokenizer alone."""
    folder = Path(model)
    if (folder / "tokenizer_config.json").is_file() and not any(
        (folder / name).is_file() for name in ("config.json", "adapter_config.json")
    ):
        from transformers import AutoTokenizer

        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model)
        return tokenizer
    from tunesmith.config import load_config

    config = load_config({}, {"model_name_or_path": model}, purpose="read")
    from tunesmith.models import load_tokenizer

    return load_tokenizer(config.model)


_ACTIONS: Mapping[str, Callable[[list[str]], int]] = {"list": _list, "show": _show, "check": _check}
