"""Single weights are read from the files of a model, in one piece or in shards."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.config import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models import stored_weights
from tunesmith.models.locations import ModelLocation
from tunesmith.models.stored_weights import StoredWeights, find_folder


@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_a_weight_is_read_by_its_name(tmp_path, shard):
    model = tiny_model("llama")
    model.save_pretrained(tmp_path, max_shard_size=shard)
    name = "model.layers.1.mlp.up_proj.weight"
    with StoredWeights(tmp_path) as stored:
        assert torch.equal(stored.read(name), model.state_dict()[name])
        with pytest.raises(ModelError, match=r"the exact weight model\.nothing is not among the safetensors files"):
            stored.read("model.nothing")


def test_a_model_of_a_hub_is_found_in_the_cache(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(stored_weights, "snapshot_download", lambda name, **options: asked.update(options) or tmp_path)
    config = ModelConfig(model_name_or_path="org/a", cache_dir="cache", model_revision="v2")
    assert find_folder(ModelLocation("hub", "org/a", None), config) == tmp_path
    assert asked == {"revision": "v2", "cache_dir": "cache", "local_files_only": True}
    assert find_folder(ModelLocation("folder", "x", tmp_path), config) == tmp_path
