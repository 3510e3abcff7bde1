"""When the prompt of a pair is computed once, what the plan says, and that a run learns the same."""

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny.runs import tiny_run, write_place
from tunesmith.errors import ConfigError, ModelError
from tunesmith.models import attention
from tunesmith.training import prefix_sharing, reference, run
from tunesmith.training.assembly import assemble_trainer
from tunesmith.training.plan import render_plan
from tunesmith.training.run import prepare_parts, run_training


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("run"), num_rows=12)


def prepare(folder, **settings):
    return prepare_parts(tiny_run(folder, **{"stage": "dpo", "dataset": "pairs", **settings}))


@pytest.mark.parametrize("settings", [{}, {"prefix_sharing": True}, {"packing": True}, {"stage": "rm"}])
def test_pairs_share_their_prompt_where_they_can(folder, settings):
    parts = prepare(folder, **settings)
    assert parts.prefix_sharing.is_on
    assert "the prompt of a pair is computed once, which leaves out" in render_plan(parts, None)
    trainer = assemble_trainer(parts, None).trainer
    batch = trainer.prepare_rows([parts.data.train[0]])
    assert sum(map(sum, batch["branch_lengths"])) == batch["input_ids"].numel()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"prefix_sharing": False}, "prefix_sharing: false"),
        ({"padding_free": False}, "rows are padded"),
        ({"flash_attn": "sdpa"}, "rows are padded"),
        ({"flash_attn": "sdpa", "packing": True, "padding_free": False}, "rows are padded"),
    ],
)
def test_pairs_keep_their_own_prompts_elsewhere_and_the_plan_says_why(folder, settings, reason):
    parts = prepare(folder, **settings)
    assert not parts.prefix_sharing.is_on
    assert reason in parts.prefix_sharing.note
    assert parts.prefix_sharing.note in render_plan(parts, None)


@pytest.mark.parametrize("stage", ["dpo", "rm"])
def test_pairs_that_are_streamed_share_their_prompt_without_a_figure(folder, tmp_path, stage):
    settings = {"stage": stage, "dataset": "pairs", "streaming": True, "max_steps": 2}
    run_training(tiny_run(folder, output_dir=str(tmp_path), **settings))
    assert "the prompt of a pair is computed once\n" in (tmp_path / "plan.txt").read_text()


@pytest.mark.parametrize(("stage", "dataset"), [("sft", "toy"), ("kto", "ratings")])
def test_other_rows_have_nothing_to_share(folder, stage, dataset):
    assert not prepare(folder, stage=stage, dataset=dataset).prefix_sharing.is_on


def test_prompts_that_are_next_to_nothing_are_not_shared(folder, monkeypatch):
    monkeypatch.setattr(prefix_sharing, "_LEAST_SHARE", 0.9)
    assert "which saves nothing" in prepare(folder).prefix_sharing.note
    assert prepare(folder, prefix_sharing=True).prefix_sharing.is_on


def test_sharing_that_cannot_be_is_refused_when_it_was_asked_for(folder, monkeypatch):
    with pytest.raises(ConfigError, match="prefix_sharing is true, but rows are padded"):
        prepare(folder, prefix_sharing=True, padding_free=False)
    with pytest.raises(ConfigError, match="is for pairs"):
        prepare(folder, prefix_sharing=True, stage="sft", dataset="toy")
    monkeypatch.setattr(prefix_sharing, "find_shared_prefix_obstacle", lambda *_: "completions see each other")
    with pytest.raises(ModelError, match=r"prefix_sharing: completions see each other. Set prefix_sharing: false"):
        prepare(folder, prefix_sharing=True)
    assert "completions see each other" in prepare(folder).prefix_sharing.note


def test_a_reference_of_its_own_has_to_keep_completions_apart_too(folder, monkeypatch):
    settings = {"ref_model": str(folder / "model"), "precompute_reference": False}
    assert prepare(folder, **settings).prefix_sharing.is_on
    load = reference.load_model

    def load_with_dense_attention(*arguments, **options):
        loaded = load(*arguments, **options)
        loaded.model.set_attn_implementation("sdpa")
        return loaded

    monkeypatch.setattr(reference, "load_model", load_with_dense_attention)
    parts = prepare(folder, **settings)
    assert not parts.prefix_sharing.is_on
    assert "in the reference, with 'sdpa' completions of LlamaForCausalLM" in parts.prefix_sharing.note


def test_a_reference_that_mixes_the_samples_of_a_row_is_refused(folder, monkeypatch):
    monkeypatch.setattr(run, "check_isolation", lambda *_: (_ for _ in ()).throw(ModelError("samples see each other")))
    prepare(folder)  # that of the policy is looked at elsewhere
    with pytest.raises(ModelError, match="samples see each other"):
        prepare(folder, ref_model=str(folder / "model"))


def test_a_run_with_flex_attention_learns_what_one_with_segments_learns(folder, tmp_path, monkeypatch, uncompiled_flex):
    monkeypatch.setattr(attention, "find_flex_obstacle", lambda *_: "")

    def train(flash_attn):
        settings = {"stage": "dpo", "dataset": "pairs", "flash_attn": flash_attn, "prefix_sharing": True}
        output = tmp_path / flash_attn
        run_training(tiny_run(folder, **settings, output_dir=str(output), max_steps=1, learning_rate=1e-3))
        return load_file(output / "adapter_model.safetensors"), (output / "plan.txt").read_text()

    expected, _ = train("segments")
    found, plan = train("flex")
    assert "tunesmith_flex (flash_attn: flex was asked for)" in plan
    assert "the prompt of a pair is computed once" in plan
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("stage", "packing"), [("dpo", False), ("rm", True)])
def test_a_run_learns_the_same_with_shared_prompts(folder, tmp_path, stage, packing):
    def train(name, **settings):
        values = {"stage": stage, "dataset": "pairs", "output_dir": str(tmp_path / name), "packing": packing}
        result = run_training(tiny_run(folder, **{**values, "max_steps": 2, "learning_rate": 1e-3, **settings}))
        return {name: value.clone() for name, value in result.trainer.model.state_dict().items()}

    expected, found = train("plain", prefix_sharing=False), train("shared", prefix_sharing=True)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-3)
