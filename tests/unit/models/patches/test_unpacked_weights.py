import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.models.patches.unpacked_weights import keep_weights_unpacked

bitsandbytes = pytest.importorskip("bitsandbytes")


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Put bitsandbytes' own question back afterwards."""
    monkeypatch.setattr(bitsandbytes.nn.modules, "has_avx512bf16", bitsandbytes.nn.modules.has_avx512bf16)


def test_layers_built_afterwards_believe_that_there_is_no_packed_kernel(monkeypatch):
    monkeypatch.setattr(bitsandbytes.nn.modules, "has_avx512bf16", lambda: True)
    assert bitsandbytes.nn.Linear4bit(8, 8).support_avx512bf16_for_cpu
    keep_weights_unpacked()
    assert not bitsandbytes.nn.Linear4bit(8, 8).support_avx512bf16_for_cpu


def test_dequantising_after_an_evaluation_gives_the_weights_of_before(tmp_path):
    """What fails upstream on processors with avx512_bf16."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    tiny_model().save_pretrained(tmp_path)
    keep_weights_unpacked()
    settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=settings, dtype=torch.float32, device_map={"": "cpu"}
    )
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        expected = model.eval()(input_ids=ids).logits
        torch.testing.assert_close(model.dequantize()(input_ids=ids).logits, expected, atol=1e-3, rtol=1e-3)
