import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.training import tiny_trainer, uneven_rows
from tunesmith.data.collators import build_collator
from tunesmith.training.embedding_noise import EmbeddingNoise, sample_lengths

ROWS = uneven_rows(4)
LENGTHS = [len(row["input_ids"]) for row in ROWS]
DIM = 64


def noise_of(batch, alpha):
    embeddings = torch.nn.Embedding(420, DIM)
    torch.nn.init.zeros_(embeddings.weight)
    noise = EmbeddingNoise(embeddings, alpha)
    with noise.attached():
        with noise.on(batch):
            found = embeddings(batch["input_ids"]).detach()
        assert not embeddings(batch["input_ids"]).any()  # it ends with the batch
    with noise.on(batch):
        assert not embeddings(batch["input_ids"]).any()  # and is gone after the training
    return found


def by_sample(batch, values):
    """Values of each row of ROWS, without padding. Shape [tokens, ...] each."""
    if values.shape[0] == 1:  # all rows in one
        return list(values[0, : sum(LENGTHS)].split(LENGTHS))
    return [line[:length] for line, length in zip(values, LENGTHS, strict=True)]


LAYOUTS = {
    "flat": build_collator("flat", pad_token_id=417)(ROWS),
    "padded": build_collator("padded", pad_token_id=417, pad_to_multiple_of=64)(ROWS),
    "packed": build_collator("padded", pad_token_id=417, pad_to_multiple_of=64)([ROWS]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_noise_of_a_row_is_as_strong_as_when_it_stands_alone(layout):
    torch.manual_seed(0)
    alpha = 5.0
    for sample, length in zip(by_sample(LAYOUTS[layout], noise_of(LAYOUTS[layout], alpha)), LENGTHS, strict=True):
        bound = alpha / (length * DIM) ** 0.5
        assert 0.95 * bound < sample.abs().max().item() <= bound
        assert sample.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)  # of the uniform distribution


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_token_knows_the_length_of_its_sample(layout):
    batch = LAYOUTS[layout]
    found = by_sample(batch, sample_lengths(batch))
    assert [lengths.tolist() for lengths in found] == [[float(length)] * length for length in LENGTHS]


def test_rows_without_mask_or_positions_are_full():
    assert sample_lengths({"input_ids": torch.zeros(2, 3, dtype=torch.long)}).tolist() == [[3.0] * 3] * 2


def test_noise_is_on_in_training_and_off_in_evaluation(tmp_path):
    found = []
    for alpha in (None, 5.0):
        trainer = tiny_trainer(
            tmp_path,
            ROWS,
            model=tiny_model("llama"),
            layout="flat",
            evals=ROWS,
            eval_on_start=True,
            plan={"neftune_noise_alpha": alpha},
        )
        trainer.train()
        log = trainer.state.log_history
        found.append((log[0]["eval_loss"], log[1]["loss"]))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
