import json

from tests.unit.data.runs import question, small_run, write_sets
from tunesmith.data.inspection.report import inspect_data


def inspect(run, **options):
    return inspect_data(run.prepare(), run.tokenizer, run.template.end_markers if run.template else (), **options)


def test_a_clean_set_has_no_warnings(tmp_path):
    write_sets(tmp_path, {"sums": [question(number) for number in range(5)]})
    found = inspect(small_run(tmp_path, "sums"))
    assert found.warnings == ()
    assert (found.duplicates.count, found.shared_with_evaluation, found.stripped) == (0, 0, {})
    assert sum(found.histogram.counts) == 5
    assert json.loads(json.dumps(found.to_dict()))["length_histogram"]["width"] == found.histogram.width


def test_repeated_rows_are_shown_by_their_numbers(tmp_path):
    write_sets(tmp_path, {"one": [question(1), question(2), question(1)], "two": [question(2), question(4)]})
    found = inspect(small_run(tmp_path, "one,two"))
    assert found.duplicates.count == 2
    assert found.to_dict()["duplicates"] == {"count": 2, "shown": [[1, 3], [2, 4]]}
    assert "  2 are equal to one before them; the first: rows 1, 3; 2, 4" in found.render()


def test_empty_answers_are_counted_and_warned_of(tmp_path):
    write_sets(tmp_path, {"sums": [question(1), question(2, ""), question(3, " \n")]})
    found = inspect(small_run(tmp_path, "sums"))
    (report,) = found.account.sets
    assert (report.used, report.empty_answers) == (3, 2)
    assert report.empty_shown == ["sums.jsonl row 2", "sums.jsonl row 3"]
    assert "sums: 2 rows have an empty answer" in found.warnings[0]
    assert "  empty answers: 2 (sums.jsonl row 2; sums.jsonl row 3)" in found.render()


def test_more_than_one_percent_of_cut_answers_is_worth_a_warning(tmp_path):
    rows = [question(number) for number in range(99)]
    write_sets(
        tmp_path, {"good": [*rows, question(100, "word " * 90)], "bad": [*rows[:98], *[question(5, "w " * 90)] * 2]}
    )
    assert inspect(small_run(tmp_path, "good", cutoff_len=64)).warnings == ()
    (warning,) = inspect(small_run(tmp_path, "bad", cutoff_len=64)).warnings
    assert warning.startswith("bad: 2 of 100 answers (2.0%) are cut")


def test_special_tokens_in_answers_are_warned_of(tmp_path):
    write_sets(tmp_path, {"texts": [{"text": "a <tool> b"}, {"text": "c"}]}, formatting="text")
    found = inspect(small_run(tmp_path, "texts", stage="pt"))
    assert found.stripped["<tool>"] == 1
    assert any("1 examples teach the special token <tool> inside an answer" in text for text in found.warnings)


def test_rows_on_both_sides_of_the_evaluation_are_warned_of(tmp_path):
    write_sets(tmp_path, {"one": [question(1), question(2)], "two": [question(2), question(3)]})
    found = inspect(small_run(tmp_path, "one", eval_dataset="two", do_eval=True))
    assert found.shared_with_evaluation == 1
    assert "1 examples to evaluate on are also trained on" in found.warnings[0]


def test_the_share_of_learnt_tokens_is_given_for_each_set(tmp_path):
    write_sets(tmp_path, {"sums": [question(1)]})
    found = inspect(small_run(tmp_path, "sums"), further_warnings=["mind the gap"])
    (report,) = found.account.sets
    share = f"{report.trained_tokens / report.tokens:.1%}"
    assert f"{report.trained_tokens} of {report.tokens} tokens, {share}" in found.render()
    assert found.render().endswith("Warnings\n  - mind the gap")


def test_a_run_that_only_evaluates_has_a_report_too(tmp_path):
    write_sets(tmp_path, {"one": [question(1)]})
    found = inspect(small_run(tmp_path, None, eval_dataset="one", do_train=False, do_eval=True, max_steps=None))
    assert found.histogram.counts == (0,)
    assert found.duplicates.count == 0
