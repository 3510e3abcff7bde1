import numpy as np
import pytest

from tunesmith.data.account import DataReport, PackingReport, Tally, build_set_report, describe_dropped


def tally_of(read, used, reasons):
    tally = Tally(read=read)
    for _ in range(used):
        tally.use(set())
    for reason, shown in reasons:
        tally.drop(reason, shown)
    return tally


def test_tallies_add_up_and_keep_the_first_three_rows_of_each_reason():
    total = tally_of(4, 2, [("no answer", "a"), ("no answer", "b")])
    total.add(tally_of(4, 1, [("no answer", "c"), ("no answer", "d"), ("too long", "e")]))
    assert (total.read, total.used, total.dropped) == (8, 3, {"no answer": 4, "too long": 1})
    assert total.shown == {"no answer": ["a", "b", "c"], "too long": ["e"]}
    total.check("set")
    assert Tally(**total.to_dict()) == total


def test_a_lost_row_is_noticed():
    with pytest.raises(AssertionError, match="set: 5 rows read, but 2 used and 1 dropped"):
        tally_of(5, 2, [("no answer", "a")]).check("set")


def test_a_row_counts_once_for_each_thing_it_lost():
    tally = Tally()
    tally.use({"prompt_cut", "answer_cut"})
    tally.use({"prompt_cut"})
    assert tally.truncated == {"prompt_cut": 2, "answer_cut": 1}


def report_of(**changes):
    tally = tally_of(4, 3, [("no answer", "rows.json row 2")])
    tally.use({"answer_cut"})
    tally.read += 1
    lengths = np.array([1200, 10, 30, 20])
    return DataReport((build_set_report("poems", "train", tally, lengths, lengths - 5),), **changes)


def test_a_set_is_summed_up_with_its_lengths():
    (report,) = report_of().sets
    assert (report.read, report.used, report.examples) == (5, 4, 4)
    assert (report.tokens, report.trained_tokens) == (1260, 1240)
    assert report.length_quantiles == {"min": 10, "p50": 30, "p90": 1200, "p99": 1200, "max": 1200}


def test_the_report_reads_as_a_table_with_its_reasons():
    packing = PackingReport(packs=2, capacity=1000, tokens=1260, samples=4)
    text = report_of(packing=packing, max_samples=5, held_back_examples=1, train_examples=3).render()
    lines = text.splitlines()
    assert " ".join(lines[0].split()) == "data set use read used dropped tokens trained median longest"
    assert " ".join(lines[1].split()) == "poems train 5 4 1 1,260 1,240 30 1,200"
    assert lines[2:] == [
        "  dropped, no answer: 1 (rows.json row 2)",
        "  cut to the token limit: answer cut 1",
        "  max_samples: only the first 5 rows of each data set",
        "  held back for evaluation: 1 row; 3 left to train on",
        "  packed: 4 samples in 2 rows of 1,000 tokens, 63.0% full",
    ]


def test_one_row_is_no_rows():
    lines = report_of(max_samples=1, held_back_examples=2, train_examples=3).render().splitlines()
    assert lines[-2:] == [
        "  max_samples: only the first row of each data set",
        "  held back for evaluation: 2 rows; 3 left to train on",
    ]


def test_the_report_is_json():
    values = report_of(packing=PackingReport(packs=1, capacity=10, tokens=9, samples=3)).to_dict()
    assert values["packing"] == {"packs": 1, "capacity": 10, "tokens": 9, "samples": 3, "fill": 0.9}
    assert values["sets"][0]["dropped"] == {"no answer": 1}


def test_a_set_without_examples_has_no_lengths():
    nothing = np.zeros(0, dtype=np.int64)
    report = build_set_report("empty", "train", Tally(), nothing, nothing)
    assert (report.tokens, report.length_quantiles) == (0, {})
    assert PackingReport(packs=0, capacity=8, tokens=0, samples=0).fill == 0


def test_the_most_frequent_reason_comes_first():
    tally = tally_of(3, 0, [("rare", "x"), ("frequent", "y"), ("frequent", "z")])
    assert describe_dropped(tally) == "  frequent: 2 (y; z)\n  rare: 1 (x)"
