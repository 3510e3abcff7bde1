import pytest

from tunesmith.config import load_config
from tunesmith.config.objective import STAGES
from tunesmith.config.starter import render_starter
from tunesmith.errors import ConfigError


@pytest.mark.parametrize("stage", STAGES)
def test_a_starting_file_has_only_its_model_and_rows_to_fill_in(stage, folder):
    (folder / "run.yaml").write_text(render_starter(stage))
    config = load_config("run.yaml", ["dataset=identity"], environ={})
    assert config.objective.stage == stage


def test_another_stage_is_refused():
    with pytest.raises(
        ConfigError, match="there is no stage 'ppo' to start with; allowed is pt or sft or rm or dpo or kto"
    ):
        render_starter("ppo")
