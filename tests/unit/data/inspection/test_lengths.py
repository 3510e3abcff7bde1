import numpy as np
import pytest

from tunesmith.data.inspection.lengths import build_histogram, draw_histogram


def test_bins_are_round_and_every_row_is_in_one():
    histogram = build_histogram(np.array([0, 4, 5, 9, 10, 99]))
    assert histogram.width == 5
    assert len(histogram.counts) == 20
    assert histogram.counts[:3] == (2, 2, 1)
    assert histogram.counts[19] == 1


@pytest.mark.parametrize(("longest", "width"), [(0, 1), (19, 1), (20, 2), (39, 2), (40, 5), (199, 10), (131072, 10000)])
def test_the_width_is_the_smallest_round_one_with_twenty_bins_at_most(longest, width):
    histogram = build_histogram(np.array([longest]))
    assert histogram.width == width
    assert len(histogram.counts) <= 20
    assert sum(histogram.counts) == 1


def test_no_rows_make_an_empty_histogram():
    assert build_histogram(np.zeros(0, dtype=np.int64)).counts == (0,)


def test_the_text_has_a_bar_for_each_bin_and_none_for_an_empty_one():
    text = build_histogram(np.array([1] * 100 + [3])).render()
    assert text.splitlines() == [
        "  from        rows",
        "     0           0",
        f"     1         100  {'#' * 50}",
        "     2           0",
        "     3           1  #",
    ]


def test_the_picture_is_a_png(tmp_path):
    draw_histogram(build_histogram(np.array([5, 90, 200])), 128, tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
