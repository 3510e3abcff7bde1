from pathlib import Path

import tunesmith
from tunesmith.config.llamafactory import known_keys, renamed_keys
from tunesmith.config.reference import render_default, render_known_keys, render_other_spellings, render_reference
from tunesmith.config.settings import all_settings


def test_the_page_in_docs_is_what_the_code_says():
    page = Path(tunesmith.__file__).parents[2] / "docs" / "options.md"
    assert page.read_text(encoding="utf-8") == render_reference(), "run: tunesmith config reference > docs/options.md"


def test_every_setting_has_its_entry():
    text = render_reference()
    assert all(text.count(f"### `{key}`\n") == 1 for key in all_settings())


def test_every_key_that_is_refused_for_now_is_listed():
    text = render_known_keys()
    assert all(text.count(f"`{key}`") == 1 for key in known_keys())
    assert "| PPO | `ppo_buffer_size`, " in text
    assert "`low_cpu_mem_usage` (true)" in text
    assert "`remove_unused_columns` (false)" in text


def test_every_other_spelling_is_listed():
    text = render_other_spellings()
    assert "| `val_set_size` | `val_size` |\n" in text
    assert text.count("\n| `") == len(renamed_keys())


def test_defaults_are_shown_as_one_writes_them():
    shown = {
        key: render_default(all_settings()[key])
        for key in ("seed", "adam_epsilon", "lora_target", "bf16", "plot_loss", "row_variables")
    }
    assert shown == {
        "seed": "`42`",
        "adam_epsilon": "`1e-08`",
        "lora_target": "`all`",
        "bf16": "not set",
        "plot_loss": "`false`",
        "row_variables": "not set",
    }
