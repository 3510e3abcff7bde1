import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, LoraModel, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny.models import tiny_model
from tests.tiny.runs import write_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import RunConfig, load_config
from tunesmith.data.chat import resolve_template
from tunesmith.errors import ConfigError, ModelError
from tunesmith.export import merge
from tunesmith.export.merge import cast_parameters, export_model, resolve_export_dtype
from tunesmith.models.probe import relative_difference

PROBE = torch.tensor([[11, 12, 13, 14, 15, 16, 17, 18]])


def save_base(folder: Path, dtype: torch.dtype = torch.float32, family: str = "llama") -> Path:
    write_model(folder, family, chat_template=None)
    if dtype != torch.float32:
        AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).save_pretrained(folder)
    return folder


def save_adapter(
    folder: Path,
    base: Path,
    *,
    seed: int = 0,
    template: str | None = None,
    targets: Sequence[str] = ("q_proj", "down_proj"),
) -> Path:
    """Save a LoRA adapter that changes the model a lot, with its tokenizer where a template is named."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=list(targets)))
    torch.manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    adapted.save_pretrained(folder)
    if template is not None:
        tokenizer = byte_level_tokenizer()
        settings = load_config({"template": template}, purpose="read", environ={}).data
        resolve_template(settings, tokenizer).apply_to_tokenizer(tokenizer)
        tokenizer.save_pretrained(folder)
    return folder


def configure(base: Path, out: Path, *adapters: Path, **settings: object) -> RunConfig:
    values = {"model_name_or_path": str(base), "export_dir": str(out), "use_cpu": True, **settings}
    if adapters:
        values["adapter_name_or_path"] = [str(adapter) for adapter in adapters]
    return load_config(values, purpose="export", environ={})


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=PROBE, use_cache=False).logits.float()


@pytest.fixture
def base(tmp_path):
    return save_base(tmp_path / "base")


def test_the_merged_model_answers_like_the_model_with_its_adapter(base, tmp_path):
    adapter = save_adapter(tmp_path / "adapter", base)
    report = export_model(configure(base, tmp_path / "out", adapter))
    attached = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits_of(merged), logits_of(attached), atol=1e-4, rtol=1e-4)
    plain = logits_of(AutoModelForCausalLM.from_pretrained(base))
    assert relative_difference(logits_of(merged), plain) > 0.05
    assert report.merge_difference < 1e-5
    assert report.reload_difference == 0
    assert report.num_parameters == merged.num_parameters()
    assert report.dtype == torch.float32


def test_several_adapters_are_merged_in_order(base, tmp_path):
    first = save_adapter(tmp_path / "first", base, seed=1)
    second = save_adapter(tmp_path / "second", base, seed=2)
    export_model(configure(base, tmp_path / "both", first, second))
    export_model(configure(base, tmp_path / "one", first))
    export_model(configure(tmp_path / "one", tmp_path / "then", second))
    together, apart = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("both", "then"))
    torch.testing.assert_close(logits_of(together), logits_of(apart), atol=1e-4, rtol=1e-4)


def test_the_merge_is_computed_in_float32_and_rounded_once(tmp_path):
    base = save_base(tmp_path / "base", torch.bfloat16)
    adapter = save_adapter(tmp_path / "adapter", base)
    report = export_model(configure(base, tmp_path / "out", adapter))
    assert report.dtype == torch.bfloat16
    exact = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    exact = PeftModel.from_pretrained(exact, adapter).merge_and_unload()
    written = load_file(tmp_path / "out" / "model.safetensors")
    for name, parameter in exact.named_parameters():
        if name in written:
            torch.testing.assert_close(written[name], parameter.detach().to(torch.bfloat16), rtol=0, atol=0)


def test_the_type_asked_for_is_written(base, tmp_path):
    report = export_model(configure(base, tmp_path / "out", infer_dtype="float16"))
    assert report.dtype == torch.float16
    assert report.merge_difference is None
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float16"
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").dtype == torch.float16


def test_the_template_of_training_and_every_end_marker_are_written(base, tmp_path):
    adapter = save_adapter(tmp_path / "adapter", base, template="chatml")
    AutoModelForCausalLM.from_pretrained(base)  # whose generation configuration names token 2
    settings = json.loads((base / "generation_config.json").read_text())
    (base / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [0, 2]}))
    report = export_model(configure(base, tmp_path / "out", adapter))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert "<|im_start|>assistant" in tokenizer.chat_template
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert written["eos_token_id"] == [0, 1, 2]  # generation stops at the start of a turn too
    assert written["pad_token_id"] == 0
    assert report.end_markers == ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def test_a_template_that_is_asked_for_is_saved_with_the_model(base, tmp_path):
    export_model(configure(base, tmp_path / "out", template="chatml"))
    assert "<|im_start|>" in AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


def test_a_base_model_without_a_template_stays_one(base, tmp_path):
    export_model(configure(base, tmp_path / "out"))
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template is None


def test_files_can_be_read_by_others(base, tmp_path):
    export_model(configure(base, tmp_path / "out"))
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in (tmp_path / "out").iterdir())


@pytest.fixture
def save_with(monkeypatch):
    """Let the exported model be saved by a function of the test: (model, its own save_pretrained, folder, options)."""
    load_model = merge.load_model

    def install(save):
        def load(*args, **kwargs):
            loaded = load_model(*args, **kwargs)
            own = loaded.model.save_pretrained
            loaded.model.save_pretrained = lambda folder, **options: save(loaded.model, own, folder, options)
            return loaded

        monkeypatch.setattr(merge, "load_model", load)

    return install


def test_weights_are_written_and_checked_in_shards(base, tmp_path, save_with):
    sizes = []

    def save_small(model, own, folder, options):
        sizes.append(options["max_shard_size"])
        own(folder, max_shard_size="20KB")

    save_with(save_small)
    export_model(configure(base, tmp_path / "out", export_size=3))
    assert sizes == ["3GB"]
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 1


@pytest.mark.parametrize("make", ["file", "full folder"])
def test_a_folder_in_use_is_refused(base, tmp_path, make):
    out = tmp_path / "out"
    if make == "file":
        out.write_text("")
    else:
        out.mkdir()
        (out / "something").write_text("")
    with pytest.raises(ConfigError, match=r"export_dir is .*out, which exists and is not an empty folder"):
        export_model(configure(base, out))


def test_an_empty_folder_is_used(base, tmp_path):
    (tmp_path / "out").mkdir()
    export_model(configure(base, tmp_path / "out"))
    assert (tmp_path / "out" / "config.json").is_file()


def test_a_missing_folder_name_is_refused(base, tmp_path):
    config = configure(base, tmp_path / "out")
    nameless = replace(config, export=replace(config.export, export_dir=None))
    with pytest.raises(ConfigError, match="export_dir is not set"):
        export_model(nameless)


def test_a_merge_that_changes_the_model_is_refused_and_leaves_nothing(base, tmp_path, monkeypatch):
    adapter = save_adapter(tmp_path / "adapter", base)
    monkeypatch.setattr(LoraModel, "merge_and_unload", lambda self, **_: self.unload())  # forgets the adapter
    with pytest.raises(ModelError, match=r"Merging the adapter .* changes the model's logits"):
        export_model(configure(base, tmp_path / "out", adapter))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_does_not_reload_alike_is_removed(base, tmp_path, save_with):
    save_with(lambda model, own, folder, options: tiny_model(seed=7).save_pretrained(folder))
    with pytest.raises(ModelError, match="The model that was written gives other logits"):
        export_model(configure(base, tmp_path / "out"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["base"]


def test_an_adapter_in_the_users_hub_cache_is_merged_with_its_template(base, tmp_path):
    repository = tmp_path / "cache" / "models--org--adapter"
    save_adapter(repository / "snapshots" / ("b" * 40), base, template="chatml")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("b" * 40)
    report = export_model(
        configure(base, tmp_path / "out", adapter_name_or_path="org/adapter", cache_dir=str(tmp_path / "cache"))
    )
    assert report.merge_difference is not None
    assert "<|im_start|>assistant" in AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


def test_an_adapter_given_as_the_model_is_checked_too(base, tmp_path):
    adapter = save_adapter(tmp_path / "adapter", base, template="chatml")
    report = export_model(configure(adapter, tmp_path / "out"))
    assert report.merge_difference is not None
    export_model(configure(base, tmp_path / "both", adapter))
    alone, both = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "both"))
    assert all(torch.equal(value, both[name]) for name, value in alone.items())


@pytest.mark.parametrize("target", ["embed_tokens", "lm_head"])
def test_an_adapter_on_one_of_two_tied_ends_gives_the_other_weights_of_its_own(base, tmp_path, target):
    adapter = save_adapter(tmp_path / "adapter", base, targets=[target])
    report = export_model(configure(base, tmp_path / "out", adapter))
    assert report.merge_difference < 1e-5
    assert report.reload_difference == 0
    attached = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert not merged.config.tie_word_embeddings
    torch.testing.assert_close(logits_of(merged), logits_of(attached), atol=1e-4, rtol=1e-4)


def test_an_adapter_of_another_model_is_refused_and_leaves_nothing(base, tmp_path):
    tiny_model(hidden_size=64).save_pretrained(tmp_path / "other")
    adapter = save_adapter(tmp_path / "adapter", tmp_path / "other")
    with pytest.raises(ModelError, match=r"adapter_name_or_path: \S*adapter does not fit LlamaForCausalLM"):
        export_model(configure(base, tmp_path / "out", adapter))
    assert not (tmp_path / "out").exists()


REMOTE_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class ToyConfig(LlamaConfig):
    model_type = "toy_with_code"

class ToyModel(LlamaForCausalLM):
    config_class = ToyConfig
"""


def test_a_model_that_brings_its_code_is_reloaded_with_it(base, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    settings = json.loads((base / "config.json").read_text())
    classes = {"AutoConfig": "toy.ToyConfig", "AutoModelForCausalLM": "toy.ToyModel"}
    settings |= {"model_type": "toy_with_code", "architectures": ["ToyModel"], "auto_map": classes}
    (base / "config.json").write_text(json.dumps(settings))
    (base / "toy.py").write_text(REMOTE_CODE)
    report = export_model(configure(base, tmp_path / "out", trust_remote_code=True))
    assert report.reload_difference == 0
    assert (tmp_path / "out" / "toy.py").read_text() == REMOTE_CODE


def test_buffers_are_not_rounded():
    model = tiny_model()
    before = model.model.rotary_emb.inv_freq.clone()
    cast_parameters(model, torch.bfloat16)
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert torch.equal(model.model.rotary_emb.inv_freq, before)


@pytest.mark.parametrize(
    ("asked", "stored", "expected"),
    [
        ("auto", torch.float16, torch.float16),
        ("auto", None, torch.bfloat16),
        ("float32", torch.float16, torch.float32),
    ],
)
def test_the_stored_type_is_kept_unless_another_is_asked_for(asked, stored, expected):
    assert resolve_export_dtype(asked, stored) == expected


def test_differences_are_shares_of_the_largest_logit():
    assert relative_difference(torch.tensor([1.0, -4.5]), torch.tensor([1.0, -5.0])) == pytest.approx(0.1)
    assert not relative_difference(torch.tensor([float("nan")]), torch.tensor([1.0])) <= 1
