"""Attention per sample: a flat row gives each sample exactly what it gets alone."""

from itertools import accumulate

import pytest
import torch
from torch import Tensor
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from tests.tiny.models import FAMILIES, tiny_model
from tunesmith.models.segments import SEGMENTS, Segments, build_segments_mask

LENGTHS = (5, 1, 40, 23)  # 40 and 23 are longer than the toy windows of 16


def samples(vocab_size: int = 420) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(3, vocab_size, (length,), generator=generator) for length in LENGTHS]


def flat(parts: list[Tensor]) -> dict[str, Tensor]:
    return {
        "input_ids": torch.cat(parts)[None],
        "position_ids": torch.cat([torch.arange(len(part)) for part in parts])[None],
    }


def alone(model, parts: list[Tensor]) -> Tensor:
    """The reference: every sample by itself through transformers' plainest attention."""
    model.set_attn_implementation("eager")
    logits = torch.cat([model(input_ids=part[None], use_cache=False).logits[0] for part in parts])
    model.set_attn_implementation(SEGMENTS)
    return logits


def gradients(model, logits: Tensor) -> list[Tensor]:
    model.zero_grad()
    (logits.square().sum() / logits.numel()).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("family", FAMILIES)
def test_flat_row_equals_separate_rows_in_logits_and_gradients(family):
    model, parts = tiny_model(family), samples()
    expected = alone(model, parts)
    expected_gradients = gradients(model, expected)
    found = model(**flat(parts), use_cache=False).logits[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for a, b in zip(gradients(model, found), expected_gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text"])
def test_changing_one_sample_never_moves_another(family):
    model, parts = tiny_model(family), samples()
    model.set_attn_implementation(SEGMENTS)
    before = model(**flat(parts), use_cache=False).logits[0].split(LENGTHS)
    parts[2] = (parts[2] + 7) % 400
    after = model(**flat(parts), use_cache=False).logits[0].split(LENGTHS)
    for index in (0, 1, 3):
        assert torch.equal(before[index], after[index])
    assert not torch.allclose(before[2], after[2])


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_two_packed_rows_with_padding_equal_separate_rows(family):
    model, parts = tiny_model(family), samples()
    expected = alone(model, parts)
    pad = torch.full((23,), 417)  # rows: 5 + 1 + 40 tokens, 23 + 23 pad tokens
    ids = torch.stack([torch.cat(parts[:3]), torch.cat([parts[3], pad])])
    positions = torch.stack(
        [
            torch.cat([torch.arange(5), torch.arange(1), torch.arange(40)]),
            torch.cat([torch.arange(23), torch.zeros(23).long()]),
        ]
    )
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(torch.cat([logits[0], logits[1, :23]]), expected, atol=1e-5, rtol=1e-5)


def test_samples_stay_apart_when_a_cache_hides_the_packing_from_transformers():
    model, parts = tiny_model("llama"), samples()
    expected = alone(model, parts)
    borders = torch.tensor([0, *accumulate(LENGTHS)], dtype=torch.int32)
    inputs = flat(parts)
    for extra in ({}, {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders, "max_length_q": 40, "max_length_k": 40}):
        logits = model(**inputs, use_cache=True, **extra).logits[0]
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text"])
def test_right_padded_batch_equals_separate_rows(family):
    model, parts = tiny_model(family), samples()
    expected = alone(model, parts)
    ids = torch.full((4, 40), 417)
    mask = torch.zeros(4, 40, dtype=torch.long)
    for row, part in enumerate(parts):
        ids[row, : len(part)] = part
        mask[row, : len(part)] = 1
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    found = torch.cat([logits[row, : len(part)] for row, part in enumerate(parts)])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text"])
def test_greedy_generation_equals_eager_attention(family):
    model = tiny_model(family)
    ids = torch.full((2, 30), 417)
    ids[0, 10:], ids[1, :] = samples()[3][:20], samples()[2][:30]
    mask = (torch.arange(30)[None] >= torch.tensor([[10], [0]])).long()
    outputs = []
    for implementation in ("eager", SEGMENTS):
        model.set_attn_implementation(implementation)
        outputs.append(model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=12, do_sample=False))
    assert torch.equal(*outputs)


def test_attention_sinks_are_kept_per_sample():
    model = tiny_model(
        "gpt_oss", num_local_experts=2, num_experts_per_tok=1, head_dim=8, sliding_window=16, rope_parameters=None
    )
    parts = samples()
    expected = alone(model, parts)
    found = model(**flat(parts), use_cache=False).logits[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("family", "window"), [("llama", None), ("gemma3_text", 16)])
def test_packed_rows_reach_the_layers_as_lengths_not_as_a_square(family, window):
    model = tiny_model(family)
    model.set_attn_implementation(SEGMENTS)
    inputs = flat(samples())
    build = create_sliding_window_causal_mask if window else create_causal_mask
    embeddings = model.get_input_embeddings()(inputs["input_ids"])
    mask = build(model.config, embeddings, None, None, position_ids=inputs["position_ids"])
    assert isinstance(mask, Segments)
    assert (mask.lengths, mask.window) == ((LENGTHS,), window)


def test_mask_rule_that_looks_ahead_is_left_to_transformers():
    def sees_all(batch, head, query, key):
        return torch.ones((), dtype=torch.bool).expand(torch.broadcast_shapes(query.shape, key.shape))

    mask = build_segments_mask(
        batch_size=2, q_length=4, kv_length=4, mask_function=sees_all, allow_is_causal_skip=False
    )
    assert isinstance(mask, Tensor)
    assert mask.all()


def test_lengths_are_read_off_the_mask_rule():
    def chunks_of_three(batch, head, query, key):
        return (key <= query) & (key // 3 == query // 3)

    segments = build_segments_mask(batch_size=2, q_length=8, kv_length=8, mask_function=chunks_of_three)
    assert isinstance(segments, Segments)
    assert segments.lengths == ((3, 3, 2), (3, 3, 2))


def test_gradient_checkpointing_gives_the_same_gradients():
    model, parts = tiny_model("llama"), samples()
    expected = gradients(model, alone(model, parts))
    model.train()
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        found = gradients(model, model(**flat(parts), use_cache=False).logits[0])
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


GROUPS = ((5, 3, 4), (1, 30, 2), (20, 1, 1, 6))  # prompt, branches; a window of 16 cuts through prompts and branches


def branched(groups=GROUPS) -> tuple[dict[str, object], list[Tensor]]:
    """Return a row of groups, and every sequence of it in full."""
    generator = torch.Generator().manual_seed(5)
    parts, positions, whole = [], [], []
    for prompt, *lengths in groups:
        start = torch.randint(3, 420, (prompt,), generator=generator)
        branches = [torch.randint(3, 420, (length,), generator=generator) for length in lengths]
        parts += [start, *branches]
        positions += [torch.arange(prompt), *(torch.arange(prompt, prompt + length) for length in lengths)]
        whole += [torch.cat([start, branch]) for branch in branches]
    row = {"input_ids": torch.cat(parts)[None], "position_ids": torch.cat(positions)[None], "branch_lengths": groups}
    return row, whole


def branches_of(values: Tensor, groups=GROUPS) -> Tensor:
    """Leave the prompts out of what a row of groups gives."""
    parts = iter(values.split([length for group in groups for length in group]))
    return torch.cat([part for group in groups for index, part in enumerate(next(parts) for _ in group) if index])


@pytest.mark.parametrize("family", FAMILIES)
def test_branches_of_a_shared_prompt_equal_rows_of_their_own_in_logits_and_gradients(family):
    model = tiny_model(family)
    row, whole = branched()
    prompts = [group[0] for group in GROUPS for _ in group[1:]]
    model.set_attn_implementation("eager")
    expected = torch.cat(
        [model(input_ids=ids[None], use_cache=False).logits[0, p:] for ids, p in zip(whole, prompts, strict=True)]
    )
    expected_gradients = gradients(model, expected)
    model.set_attn_implementation(SEGMENTS)
    found = branches_of(model(**row, use_cache=False).logits[0])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for a, b in zip(gradients(model, found), expected_gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_changing_one_branch_never_moves_another():
    model = tiny_model("llama")
    model.set_attn_implementation(SEGMENTS)
    row, _ = branched()
    before = model(**row, use_cache=False).logits[0]
    row["input_ids"][0, 5] += 1  # the first branch of the first group
    after = model(**row, use_cache=False).logits[0]
    moved = (before != after).any(-1)
    assert moved[5:8].all()
    assert not moved[:5].any()
    assert not moved[8:].any()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_checkpointed_layers_see_the_same_branches(checkpointing):
    model = tiny_model("llama").train()
    model.set_attn_implementation(SEGMENTS)
    row, _ = branched()
    plain = gradients(model, branches_of(model(**row, use_cache=False).logits[0]))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for a, b in zip(gradients(model, branches_of(model(**row, use_cache=False).logits[0])), plain, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"branch_lengths": ((5, 3, 4),)}, "describes 12 tokens .* rows of 73 tokens"),
        ({"attention_mask": torch.cat([torch.ones(1, 70), torch.zeros(1, 3)], dim=1).long()}, "a mask of its own"),
    ],
)
def test_branches_that_do_not_describe_the_row_are_refused(change, message):
    model = tiny_model("llama")
    model.set_attn_implementation(SEGMENTS)
    row, _ = branched()
    with pytest.raises(ValueError, match=message):
        model(**{**row, **change}, use_cache=False)
