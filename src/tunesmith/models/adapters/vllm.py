"""Whether vLLM can serve a saved adapter, and what it has to be told for that.

vLLM reads peft's folders by code of its own (`vllm/lora/peft_helper.py` and `lora_model.py`), which knows plain LoRA.
It refuses some things when the first request comes, and computes others wrongly without a word.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from peft import PeftModel
from peft.utils import PeftType, get_peft_model_state_dict
from safetensors import safe_open

from tunesmith.config.peft_methods import PEFT_METHODS, SAVED_WITHOUT_BEGINNING
from tunesmith.models.adapters.wrapper import ADAPTER, KeptAdapter, widened_config
from tunesmith.models.locations import read_adapter_file

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that its option `--max-lora-rank` takes."""

_DEFAULT_RANK = 16

_KNOWN = (".lora_A.weight", ".lora_B.weight", ".lora_embedding_A", ".lora_embedding_B", ".base_layer.weight")
"""How names of weights end that it reads, or passes over: peft saves the matrix under an adapted embedding too."""

_VARIANTS = ("use_qalora", "use_bdlora", "alora_invocation_tokens", "arrow_config", "layer_replication")
"""Options of peft's LoRA that change what is computed, and that it does not read."""


@dataclass(frozen=True, slots=True)
class VllmVerdict:
    """What vLLM makes of one adapter."""

    obstacles: tuple[str, ...] = ()
    """Why it would refuse the adapter, or compute something else with it."""

    cautions: tuple[str, ...] = ()
    """What it has to be told, or what only some of its versions can do."""

    can_be_merged: bool = True
    """Whether there is a merged model to serve instead."""

    def render_note(self) -> str:
        """Return a sentence for the plan of a run; empty where the adapter can be served."""
        if not self.obstacles:
            return ""
        way_out = "serve the merged model of `tunesmith export`" if self.can_be_merged else "nor can it be merged"
        return f"vLLM will not be able to serve this adapter: {'; '.join(self.obstacles)}; {way_out}"

    def render_advice(self, folder: str | Path) -> str:
        """Return a sentence for somebody who has just saved the adapter; empty where it is served as it is."""
        if not self.obstacles:
            return f"To serve this adapter with vLLM: {'; '.join(self.cautions)}." if self.cautions else ""
        way_out = f"Serve the merged model: tunesmith export {folder} MERGED" if self.can_be_merged else ""
        return f"vLLM cannot serve this adapter: {'; '.join(self.obstacles)}. {way_out}".rstrip()


def judge_saved(folder: str | Path) -> VllmVerdict:
    """Return what vLLM makes of the adapter in a folder."""
    settings = read_adapter_file(Path(folder), "output_dir")
    with safe_open(Path(folder) / "adapter_model.safetensors", framework="pt") as weights:
        return judge(settings, list(weights.keys()))


def judge_adapted(model: PeftModel) -> VllmVerdict:
    """Return what vLLM is going to make of a model's adapter when it is saved."""
    config = model.peft_config[ADAPTER]
    if isinstance(model, KeptAdapter) and model.begins in SAVED_WITHOUT_BEGINNING:
        config = widened_config(model.lora_config)
    is_lora = config.peft_type == PeftType.LORA
    names = list(get_peft_model_state_dict(model, save_embedding_layers=False)) if is_lora else []
    return judge({**config.to_dict(), "peft_type": config.peft_type.value}, names)


def judge(settings: Mapping[str, Any], names: Sequence[str]) -> VllmVerdict:
    """Return what vLLM makes of an adapter.

    Args:
        settings: Content of its `adapter_config.json`.
        names: Of its weights.
    """
    kind = str(settings["peft_type"]).lower()
    if kind != "lora":
        method = PEFT_METHODS.get(kind)
        return VllmVerdict((f"it reads LoRA alone, and this is {kind}",), (), method is not None and method.merges)
    obstacles = list(_find_obstacles(settings))
    unknown = [name for name in names if not name.endswith(_KNOWN)]
    if unknown and not obstacles:
        obstacles.append(f"it knows no weight such as {unknown[0]}")
    return VllmVerdict(tuple(obstacles), tuple(_find_cautions(settings, names)))


def _find_obstacles(settings: Mapping[str, Any]) -> Iterator[str]:
    if settings.get("use_dora"):
        yield "it has no DoRA"
    if copies := settings.get("modules_to_save"):
        yield f"it takes no modules that were trained whole ({', '.join(name.rpartition('.')[2] for name in copies)})"
    if settings.get("trainable_token_indices"):
        yield "it takes no rows of the embedding (trainable_token_indices)"
    if settings.get("bias", "none") != "none" or settings.get("lora_bias"):
        yield "it takes no biases"
    for name in _VARIANTS:
        if settings.get(name):
            yield f"it does not read {name}"
    if (rank := _largest_rank(settings)) > _RANKS[-1]:
        yield f"its ranks go up to {_RANKS[-1]}, and this has {rank}"
    if others := _differently_scaled(settings):
        yield (
            "it multiplies every module by the lora_alpha / lora_rank of the whole adapter, which is wrong for "
            f"{', '.join(others)} (lora_rank_pattern, lora_alpha_pattern)"
        )


def _find_cautions(settings: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    rank = _largest_rank(settings)
    if _DEFAULT_RANK < rank <= _RANKS[-1]:
        yield f"start it with --max-lora-rank {next(size for size in _RANKS if size >= rank)}"
    if settings.get("target_parameters"):
        yield "adapters on fused experts need a recent version of it"
    if any("lora_embedding_" in name or ".lm_head." in f".{name}" for name in names):
        yield "adapters on the embedding or the head work for some families alone"


def _largest_rank(settings: Mapping[str, Any]) -> int:
    return max([int(settings["r"]), *map(int, (settings.get("rank_pattern") or {}).values())])


def _differently_scaled(settings: Mapping[str, Any]) -> list[str]:
    """Return the patterns whose modules are multiplied by something else than the others."""
    ranks, alphas = settings.get("rank_pattern") or {}, settings.get("alpha_pattern") or {}

    def scaling(rank: float, alpha: float) -> float:
        return alpha / (sqrt(rank) if settings.get("use_rslora") else rank)

    usual = scaling(settings["r"], settings["lora_alpha"])
    return [
        pattern
        for pattern in dict.fromkeys((*ranks, *alphas))
        if scaling(ranks.get(pattern, settings["r"]), alphas.get(pattern, settings["lora_alpha"])) != usual
    ]
