from tunesmith.config.settings import all_settings
from tunesmith.config.suggestions import find_nearest, render_suggestion


def test_a_slip_of_the_finger_finds_its_key():
    assert find_nearest("learning_rat", all_settings()) == ["learning_rate"]
    assert find_nearest("Cutoff-Len", all_settings()) == ["cutoff_len"]


def test_the_same_words_in_another_order_are_near():
    assert find_nearest("batch_size_train_per_device", all_settings()) == ["per_device_train_batch_size"]


def test_the_first_words_of_a_name_stand_for_it():
    assert find_nearest("adamw", ["grokadamw", "adamw_torch_fused", "adamw_torch"]) == ["adamw_torch"]


def test_nothing_is_near_to_noise():
    assert find_nearest("zzzzzz", all_settings()) == []
    assert render_suggestion("zzzzzz", all_settings()) == ""


def test_several_suggestions_are_joined():
    assert render_suggestion("alpaca", ["alpaca_en", "alpaca_zh"], count=2) in (
        " Did you mean `alpaca_zh` or `alpaca_en`?",
        " Did you mean `alpaca_en` or `alpaca_zh`?",
    )
