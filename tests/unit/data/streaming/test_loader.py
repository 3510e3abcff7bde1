import json
import os
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tests.unit.data.streaming.sources import text_source
from tunesmith.data.collators import build_collator
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.errors import CheckpointError
from tunesmith.runtime.ranks import Ranks

COLLATE = build_collator("padded", pad_token_id=417)


@pytest.fixture
def spec(tmp_path):
    return text_spec(*[write_file(tmp_path / f"{name}.jsonl", rows_of(9), kind=".jsonl") for name in "abcd"])


def loader_of(source, *, ranks=None, batch_size=2, **options):
    return StreamLoader(source, COLLATE, batch_size=batch_size, ranks=ranks or Ranks(), **options)


def take(loader, count):
    taken = []
    for batch in islice(loader, count):
        loader.advance(batch)
        taken.append((batch["row_ids"].tolist(), batch["input_ids"].tolist()))
    return taken


def is_filler(batch):
    return batch["stream_place"].is_filler


@pytest.mark.parametrize("packing", ["none", "whole", "cut"])
@pytest.mark.parametrize("stop", [0, 1, 5, 17, 30])
def test_going_on_gives_the_very_next_batch(spec, packing, stop):
    source = text_source(spec, packing=packing)
    whole = take(loader_of(source), 40)
    loader = loader_of(source)
    take(loader, stop)
    saved = json.loads(json.dumps(loader.state()))
    other = loader_of(source)
    other.load(saved)
    assert take(other, 40 - stop) == whole[stop:]


def test_processes_read_disjoint_rows(spec):
    source = text_source(spec, epochs=1)
    seen = []
    for rank in range(2):
        loader = loader_of(source, ranks=Ranks(rank, rank, 2, 2))
        for batch in loader:
            if is_filler(batch):
                break
            seen += batch["row_ids"].tolist()
    assert len(seen) == len(set(seen)) == 36


def test_a_stream_that_ends_gives_fillers_without_labels(spec):
    loader = loader_of(text_source(spec, epochs=1), batch_size=5)
    batches = list(islice(loader, 10))
    assert [loader.advance(batch) for batch in batches] == [True] * 8 + [False] * 2
    assert [len(batch["row_ids"]) for batch in batches[:8]] == [5] * 7 + [1]
    assert [is_filler(batch) for batch in batches] == [False] * 8 + [True] * 2
    assert (batches[-1]["labels"] == -100).all()
    assert loader.progress == 1


def test_the_last_rows_can_be_left_out(spec):
    batches = islice(loader_of(text_source(spec, epochs=1), batch_size=5, drop_last=True), 9)
    assert [is_filler(batch) for batch in batches] == [False] * 7 + [True] * 2


def test_packed_fillers_are_packed(spec):
    loader = loader_of(text_source(spec, packing="cut", epochs=1), batch_size=5)
    filler = next(batch for batch in loader if is_filler(batch))
    assert "position_ids" in filler


def test_what_became_of_the_rows_is_known_while_it_goes(spec):
    loader = loader_of(text_source(spec))
    take(loader, 3)
    assert loader.tallies[0].read >= 4
    other = loader_of(text_source(spec))
    other.load(loader.state())
    assert take(other, 2)
    assert other.tallies[0].read >= 8


def test_another_stream_is_refused_with_the_differences(spec):
    state = loader_of(text_source(spec)).state()
    with pytest.raises(CheckpointError, match=r"buffer_size was 10 and is 11"):
        loader_of(text_source(spec, buffer_size=11)).load(state)
    with pytest.raises(CheckpointError, match=r"processes was 1 and is 2"):
        loader_of(text_source(spec), ranks=Ranks(0, 0, 2, 2)).load(state)
    with spec.files[0].open("a") as file:
        file.write('{"text": "more"}\n')
    with pytest.raises(
        CheckpointError, match=r"data set texts: file 1 was 'a.jsonl' \([\d,]+ bytes\) and is 'a.jsonl' "
    ):
        loader_of(text_source(spec)).load(state)


def test_a_changed_entry_of_a_data_set_is_refused_with_what_changed(spec):
    state = json.loads(json.dumps(loader_of(text_source(spec)).state()))
    loader_of(text_source(spec)).load(state)

    def refused(**changes):
        with pytest.raises(CheckpointError) as caught:
            loader_of(text_source(replace(spec, **changes))).load(state)
        return str(caught.value)

    assert "\n  data set texts: columns.query was not there and is 'text'\n" in refused(
        columns=replace(spec.columns, query="text")
    )
    assert "data set texts: tags.user_tag was 'human' and is 'user'" in refused(
        tags=replace(spec.tags, user_tag="user")
    )
    assert "data set other: name was 'texts' and is 'other'" in refused(name="other")
    assert "data set texts: number of files was 4 and is 3" in refused(files=spec.files[1:])
    assert "data set texts: row_variables was {} and is {'name': 'Ada'}" in refused(row_variables=(("name", "Ada"),))
    assert "data set texts: turn_order_policy was 'merge'" in refused(turn_order_policy="error")
    with pytest.raises(CheckpointError, match="there were 1 data sets and are 2"):
        loader_of(text_source(spec, replace(spec, name="more"))).load(state)


def test_of_many_changed_files_the_first_are_named(tmp_path):
    files = [write_file(tmp_path / f"{number}.jsonl", rows_of(1), kind=".jsonl") for number in range(12)]
    state = loader_of(text_source(text_spec(*files))).state()
    with pytest.raises(CheckpointError) as caught:
        loader_of(text_source(text_spec(*reversed(files)))).load(state)
    assert str(caught.value).count("data set texts: file ") == 8
    assert "data set texts: and 4 more" in str(caught.value)


def test_an_edit_that_keeps_the_size_is_refused_and_a_copy_is_not(spec, tmp_path, caplog):
    state = json.loads(json.dumps(loader_of(text_source(spec)).state()))
    (tmp_path / "moved").mkdir()
    copies = [Path(shutil.copy(file, tmp_path / "moved")) for file in spec.files]
    os.utime(copies[0], ns=(1, 1))
    copied = loader_of(text_source(replace(spec, name="moved/texts", files=tuple(copies))))
    copied.load(state)
    assert "of the files that are streamed were copied, or written after the checkpoint" in caplog.text
    assert take(copied, 3) == take(loader_of(text_source(spec)), 3)
    content = copies[0].read_bytes()
    copies[0].write_bytes(content.replace(b"row", b"ROW", 1))
    with pytest.raises(CheckpointError, match=r"file 1 is 'a.jsonl' \([\d,]+ bytes\) as it was, with other content"):
        loader_of(text_source(replace(spec, files=tuple(copies)))).load(state)


def test_files_as_they_were_give_no_notice(spec, caplog):
    loader_of(text_source(spec)).load(loader_of(text_source(spec)).state())
    assert not caplog.text


def test_who_was_stopped_by_a_bad_row_goes_on_without_it(spec):
    stopping = replace(spec, bad_rows="error", turn_order_policy="error")
    state = loader_of(text_source(stopping)).state()
    loader_of(text_source(replace(spec, bad_rows="skip", turn_order_policy="skip"))).load(state)


def test_a_checkpoint_whose_rows_were_shared_out_among_workers_is_refused(spec):
    state = loader_of(text_source(spec)).state()
    old = {"fingerprint": state["fingerprint"], "received": 0, "streams": [None]}
    with pytest.raises(CheckpointError, match="still depended on the number of workers"):
        loader_of(text_source(spec)).load(old)


def test_what_was_fetched_and_not_used_comes_again(spec):
    loader = loader_of(text_source(spec))
    first = take(loader, 2)
    list(islice(loader, 7))
    assert first + take(loader, 3) == take(loader_of(text_source(spec)), 5)


def test_rows_of_a_batch_can_be_had_once_more(spec):
    for batch in islice(loader_of(text_source(spec, packing="whole")), 5):
        again = COLLATE(batch["stream_place"].items)
        assert again["input_ids"].tolist() == batch["input_ids"].tolist()
