import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunesmith.config import Origin, RunConfig, load_config
from tunesmith.config.coercion import Boolean, ListOf, MappingOf, Number, Text, Words
from tunesmith.config.files import parse_yaml
from tunesmith.config.sections import split_sections
from tunesmith.config.settings import all_settings
from tunesmith.config.settle import settle_entries


def test_a_saved_configuration_loads_to_an_equal_one(load, folder):
    (folder / "out" / "checkpoint-1").mkdir(parents=True)
    config = load(
        learning_rate="1e-5",
        warmup_steps=0.5,
        lora_target="q_proj,v_proj",
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr": "1e-6"},
        dataset_info={"a": {"file_name": "a.json", "columns": {"prompt": "no"}}},
        default_system="null: 你好\n#x",
        run_name="1e-4",
        sample_steps=5,
        sample_prompts=["Who, are you?"],
        bf16=False,
        resume_from_checkpoint=True,
        output_dir="out",
    )
    (folder / "saved.yaml").write_text(config.to_yaml(), encoding="utf-8")
    assert load_config("saved.yaml", environ={}, purpose="read") == config


def strategy_for(kind):
    if isinstance(kind, Words):
        return st.sampled_from(kind.words)
    if isinstance(kind, Boolean):
        return st.booleans()
    if isinstance(kind, Number):
        low = 0 if kind.allowed.low is None else kind.allowed.low
        high = low + 1000 if kind.allowed.high is None else kind.allowed.high
        numbers = st.integers(int(low), int(high)) if kind.whole else st.floats(low, high)
        return numbers.filter(kind.allowed.contains)
    if isinstance(kind, ListOf):
        return st.lists(strategy_for(kind.item), max_size=3)
    if isinstance(kind, MappingOf):
        return st.dictionaries(
            st.text("abc", min_size=1), st.text("0xy", min_size=1).filter(lambda text: "0" not in text)
        )
    assert isinstance(kind, Text)
    texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufeff\ufffe\uffff"))
    return texts.filter(lambda text: not (kind.is_path and text.startswith("~")))  # a home folder, or nobody's


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_value_of_any_setting_survives_saving(tmp_path, data):
    key = data.draw(st.sampled_from([key for key, setting in all_settings().items() if not setting.secret]))
    setting = all_settings()[key]
    value = data.draw(st.one_of([strategy_for(kind) for kind in setting.kinds]))
    typed = setting.convert(value)
    group = type(getattr(RunConfig(), setting.group))(**{key: typed})
    config = RunConfig(**{setting.group: group}, origins={key: Origin("override", key)})
    entries, _, _ = split_sections(parse_yaml(config.to_yaml(), "saved.yaml"))
    settled = settle_entries(entries)
    assert settled.problems == []
    assert settled.values[key] == typed


def test_whole_numbers_are_saved_without_a_fraction(load):
    assert "num_train_epochs: 2\n" in load(num_train_epochs=2.0).to_yaml()


def test_values_set_to_their_default_are_saved_and_others_are_not(load):
    flat = load(cutoff_len=2048).to_flat()
    assert flat["cutoff_len"] == 2048
    assert "lora_rank" not in flat
    assert {"stage", "finetuning_type", "template", "do_train", "seed"} <= set(flat)


def test_two_configurations_are_equal_when_their_values_are():
    assert RunConfig(origins={"seed": Origin("file", "a.yaml:1")}) == RunConfig()


def test_a_configuration_cannot_be_changed():
    with pytest.raises(AttributeError):
        RunConfig().training.seed = 3


def test_packing_goes_by_the_stage_when_not_set(load):
    assert load(stage="pt").packs is True
    assert load(stage="sft").packs is False
    assert load(packing=True).packs is True
