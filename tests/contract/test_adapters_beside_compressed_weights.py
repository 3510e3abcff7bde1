"""What adapters keep beside weights in fewer bits: saved, loaded, gone on from, and merged into the exact weights."""

import importlib.util

import pytest
import torch

from tests.contract.plain_peft import IDS, logits
from tests.contract.test_adapters import SIZES
from tests.tiny.runs import write_place
from tunesmith.config import load_config
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.export.merge import export_model
from tunesmith.models import load_model, load_tokenizer

BITS = {
    "nf4": ({"quantization_bit": 4}, "bitsandbytes"),
    "int8": ({"quantization_bit": 8}, "bitsandbytes"),
    "torchao int8": ({"quantization_bit": 8, "quantization_method": "torchao"}, "torchao"),
    "hqq 4": ({"quantization_bit": 4, "quantization_method": "hqq"}, "hqq"),
}
KINDS = {
    "lora": {},
    "rslora": {"use_rslora": True},
    "patterns": {"lora_rank_pattern": {"q_proj": 2}},
    "with norms": {"additional_target": "norm"},
    "dora": {"use_dora": True},
}
CASES = [(kind, bits) for kind in KINDS for bits in BITS if kind != "dora" or bits == "nf4"]  # the others are refused
METHODS = [
    kind
    for kind, method in PEFT_METHODS.items()
    if kind not in ("lora", "pvera")  # which draws numbers in every pass
    and method.merges
    and not method.needs_exact_weights
    and not method.resume_obstacle
]
KINDS |= {kind: {"finetuning_type": kind, "lora_rank": None, **SIZES.get(kind, {})} for kind in METHODS}
CASES += [pytest.param(kind, "nf4", marks=() if kind in ("ia3", "vera") else pytest.mark.slow) for kind in METHODS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("compressed"), num_rows=4)


def settings_of(folder, kind: str, bits: str) -> dict[str, object]:
    chosen, package = BITS[bits]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    base = {"model_name_or_path": str(folder / "model"), "use_cpu": True, "lora_rank": 4, **KINDS[kind], **chosen}
    return {"bf16": False, **{key: value for key, value in base.items() if value is not None}}


def load(folder, kind, bits, *, is_trainable=True, **more):
    run = {"dataset": "toy", "dataset_dir": str(folder / "data"), "output_dir": str(folder / "out"), "stage": "sft"}
    config = load_config({**settings_of(folder, kind, bits), **run, **more}, environ={})
    torch.manual_seed(3)
    return load_model(config, load_tokenizer(config.model), is_trainable=is_trainable).model


def train(model, steps: int = 2) -> list[float]:
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model.train()(input_ids=IDS, labels=IDS, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("kind", "bits"), CASES)
def test_an_adapter_beside_compressed_weights_is_saved_loaded_resumed_and_merged(folder, tmp_path, kind, bits):
    model = load(folder, kind, bits)
    losses = train(model)
    assert losses[1] < losses[0] or kind == "unilora"  # whose steps are tiny by design
    found = logits(model)
    model.save_pretrained(tmp_path / "adapter")

    again = load(folder, kind, bits, is_trainable=False, adapter_name_or_path=str(tmp_path / "adapter"))
    torch.testing.assert_close(logits(again), found, atol=1e-4, rtol=1e-4)

    resumed = load(folder, kind, bits)
    resumed.load_adapter(str(tmp_path / "adapter"), "default", is_trainable=True)
    torch.testing.assert_close(logits(resumed), found, atol=1e-5, rtol=1e-5)
    more = train(resumed, 1)[0]
    assert more == pytest.approx(train(model, 1)[0], rel=1e-4)

    places = {"adapter_name_or_path": str(tmp_path / "adapter"), "export_dir": str(tmp_path / "merged")}
    exact = {"model_name_or_path": str(folder / "model"), "use_cpu": True}
    report = export_model(load_config({**exact, **places}, purpose="export", environ={}))
    assert report.merge_difference < 1e-4
