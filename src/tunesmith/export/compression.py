"""An exported model with its weights compressed, as quantisation-aware training prepared them."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, TorchAoConfig

from tunesmith.config import RunConfig
from tunesmith.errors import ConfigError, ModelError
from tunesmith.export.probe import measure_logits
from tunesmith.models.probe import relative_difference
from tunesmith.models.quantization.qat import CompressionScheme, check_groups, find_rounded

_TOLERANCE = 1e-3
"""Largest difference of logits between the compressed model in memory and reloaded, as a share of the largest."""


def find_scheme(config: RunConfig, folders: tuple[str, ...], *, is_reward: bool = False) -> CompressionScheme | None:
    """Return the scheme that an export compresses with, `None` where none is asked for.

    Args:
        config: Of the export.
        folders: Of the adapters and the model, what was trained last first.
        is_reward: Whether it is a reward model.

    Raises:
        ConfigError: Compression is asked for, and neither the settings nor the folders name a scheme, or the model is
            a reward model.
    """
    if not config.export.quantize:
        return None
    if is_reward:
        raise ConfigError("quantize: true compresses language models, and this is a reward model. Remove quantize.")
    found = CompressionScheme.of(config.quantization)
    for folder in folders:
        found = found or CompressionScheme.read(folder)
    if found is None:
        raise ConfigError(
            "quantize: true needs a scheme, and the model was not trained for one. Set qat, for example "
            "qat: int4-weight; weights that were not trained for it lose more."
        )
    return found


def find_exact_layers(model: PreTrainedModel, scheme: CompressionScheme) -> tuple[str, ...]:
    """Return the names of the linear layers that stay exact: those that did not round in training, such as the head.

    Raises:
        ModelError: A layer cannot be compressed in this scheme.
    """
    compressed = find_rounded(model)
    check_groups(compressed, scheme)
    linears = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
    return tuple(name for name in linears if name not in compressed)


def compress_folder(
    folder: Path,
    scheme: CompressionScheme,
    probe: Tensor,
    *,
    exact_layers: Sequence[str],
    shard_size: str,
    trust_remote_code: bool = False,
) -> None:
    """Replace the weights in an exported folder by compressed ones, and check that they load again.

    Args:
        folder: A whole model with exact weights.
        scheme: How it was trained to be compressed.
        probe: Token ids to compare by. Shape [1, tokens].
        exact_layers: Names of linear layers that are left as they are.
        shard_size: Largest size of one weight file, such as `5GB`.
        trust_remote_code: Whether the model's own code may run.

    Raises:
        ModelError: The compressed model gives other logits after loading.
    """
    options = {"dtype": "auto", "trust_remote_code": trust_remote_code, "device_map": {"": "cpu"}}
    settings = TorchAoConfig(scheme.build(), modules_to_not_convert=list(exact_layers))
    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=settings, **options)
    expected = measure_logits(model, probe)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        model.save_pretrained(beside, max_shard_size=shard_size)
        del model
        for exact in folder.glob("*.safetensors*"):
            exact.unlink()
        for file in Path(beside).iterdir():
            shutil.move(file, folder / file.name)
    reloaded = AutoModelForCausalLM.from_pretrained(folder, **options)
    difference = relative_difference(measure_logits(reloaded, probe), expected)
    if not difference <= _TOLERANCE:
        raise ModelError(
            f"quantize: the compressed model gives other logits after loading (by {difference:.2g} of their range), so "
            "it was removed. Update torchao and transformers, or export without quantize."
        )
