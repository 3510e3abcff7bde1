import pytest

from tests.unit.data.runs import question, small_run, write_sets
from tunesmith.data.streaming.preparation import build_options, open_stream, report_streams
from tunesmith.data.streaming.source import StreamSource
from tunesmith.errors import DataError


@pytest.fixture
def folder(tmp_path):
    write_sets(tmp_path, {"sums": [question(number) for number in range(8)], "more": [question(9)]})
    return tmp_path


def run_in(folder, dataset="sums", **settings):
    return small_run(folder, dataset, streaming=True, **settings)


def test_settings_decide_how_rows_are_streamed(folder):
    options = build_options(run_in(folder, buffer_size=50, seed=7).config)
    assert (options.seed, options.is_shuffled, options.buffer_size, options.window_rows) == (7, True, 50, 50)
    assert (options.packing, options.capacity, options.epochs) == ("none", 2048, None)
    other = run_in(folder, data_seed=3, disable_shuffling=True, packing=True, num_train_epochs=1.5, cutoff_len=64)
    options = build_options(other.config)
    assert (options.seed, options.is_shuffled, options.packing) == (3, False, "whole")
    assert (options.window_rows, options.capacity, options.epochs) == (1000, 64, 2)
    assert build_options(run_in(folder, stage="pt").config).packing == "cut"
    mixed = run_in(folder, "sums,more", mix_strategy="interleave_over", interleave_probs="0.7,0.3")
    assert build_options(mixed.config).mixing.probabilities == (0.7, 0.3)


def test_the_rows_of_all_data_sets_come(folder):
    run = run_in(folder, "sums,more", num_train_epochs=1)
    source = open_stream(run.config, run.preparation)
    assert len(source.peek(100)) == 9
    assert [(report.name, report.files) for report in report_streams(source)] == [("sums", 1), ("more", 1)]
    assert report_streams(source)[0].render().startswith("  sums: read as it comes from 1 file, 0.0 MB")


def test_a_data_set_without_rows_is_refused(folder):
    (folder / "more.jsonl").write_text("\n\n")
    run = run_in(folder, "sums,more")
    with pytest.raises(DataError, match=r"data set 'more' has no rows: .*more\.jsonl"):
        open_stream(run.config, run.preparation)


def test_an_unknown_data_set_is_refused(folder):
    run = run_in(folder, "sums")
    write_sets(folder, {"other": [question(1)]})
    (folder / "sums.jsonl").unlink()
    with pytest.raises(DataError, match="data set 'sums'"):
        open_stream(run.config, run.preparation)


def test_rows_without_anything_to_learn_are_refused(folder, monkeypatch):
    run = run_in(folder)
    peek = StreamSource.peek

    def peek_without_labels(source, count):
        return [{**item, "trained_spans": item["trained_spans"][:0]} for item in peek(source, count)]

    monkeypatch.setattr(StreamSource, "peek", peek_without_labels)
    with pytest.raises(DataError, match="Not one token to train on is in the first 8 rows"):
        open_stream(run.config, run.preparation)
