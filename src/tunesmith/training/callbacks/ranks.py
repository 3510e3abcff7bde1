"""What AdaLoRA does besides the steps of the optimizer: it moves ranks to the layers that use them."""

from typing import Any

import torch
from peft import AdaLoraConfig, PeftModel
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.errors import ConfigError
from tunesmith.models.adapters.wrapper import ADAPTER


class MoveRanks(TrainerCallback):
    """Allocates AdaLoRA's ranks and keeps its factors near to orthogonal (Zhang et al. 2023, equations 4 and 12).

    peft adds the penalty to a loss that the model itself computes. Here the loss is computed from hidden states, so the
    penalty's gradient is added before each step of the optimizer, once for all micro-batches and after clipping.
    """

    def __init__(self, model: PeftModel) -> None:
        self._model = model
        config = model.peft_config[ADAPTER]
        assert isinstance(config, AdaLoraConfig), "the callback is for AdaLoRA alone"
        self._config = config

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Tell the allocator how many steps there are."""
        config, steps = self._config, state.max_steps
        if config.target_r >= config.init_r:
            raise ConfigError(
                f"adapter_options: target_r is {config.target_r} and init_r {config.init_r}, so there is no rank to "
                "take away. Set init_r above target_r (half as much again is usual)."
            )
        if config.tinit >= steps - config.tfinal:
            raise ConfigError(
                f"adapter_options: with tinit {config.tinit} and tfinal {config.tfinal} a run of {steps} steps has "
                "none left in which ranks move. Lower them, or train longer."
            )
        config.total_step = steps
        self._model.base_model.rankallocator.set_total_step(steps)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Add the gradient of the penalty."""
        (self._config.orth_reg_weight * orthogonality_penalty(self._model)).backward()

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Move ranks by the gradients of this step; with the last one the ranks are final."""
        self._model.base_model.update_and_allocate(state.global_step + 1)


def orthogonality_penalty(model: torch.nn.Module) -> Tensor:
    """Return the mean distance of AdaLoRA's factors from orthogonal ones, in the Frobenius norm. A scalar."""
    distances = []
    for name, factor in model.named_parameters():
        if ".lora_A." in name or ".lora_B." in name:
            product = factor @ factor.t() if ".lora_A." in name else factor.t() @ factor
            distances.append(torch.linalg.matrix_norm(product - torch.eye(len(product), device=product.device)))
    return torch.stack(distances).mean()
