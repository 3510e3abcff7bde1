import pytest

from tunesmith.config import load_config
from tunesmith.errors import ConfigError

BASE = {
    "model_name_or_path": "org/name",
    "output_dir": "out",
    "dataset": "a,b",
    "do_train": True,
    "dataset_info": {name: {"hf_hub_url": f"owner/{name}"} for name in "abc"},
}


def load(**settings):
    return load_config({**BASE, **settings}, environ={})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interleave_probs": "0.5,0.5"}, "draws rows, and `mix_strategy: concat` takes all"),
        ({"interleave_probs": "1", "mix_strategy": "interleave_over"}, "has 1 values and `dataset` names 2"),
        ({"interleave_probs": "0.5,0.6", "mix_strategy": "interleave_over"}, "adds up to 1.1; probabilities add up"),
        ({"interleave_probs": "1,0", "mix_strategy": "interleave_over"}, "allowed is a list .*more than 0"),
        ({"mix_strategy": "interleave"}, "allowed is one of concat, interleave_under"),
        ({"max_samples": "1,2,3"}, r"has 3 values; give one for all, or one for each of .*\(2\)"),
        ({"max_samples": [1], "eval_dataset": "c"}, r"has 1 values; .*\(2 or 3\)"),
        ({"max_samples": "5,0"}, "`max_samples` is '5,0'; allowed is"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        load(**settings)


def test_probabilities_and_caps_that_fit_are_taken():
    data = load(mix_strategy="interleave_once", interleave_probs=[0.25, 0.75], max_samples="5,6").data
    assert data.interleave_probs == (0.25, 0.75)
    assert [data.max_samples_of(number) for number in range(3)] == [5, 6, None]
    data = load(max_samples=7, eval_dataset="c").data
    assert [data.max_samples_of(number) for number in range(3)] == [7, 7, 7]
    assert load().data.max_samples_of(0) is None


def test_mixing_one_data_set_is_noted():
    notes = load(dataset="a", mix_strategy="interleave_over").notes()
    assert any("`mix_strategy: interleave_over` is not used: there is nothing to mix" in note for note in notes)
