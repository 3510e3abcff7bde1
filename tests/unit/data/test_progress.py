import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tunesmith.data.progress import RowProgress, estimate_rows
from tunesmith.data.sources import DatasetSpec, read_rows

ROWS = [{"text": f"number {value:04d}"} for value in range(500)]


def spec_of(*files, **changes):
    return DatasetSpec(name="numbers", files=files, formatting="text", **changes)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def estimate(spec, max_rows=None):
    return estimate_rows(spec, next(read_rows(spec, 100)), max_rows)


def test_rows_of_text_files_are_estimated_from_their_size(lines):
    assert estimate(spec_of(lines)) == pytest.approx(500, rel=0.1)
    assert estimate(spec_of(lines, lines)) == pytest.approx(1000, rel=0.1)


def test_rows_of_parquet_files_are_known(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    assert estimate(spec_of(tmp_path / "rows.parquet")) == 500


def test_caps_samples_and_ranges_are_respected(lines):
    assert estimate(spec_of(lines), max_rows=7) == 7
    assert estimate(spec_of(lines, num_samples=900)) == 900
    assert estimate(spec_of(lines, first_row=10, last_row=30)) == 20


def test_arrow_files_do_not_tell(tmp_path):
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table)
    assert estimate(spec_of(tmp_path / "rows.arrow")) is None
    assert estimate(spec_of(tmp_path / "rows.arrow"), max_rows=3) == 3


def test_the_bar_shows_rate_and_time_left_and_ends_at_what_was_read(lines, capsys):
    spec = spec_of(lines)
    with RowProgress(spec, max_rows=None, shown=True, is_terminal=True) as progress:
        progress.expect(next(read_rows(spec, 100)))
        progress.advance(500)
    shown = capsys.readouterr().err
    assert "Preparing numbers" in shown
    assert "500/500" in shown
    assert "rows/s" in shown


def test_without_a_terminal_a_line_comes_now_and_then(lines, capsys, caplog, monkeypatch):
    spec, now = spec_of(lines), [0.0]
    monkeypatch.setattr("tunesmith.data.progress.time.monotonic", lambda: now[0])
    with (
        caplog.at_level("INFO", logger="tunesmith"),
        RowProgress(spec, max_rows=400, shown=True, is_terminal=False) as progress,
    ):
        progress.expect(next(read_rows(spec, 100)))
        for now[0] in (10.0, 31.0, 40.0, 62.0):
            progress.advance(100)
    assert caplog.messages == [f"Preparing numbers: {rows} of about 400 rows" for rows in (200, 400)]
    assert "\r" not in capsys.readouterr().err  # no bar


def test_other_processes_show_nothing(lines, capsys):
    with RowProgress(spec_of(lines), max_rows=None, shown=False) as progress:
        progress.expect([])
        progress.advance(3)
    assert capsys.readouterr().err == ""
