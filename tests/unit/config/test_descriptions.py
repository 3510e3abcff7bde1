from tunesmith.config.descriptions import all_descriptions, first_sentence
from tunesmith.config.settings import all_settings


def test_every_setting_is_described():
    assert set(all_settings()) <= set(all_descriptions())


def test_descriptions_are_sentences():
    for key, text in all_descriptions().items():
        assert first_sentence(text).endswith((".", ":")), key
        assert "\n" not in first_sentence(text), key
        assert not text.lower().startswith("whether to"), key
