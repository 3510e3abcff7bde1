import pytest

from tunesmith.data.loading.samplers import RandomSampler, SequentialSampler
from tunesmith.errors import ConfigError
from tunesmith.training.assembly import assemble_trainer
from tunesmith.training.callbacks.last_line import LastLine
from tunesmith.training.callbacks.samples import SamplePrinter


@pytest.mark.parametrize(
    ("settings", "strategy", "sampler"),
    [
        ({}, "random", RandomSampler),
        ({"disable_shuffling": True}, "sequential", SequentialSampler),
        ({"train_sampling_strategy": "sequential"}, "sequential", SequentialSampler),
    ],
)
def test_rows_come_in_the_order_that_is_asked_for(make_parts, settings, strategy, sampler):
    plan = assemble_trainer(make_parts(**settings), None).trainer.plan
    assert plan.order.strategy == strategy
    assert isinstance(plan.sampler, sampler)


def test_the_older_name_for_grouping_by_length_works(make_parts):
    assert assemble_trainer(make_parts(group_by_length=True), None).trainer.plan.order.strategy == "group_by_length"


def test_rows_are_shuffled_by_their_own_seed(make_parts):
    order = {seed: list(assemble_trainer(make_parts(data_seed=seed), None).trainer.plan.sampler) for seed in (1, 2)}
    assert order[1] != order[2]
    assert assemble_trainer(make_parts(data_seed=1), None).trainer.plan.order.seed == 1


def test_the_tokens_of_all_rows_tell_them_from_others(make_parts):
    parts = make_parts()
    tokens = sum(len(row["input_ids"]) for row in parts.data.train)
    assert assemble_trainer(parts, None).trainer.plan.order.num_tokens == tokens


def test_each_run_has_an_id_of_its_own(make_parts):
    parts = make_parts()
    assert assemble_trainer(parts, None).trainer.plan.run_id != assemble_trainer(parts, None).trainer.plan.run_id


def printer_of(assembled):
    return next(item for item in assembled.trainer.callback_handler.callbacks if isinstance(item, SamplePrinter))


def test_samples_are_rows_that_are_held_back_with_their_answers(make_parts):
    prompts = printer_of(assemble_trainer(make_parts(sample_steps=2, val_size=2), None))._prompts
    assert len(prompts) == 2
    assert all(prompt.answer for prompt in prompts)
    assert all(prompt.text.rstrip().endswith("assistant") for prompt in prompts)


def test_questions_of_the_user_are_rendered_as_in_chat(make_parts):
    parts = make_parts(sample_steps=2, sample_prompts=["Who are you?"])
    (prompt,) = printer_of(assemble_trainer(parts, None))._prompts
    text = parts.tokenizer.decode(prompt.ids)
    assert text.endswith("<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n")
    assert prompt.answer is None


def test_the_decision_to_stop_comes_last(make_parts):
    assembled = assemble_trainer(make_parts(callbacks="transformers:DefaultFlowCallback"), None)
    *_, before, last = assembled.trainer.callback_handler.callbacks
    assert last is assembled.interruption
    assert isinstance(before, LastLine)


def test_padding_is_learnt_only_when_asked_for(make_parts):
    for ignores in (True, False):
        parts = make_parts(padding_free=False, ignore_pad_token_for_loss=ignores)
        assert assemble_trainer(parts, None).trainer.data_collator.ignore_pad_token_for_loss is ignores


def test_a_place_for_tensorboard_that_takes_nothing_is_named_before_the_first_step(make_parts, tmp_path):
    (tmp_path / "board").touch()
    parts = make_parts(report_to="tensorboard", logging_dir=str(tmp_path / "board" / "run"))
    with pytest.raises(ConfigError, match=r"`logging_dir` is .*, and nothing can be written to"):
        assemble_trainer(parts, None)
