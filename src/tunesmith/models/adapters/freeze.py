"""Training some layers whole, and none of the others."""

from transformers import PreTrainedModel

from tunesmith.config import AdapterConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters.expand import expand_blocks, resolve_stride
from tunesmith.models.adapters.modules import find_layers, resolve_module_names, sorted_leaves
from tunesmith.models.reward.build import SCORE, is_reward_model


def apply_freeze(model: PreTrainedModel, config: AdapterConfig) -> list[str]:
    """Let only the chosen layers, and the chosen modules outside the layers, be trained.

    Returns:
        Notes for the plan.

    Raises:
        ModelError: More layers than there are, layers that cannot be spread evenly, or a module name that matches
            nothing.
    """
    notes = []
    if config.llama_pro_new_blocks:
        notes.append(expand_blocks(model, config.llama_pro_new_blocks))
    stack_name, layers = find_layers(model)
    wanted = config.freeze_trainable_layers
    if abs(wanted) > len(layers):
        raise ModelError(
            f"freeze_trainable_layers: {wanted}, but {type(model).__name__} has {len(layers)} layers. "
            f"Give a number from {-len(layers)} to {len(layers)}."
        )
    indices = range(len(layers) - wanted, len(layers)) if wanted >= 0 else range(-wanted)
    if config.use_llama_pro:
        indices = _spread(len(layers), wanted, type(model).__name__)
        notes.append(f"LLaMA Pro trains the layers {', '.join(map(str, indices))}")
    _check_inside(model, stack_name, config.freeze_trainable_modules)
    resolve_module_names(model, config.freeze_extra_modules, "freeze_extra_modules")
    # What is to be learnt by a reward model ends in its head, whichever layers are trained below it.
    extra = (*config.freeze_extra_modules, *([SCORE] if is_reward_model(model) else []))
    prefixes = {f"{stack_name}.{index}." for index in indices}
    for name, parameter in model.named_parameters():
        in_layers = name.startswith(f"{stack_name}.")
        if in_layers:
            chosen = any(name.startswith(prefix) for prefix in prefixes)
            parameter.requires_grad_(chosen and _is_within(name, config.freeze_trainable_modules))
        else:
            parameter.requires_grad_(_is_within(name, extra))
    return notes


def _spread(num_layers: int, wanted: int, name: str) -> range:
    """Return every so-many-th layer: where LLaMA Pro puts its blocks."""
    stride = resolve_stride("freeze_trainable_layers", wanted, num_layers, name)
    return range(stride - 1, num_layers, stride)


def _is_within(name: str, modules: tuple[str, ...]) -> bool:
    return "all" in modules or any(f".{module}." in f".{name}" for module in modules)


def _check_inside(model: PreTrainedModel, stack_name: str, modules: tuple[str, ...]) -> None:
    names = [name for name, _ in model.named_parameters() if name.startswith(f"{stack_name}.")]
    missing = [each for each in modules if each != "all" and not any(_is_within(name, (each,)) for name in names)]
    if missing:
        inside = [name for name, _ in model.named_modules() if name.startswith(f"{stack_name}.0.")]
        raise ModelError(
            f"freeze_trainable_modules: {', '.join(missing)} matches nothing inside the layers of "
            f"{type(model).__name__}. They have {', '.join(sorted_leaves(inside))}; 'all' means all of these."
        )
