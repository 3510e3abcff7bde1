"""Pairs whose prompt is computed once give the log-probabilities and gradients of pairs that hold it twice."""

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tiny.models import FAMILIES, tiny_model
from tunesmith.data.batches import LOSS_KEYS, PairExample
from tunesmith.data.collators import build_collator
from tunesmith.models.flex import FLEX
from tunesmith.models.heads import find_base_model, resolve_head, run_body
from tunesmith.models.segments import SEGMENTS
from tunesmith.objectives.log_probabilities import token_values


def pairs(num_rows: int = 5, *, scale: int = 1) -> list[PairExample]:
    """Prompts of 1 to 30 tokens with completions of 1 to 20; the toy models' window of 16 cuts through them.

    Args:
        num_rows: Pairs wanted.
        scale: Times as many tokens in each part.
    """
    rng = np.random.default_rng(4)
    rows = []
    for row in range(num_rows):
        prompt, chosen, rejected = (1 if row == 0 else int(rng.integers(1, 31))), *rng.integers(1, 21, 2).tolist()
        prompt, chosen, rejected = prompt * scale, chosen * scale, rejected * scale
        total = prompt + chosen + rejected
        rows.append(
            PairExample(
                input_ids=rng.integers(3, 420, total).astype(np.int32),
                trained_spans=np.array([prompt, prompt + chosen, prompt + chosen, total], dtype=np.int32),
                row_id=row,
                prompt_end=prompt,
                chosen_end=prompt + chosen,
                signal=0.0,
            )
        )
    return rows


def completions(model, batch) -> torch.Tensor:
    """Sum the log-probabilities of every completion. Shape [sequences]."""
    head = resolve_head(model)
    inputs = {key: value for key, value in batch.items() if key not in (*LOSS_KEYS, "row_ids")}
    hidden = run_body(model, head, {**inputs, "use_cache": False}).hidden.flatten(0, 1)
    values = token_values(
        hidden[batch["completion_positions"]], batch["completion_labels"], head, chunk_tokens=7
    ).log_probabilities
    return values.new_zeros(len(batch["last_positions"])).index_add(0, batch["completion_sequences"], values)


def loss_and_gradients(model, batch):
    model.zero_grad()
    sums = completions(model, batch)
    margins = 0.1 * (sums[::2] - sums[1::2])
    torch.nn.functional.logsigmoid(margins).sum().neg().backward()
    return sums.detach(), {
        name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None
    }


@pytest.mark.parametrize(
    ("family", "is_lora", "packed"),
    [*((family, False, True) for family in FAMILIES), ("llama", True, True), ("gemma2", True, False)],
)
def test_shared_prompts_give_the_same_numbers_and_gradients(family, is_lora, packed):
    model, rows = tiny_model(family), pairs()
    model.set_attn_implementation(SEGMENTS)
    if is_lora:
        model = get_peft_model(model, LoraConfig(r=4, target_modules=["o_proj"], init_lora_weights=False))
    packs = [rows[:2], rows[2:]] if packed else rows
    build = lambda layout, **options: build_collator(layout, kind="pairs", pad_token_id=417, **options)  # noqa: E731
    expected, expected_gradients = loss_and_gradients(model, build("padded")(rows))
    for collator in (build("flat"), build("flat", shares_prompts=True)):
        found, gradients = loss_and_gradients(model, collator(packs))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert gradients.keys() == expected_gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected_gradients[name], atol=1e-5, rtol=1e-5, msg=name)


@pytest.mark.parametrize(("family", "is_lora"), [("llama", False), ("llama", True), ("gemma3_text", False)])
def test_flex_attention_gives_what_attention_per_segment_gives(uncompiled_flex, family, is_lora):
    """Prompts of up to 300 tokens: blocks that are seen as a whole, in part and not at all."""
    model = tiny_model(family, max_position_embeddings=1024)
    if is_lora:
        model = get_peft_model(model, LoraConfig(r=4, target_modules=["o_proj"], init_lora_weights=False))
    batch = build_collator("flat", kind="pairs", pad_token_id=417, shares_prompts=True)(pairs(scale=10))
    find_base_model(model).set_attn_implementation(SEGMENTS)
    expected, expected_gradients = loss_and_gradients(model, batch)
    find_base_model(model).set_attn_implementation(FLEX)
    found, gradients = loss_and_gradients(model, batch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], atol=1e-5, rtol=1e-5, msg=name)


def test_an_identical_pair_has_no_gradient_with_a_shared_prompt():
    model, row = tiny_model("llama"), pairs(2)[1]
    model.set_attn_implementation(SEGMENTS)
    chosen = row["input_ids"][row["prompt_end"] : row["chosen_end"]]
    ids = np.concatenate([row["input_ids"][: row["chosen_end"]], chosen])
    spans = np.array([row["prompt_end"], row["chosen_end"], row["chosen_end"], len(ids)], dtype=np.int32)
    batch = build_collator("flat", kind="pairs", pad_token_id=417, shares_prompts=True)(
        [{**row, "input_ids": ids, "trained_spans": spans}]
    )
    sums, gradients = loss_and_gradients(model, batch)
    assert sums[0].item() == sums[1].item()
    assert max(gradient.abs().max().item() for gradient in gradients.values()) < 1e-6
