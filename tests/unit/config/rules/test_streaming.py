import pytest


def test_a_stream_with_a_length_is_taken(problems):
    assert problems(streaming=True, max_steps=5) == []
    assert problems(streaming=True, max_steps=5, num_train_epochs=1, packing=True, buffer_size=10) == []
    assert problems(streaming=True, do_train=False, do_eval=True, eval_dataset="other") != [
        "streaming: `streaming: true` does not know the number of rows, so the run has no length; set `max_steps`."
    ]


@pytest.mark.parametrize("settings", [{}, {"num_train_epochs": 2}])
def test_a_stream_without_a_number_of_steps_is_refused(problems, settings):
    assert problems(streaming=True, **settings) == [
        "streaming: `streaming: true` does not know the number of rows, so the run has no length; set `max_steps`."
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"val_size": 5}, "`val_size: 5` chooses among all rows"),
        ({"max_samples": 5}, "`max_samples: 5` takes the first rows"),
        ({"tokenized_path": "some/folder"}, "`tokenized_path: some/folder` keeps prepared rows"),
        ({"group_by_length": True}, "`group_by_length: true` sorts by the lengths of all rows"),
        (
            {"train_sampling_strategy": "group_by_length"},
            "`train_sampling_strategy: group_by_length` sorts by the lengths of all rows",
        ),
    ],
)
def test_what_needs_all_rows_is_refused(problems, settings, message):
    (found,) = problems(streaming=True, max_steps=5, **settings)
    assert message in found
    assert problems(**settings) == []


def test_batches_that_go_by_length_need_lengths(problems):
    (found,) = problems(streaming=True, max_steps=5, per_device_train_batch_size="auto")
    assert "tries the longest rows, which nobody knows" in found
    (found,) = problems(streaming=True, max_steps=5, tokens_per_device_batch=1000)
    assert "set `packing: true` instead" in found
