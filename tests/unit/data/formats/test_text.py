from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats import build_format
from tunesmith.data.records import Document, Dropped

convert = build_format(spec_of("text"), "pt")


def test_a_row_is_a_document_with_its_space_kept():
    assert convert({"text": " a\n"}) == Document(" a\n")


def test_empty_and_missing_texts_are_dropped_and_others_named():
    assert convert({"text": " \n"}) == Dropped("no text")
    assert convert({}) == convert({"text": None}) == Dropped("column is missing")
    assert convert({"text": 3}).detail == "text: expected text, found a number (3)"
