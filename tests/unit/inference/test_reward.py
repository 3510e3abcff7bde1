import numpy as np
import pytest
import torch

from tests.tiny.runs import write_model, write_reward_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import load_config
from tunesmith.errors import ModelError
from tunesmith.inference.reward import load_reward_scorer


@pytest.fixture
def folder(tmp_path):
    """A reward model on disk."""
    return write_reward_model(tmp_path / "model")


def load(folder, **settings):
    settings = {"model_name_or_path": str(folder), "use_cpu": True, **settings}
    return load_reward_scorer(load_config(settings, purpose="generate"))


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_texts_of_all_lengths_are_rated_in_their_order_whatever_the_batch(folder, batch_size):
    scorer = load(folder, per_device_eval_batch_size=batch_size)
    texts = [np.arange(5, 5 + length, dtype=np.int32) for length in (4, 1, 9, 2, 2)]
    with torch.no_grad():
        expected = [scorer.model(input_ids=torch.tensor(text[None])).logits.item() for text in texts]
    assert scorer.score(texts) == pytest.approx(expected, abs=1e-5)
    assert scorer.score([]) == []
    assert scorer.note == f"the score head is that of {folder}"


def test_a_language_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="has no score head"):
        load(write_model(tmp_path / "model"))


def test_a_tokenizer_without_a_template_is_enough_for_texts(folder):
    byte_level_tokenizer().save_pretrained(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    assert load(folder).template is None
