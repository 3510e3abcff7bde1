from tests.tiny.checkpoints import write_checkpoint
from tunesmith.training.plan import render_plan
from tunesmith.training.resume import resolve_resume_point


def lines_of(parts, point=None):
    """Lines of the plan's first section by name; several of a name are joined."""
    section = render_plan(parts, point).split("\nWeights\n")[0].splitlines()[1:]
    found = {}
    for line in section:
        name, _, text = line.strip().partition(":")
        found[name] = f"{found[name]} {text.strip()}" if name in found else text.strip()
    return found


def test_number_formats_are_told_apart(make_parts):
    lines = lines_of(make_parts(bf16=True))
    assert lines["numbers"].startswith("frozen bf16, trained fp32, computed in bf16")
    assert lines_of(make_parts(bf16=False, finetuning_type="full", lora_rank=None))["numbers"].startswith(
        "trained fp32 ("
    )


def test_packing_and_padding_are_said(make_parts):
    assert lines_of(make_parts(packing=True))["batches"] == "rows end to end, no padding, several samples in each row"
    assert lines_of(make_parts(padding_free=False))["batches"] == "rows side by side, padded"


def test_a_resumed_run_says_where_it_goes_on(make_parts, tmp_path):
    point = resolve_resume_point(str(write_checkpoint(tmp_path, 4)), tmp_path)
    assert (
        lines_of(make_parts(), point)["steps"]
        == "6, each of 4 rows (4 x 1 accumulated), 1.00 epochs; going on after step 4"
    )


def test_a_run_that_only_measures_has_no_steps(make_parts):
    assert "steps" not in lines_of(make_parts(do_train=False, do_eval=True, val_size=4))


def test_settings_without_effect_are_noted(make_parts):
    assert "`max_steps: 3` decides the length" in lines_of(make_parts(max_steps=3))["note"]


def test_the_plan_says_how_batches_are_made(make_parts):
    assert "loading:   as many workers as keep up" in render_plan(make_parts(), None)
    text = render_plan(make_parts(dataloader_num_workers=2), None)
    assert "loading:   2 workers, 2 batches ahead each; about " in text
    assert "`dataloader_pin_memory: true` has no effect without a GPU" not in text
    text = render_plan(make_parts(dataloader_pin_memory=True), None)
    assert "`dataloader_pin_memory: true` has no effect without a GPU" in text
    assert "loading:   batches are made in the training process" in render_plan(
        make_parts(dataloader_num_workers=0), None
    )


def test_the_plan_says_what_a_budget_of_tokens_comes_to(make_parts):
    text = render_plan(make_parts(tokens_per_device_batch=60), None)
    assert "each of about" in text
    assert "60 tokens x 1 accumulated" in text
    assert "rows are longer than `tokens_per_device_batch`" in text
