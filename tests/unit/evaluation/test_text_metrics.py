import pytest

from tunesmith.evaluation.text_metrics import WordTokenizer, score_texts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Tom吃了3个apples.", ["tom", "吃", "了", "3", "个", "apples"]),
        ("A B-c, d_e!", ["a", "b", "c", "d", "e"]),
        ("日本語です 한국어", ["日", "本", "語", "で", "す", "한", "국", "어"]),
        ("。，！ ", []),
    ],
)
def test_words_are_split_and_every_cjk_character_is_one(text, words):
    assert WordTokenizer().tokenize(text) == words


@pytest.mark.parametrize("text", ["the cat sat on the mat", "我是一个助手，很高兴认识您。"])
def test_the_same_text_scores_100(text):
    assert score_texts([text], [text]) == pytest.approx({"bleu-4": 100, "rouge-1": 100, "rouge-2": 100, "rouge-l": 100})


@pytest.mark.parametrize("prediction", ["", "dogs bark"])
def test_nothing_in_common_scores_0(prediction):
    assert score_texts([prediction], ["the cat sat on the mat"]) == pytest.approx(
        {"bleu-4": 0, "rouge-1": 0, "rouge-2": 0, "rouge-l": 0}
    )


def test_rouge_of_chinese_is_by_character():
    scores = score_texts(["我是助手"], ["我是好助手"])
    # 4 of 4 and 4 of 5 characters: F1 = 2 * 1 * 0.8 / 1.8; pairs 我是, 助手: 2 of 3 and 2 of 4
    assert scores["rouge-1"] == pytest.approx(100 * 1.6 / 1.8)
    assert scores["rouge-2"] == pytest.approx(100 * 2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    assert scores["rouge-l"] == pytest.approx(100 * 1.6 / 1.8)


def test_bleu_is_that_of_the_whole_set():
    # Row 1 is right (6 words), row 2 wrong (6 words): matches 6/12, 5/10, 4/8, 3/6, no length penalty.
    references = ["the cat sat on the mat", "we saw two big red dogs"]
    predictions = ["the cat sat on the mat", "zz yy xx ww vv uu"]
    assert score_texts(predictions, references)["bleu-4"] == pytest.approx(50)


def test_bleu_of_chinese_is_by_character():
    # 5 characters in common in a row of 6: 5/6, 4/5, 3/4, 2/3 -> fourth root of 1/3
    score = score_texts(["我爱北京好吗"], ["我爱北京好呢"])["bleu-4"]
    assert score == pytest.approx(100 * (1 / 3) ** 0.25)


@pytest.mark.parametrize(("predictions", "references"), [([], []), (["a"], ["a", "b"])])
def test_lists_that_cannot_be_compared_are_refused(predictions, references):
    with pytest.raises(ValueError, match=f"{len(predictions)} predictions and {len(references)} references"):
        score_texts(predictions, references)
