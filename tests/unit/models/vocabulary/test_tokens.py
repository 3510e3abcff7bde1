import pytest

from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models.vocabulary import add_new_tokens, read_new_tokens


@pytest.mark.parametrize("build", [byte_level_tokenizer, metaspace_tokenizer])
def test_words_are_shown_and_controls_are_not(build):
    tokenizer = build()
    known = len(tokenizer)
    add_new_tokens(tokenizer, ModelConfig(add_tokens=("Zebrafink",), add_special_tokens=("<|call|>",)))
    ids = tokenizer("Ein Zebrafink<|call|>", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_tokens_to_ids(["Zebrafink", "<|call|>"]) == [known, known + 1]
    assert ids[-2:] == [known, known + 1]
    assert tokenizer.decode(ids, skip_special_tokens=True).endswith("Zebrafink")
    assert tokenizer.decode(ids).endswith("Zebrafink<|call|>")


def test_tokens_that_are_there_already_stay_what_they_are():
    tokenizer = byte_level_tokenizer()
    known = len(tokenizer)
    add_new_tokens(tokenizer, ModelConfig(add_special_tokens=("<|im_end|>",)))
    assert (len(tokenizer), tokenizer.convert_tokens_to_ids("<|im_end|>")) == (known, 2)


def test_additions_survive_saving(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = byte_level_tokenizer()
    add_new_tokens(tokenizer, ModelConfig(add_tokens=("Zebrafink",), add_special_tokens=("<|call|>",)))
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "Ein Zebrafink<|call|>."
    assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert again.decode(again(text)["input_ids"], skip_special_tokens=True) == "Ein Zebrafink."


def test_described_tokens_are_added_too(tmp_path):
    file = tmp_path / "meanings.yaml"
    file.write_text("'<|a|>': start of an answer\n'<|b|>': its end\n", encoding="utf-8")
    new = read_new_tokens(ModelConfig(add_special_tokens=("<|c|>", "<|a|>"), new_special_tokens_config=str(file)))
    assert new.controls == ("<|c|>", "<|a|>", "<|b|>")
    assert new.all == new.controls
    assert new.descriptions == {"<|a|>": "start of an answer", "<|b|>": "its end"}
    assert read_new_tokens(ModelConfig(new_special_tokens_config={"<|a|>": "words"})).controls == ("<|a|>",)


@pytest.mark.parametrize(
    ("content", "words"),
    [("[1", "cannot be read as YAML"), ("- a", "has to map tokens"), ("a: 1", "has to map tokens")],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, words):
    file = tmp_path / "meanings.yaml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=words):
        read_new_tokens(ModelConfig(new_special_tokens_config=str(file)))


def test_a_word_that_is_described_as_a_control_token_is_refused():
    with pytest.raises(ModelError, match="'x' is a special token too"):
        read_new_tokens(ModelConfig(add_tokens=("x",), new_special_tokens_config={"x": "words"}))


def test_a_token_that_begins_from_its_description_has_one():
    described = {"<|a|>": "call a tool", "<|b|>": " "}
    with pytest.raises(ModelError, match=r"new_special_tokens_config: '<\|b\|>' has no words, and init_special_tokens"):
        read_new_tokens(ModelConfig(new_special_tokens_config=described, init_special_tokens="desc_init_w_noise"))
    assert read_new_tokens(ModelConfig(new_special_tokens_config=described)).all == ("<|a|>", "<|b|>")
