import pytest

from tunesmith.data.chat.prefixes import Ending, segments_by_prefix
from tunesmith.data.chat.render import RenderingRefusedError

MESSAGES = [{"role": role, "content": content} for role, content in [("u", "Q"), ("a", "A"), ("u", "R"), ("a", "B")]]
ENDING = Ending("]", "\n")


def plain(messages, add, answer=0):
    return "".join(f"[{m['role']}:{m['content']}]\n" for m in messages) + ("[a:" if add else "")


def test_one_row_holds_all_answers_when_every_prefix_is_stable():
    (row,) = segments_by_prefix(plain, MESSAGES, [1, 3], ENDING)
    assert [tuple(segment) for segment in row] == [
        ("[u:Q]\n[a:", False, 1),
        ("A]", True, 1),
        ("\n[u:R]\n[a:", False, 3),
        ("B]", True, 3),
        ("\n", False, 3),
    ]


def test_one_row_per_answer_when_a_prefix_changes():
    def numbered(messages, add, answer):  # every turn says how many there are
        return plain(
            [{**m, "content": f"{len(messages) if m['role'] == 'u' and not add else 0}"} for m in messages], add
        )

    with pytest.raises(RenderingRefusedError, match="is not how the conversation begins: message 2"):
        segments_by_prefix(numbered, MESSAGES, [1, 3], ENDING)

    def shouting(messages, add, answer):  # earlier answers are in capitals
        last = len(messages) - 1
        return plain(
            [
                {**m, "content": m["content"] * 2 if m["role"] == "a" and place < last else m["content"]}
                for place, m in enumerate(messages)
            ],
            add,
        )

    rows = segments_by_prefix(shouting, MESSAGES, [1, 3], ENDING)
    assert ["".join(segment.text for segment in row) for row in rows] == [
        "[u:Q]\n[a:A]\n",
        "[u:Q]\n[a:AA]\n[u:R]\n[a:B]\n",
    ]
    assert [[segment.text for segment in row if segment.trained] for row in rows] == [["A]"], ["B]"]]


def test_answer_without_end_marker_is_refused():
    with pytest.raises(RenderingRefusedError, match="does not close the answer: message 2"):
        segments_by_prefix(lambda messages, add, answer: plain(messages, add).rstrip("]\n"), MESSAGES[:2], [1], ENDING)


def test_answer_that_is_not_printed_is_refused():
    def mute(messages, add, answer):
        return plain([m for m in messages if m["role"] == "u"], False)

    with pytest.raises(RenderingRefusedError, match="does not print every answer"):
        segments_by_prefix(mute, MESSAGES[:2], [1], ENDING)


def test_a_marker_that_is_not_printed_is_put_behind_the_answer():
    def open_ended(messages, add, answer):
        return "".join(f"[{m['role']}:{m['content']}\n" for m in messages) + ("[a:" if add else "")

    rows = segments_by_prefix(open_ended, MESSAGES, [1, 3], Ending("</s>", "\n", is_printed=False))
    assert ["".join(segment.text for segment in row) for row in rows] == [
        "[u:Q\n[a:A</s>\n",
        "[u:Q\n[a:A\n[u:R\n[a:B</s>\n",
    ]
    assert [[segment.text for segment in row if segment.trained] for row in rows] == [["A</s>"], ["B</s>"]]

    def mute(messages, add, answer):
        return open_ended([m if m["role"] == "u" else {**m, "content": ""} for m in messages], add, answer)

    with pytest.raises(RenderingRefusedError, match="does not print every answer: message 2"):
        segments_by_prefix(mute, MESSAGES[:2], [1], Ending("</s>", "\n", is_printed=False))
