"""Settings of the reference policy: what stages `dpo` and `kto` measure the policy against."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import PathText, PositiveInt

STAGES_WITH_REFERENCE = ("dpo", "kto")


@dataclass(frozen=True, kw_only=True)
class ReferenceConfig:
    """Which model the reference is, and when it is run.

    When nothing is set it is the model that training starts from, which costs no second model: the base without its
    adapter where the adapter is new, or else the trained weights as they were, kept beside the present ones.
    """

    ref_model: str | None = None
    """Another model as the reference: a folder, a GGUF file or a hub id.

    Costs its memory, and its tokens have to be those of `model_name_or_path`. With `precompute_reference` it is only
    there until its log-probabilities are computed."""

    ref_model_adapters: tuple[PathText, ...] = ()
    """Adapters that are merged into `ref_model`, in order."""

    ref_model_quantization_bit: PositiveInt | None = None
    """Compress the weights of `ref_model` to so many bits, as `quantization_bit` does those of the model.

    `quantization_method` and the settings beside it hold for both."""

    precompute_reference: Literal["auto"] | bool = "auto"
    """Compute the reference's log-probabilities of all rows once, before training, and keep them with prepared data.

    `auto` does so where it saves something: where rows are seen more than once, or where the reference is a model of
    its own, whose memory is then free. Not with `streaming: true`."""
