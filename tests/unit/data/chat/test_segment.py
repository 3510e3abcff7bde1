from tunesmith.data.chat.segment import Segment


def test_a_segment_is_text_flag_and_place():
    text, trained, message_index = Segment("A<e>", True, 3)
    assert (text, trained, message_index) == ("A<e>", True, 3)
