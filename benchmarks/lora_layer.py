"""Lean LoRA layers against peft's own: time and memory of whole training steps, and whether the numbers are the same.

Run `python -m benchmarks.lora_layer`; README.md beside this file defines every figure. A variant stays in the product
if it makes the whole step at least 10% faster or 15% leaner.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import machine

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = ("peft", "lean LoRA", "joint LoRA", "all lean, LoRA alone", "all lean layers")


@dataclass(frozen=True)
class Shape:
    """The model and the step that are measured."""

    hidden: int
    intermediate: int
    layers: int
    vocabulary: int
    rank: int
    rows: int
    tokens: int
    steps: int
    dtype: str


def main() -> None:
    """Measure every variant in processes of their own, in turn, and print the medians."""
    options = _parse_options()
    if options.one:
        print(json.dumps(measure_variant(options.one, _shape_of(options))))
        return
    described = machine.describe_machine()
    print(machine.render_machine(described))
    rounds: dict[str, list[Mapping[str, float]]] = {variant: [] for variant in VARIANTS}
    for number in range(options.rounds):
        for variant in VARIANTS:
            print(f"round {number + 1}/{options.rounds}: {variant} ...", file=sys.stderr, flush=True)
            rounds[variant].append(_run_apart(variant, options.threads))
    medians = {
        variant: {name: statistics.median(report[name] for report in reports) for name in reports[0]}
        for variant, reports in rounds.items()
    }
    print(render_table(medians))
    if options.output:
        content = {"machine": described, "shape": asdict(_shape_of(options)), "rounds": rounds, "medians": medians}
        options.output.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")


def measure_variant(variant: str, shape: Shape) -> Mapping[str, float]:
    """Run steps with one kind of layers in this process and return what they took, step by step on average."""
    import torch

    from tunesmith.runtime.memory import keep_freed_memory

    keep_freed_memory()  # as runs on a CPU do: freed pages would be counted again and again otherwise
    model, change = _build(shape), _changes()[variant]
    ids = torch.randint(0, shape.vocabulary, (shape.rows, shape.tokens), generator=torch.Generator().manual_seed(1))
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-4, fused=True)

    def step() -> float:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        return float(loss.detach())

    expected_loss = step()
    expected = {name: value.grad.clone() for name, value in trained.items()}
    optimizer.zero_grad()
    change(model)
    loss = step()
    difference = max(
        float((value.grad - expected[name]).abs().max() / expected[name].abs().max().clamp_min(1e-12))
        for name, value in trained.items()
    )
    del expected
    optimizer.step()
    optimizer.zero_grad()
    kept = _measure_kept(lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(shape.steps):
        step()
        optimizer.step()
        optimizer.zero_grad()
    return {
        "wall_seconds": (time.perf_counter() - wall) / shape.steps,
        "cpu_seconds": (time.process_time() - cpu) / shape.steps,
        "kept_bytes": kept,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "loss_difference": abs(loss - expected_loss) / abs(expected_loss),
        "gradient_difference": difference,
    }


def render_table(medians: Mapping[str, Mapping[str, float]]) -> str:
    """Return one line per variant; ratios are against peft's layers."""
    first = medians[VARIANTS[0]]
    width = max(len(variant) for variant in medians)
    titles = ("wall s", "CPU s", "kept MiB", "peak GiB", "time", "kept", "gradients differ")
    lines = [" " * width + "".join(f"{title:>17}" for title in titles)]
    for variant, figures in medians.items():
        cells = (
            f"{figures['wall_seconds']:.3f}",
            f"{figures['cpu_seconds']:.3f}",
            f"{figures['kept_bytes'] / 2**20:.1f}",
            f"{figures['peak_bytes'] / 2**30:.2f}",
            f"{figures['cpu_seconds'] / first['cpu_seconds']:.2f}x",
            f"{figures['kept_bytes'] / first['kept_bytes']:.2f}x",
            f"{figures['gradient_difference']:.1e}",
        )
        lines.append(f"{variant:<{width}}" + "".join(f"{cell:>17}" for cell in cells))
    return "\n".join(lines)


def _build(shape: Shape):  # type: ignore[no-untyped-def]
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=max(1, shape.hidden // 64),
        num_key_value_heads=max(1, shape.hidden // 192),
        vocab_size=shape.vocabulary,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, shape.dtype))
    lora = LoraConfig(r=shape.rank, lora_alpha=2 * shape.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    wrapped = get_peft_model(model, lora, autocast_adapter_dtype=False).train()
    for name, value in wrapped.named_parameters():  # B begins at zero, where A has no gradient
        if "lora_B" in name:
            torch.nn.init.normal_(value, std=0.02)
    return wrapped


def _changes() -> Mapping[str, Callable]:  # type: ignore[type-arg]
    from peft.tuners.lora.layer import Linear as PeftLoraLinear

    from tunesmith.models.lean import use_lean_layers
    from tunesmith.models.lean.lora import LeanLoraLinear
    from tunesmith.models.lean.shared import share_inputs

    def only_lora(model) -> None:  # type: ignore[no-untyped-def]
        for module in model.modules():
            if type(module) is PeftLoraLinear:
                module.__class__ = LeanLoraLinear

    def joint_lora(model) -> None:  # type: ignore[no-untyped-def]
        only_lora(model)
        share_inputs(model)

    def all_alone(model) -> None:  # type: ignore[no-untyped-def]
        use_lean_layers(model, joins=False)

    changes = (lambda model: None, only_lora, joint_lora, all_alone, use_lean_layers)
    return dict(zip(VARIANTS, changes, strict=True))


def _measure_kept(forward: Callable) -> int:  # type: ignore[type-arg]
    """Return the bytes that a forward pass keeps for the backward pass, weights included once in every variant."""
    import torch

    storages: dict[int, int] = {}

    def note(tensor):  # type: ignore[no-untyped-def]
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = forward()
    del output
    return sum(storages.values())


def _run_apart(variant: str, threads: int | None) -> Mapping[str, float]:
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads or machine.count_cores()),
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    words = [sys.executable, "-m", "benchmarks.lora_layer", *sys.argv[1:], "--one", variant]
    finished = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(f"{variant} failed with exit code {finished.returncode}:\n{finished.stderr[-4000:]}")
    report: Mapping[str, float] = json.loads(finished.stdout.strip().splitlines()[-1])
    return report


def _shape_of(options: argparse.Namespace) -> Shape:
    return Shape(**{name: getattr(options, name) for name in Shape.__dataclass_fields__})


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=576, help="width of the model; the default is SmolLM2-135M's")
    parser.add_argument("--intermediate", type=int, default=1536, help="width of its feed-forward layers")
    parser.add_argument("--layers", type=int, default=6, help="number of its layers")
    parser.add_argument("--vocabulary", type=int, default=4096, help="rows of its embedding")
    parser.add_argument("--rank", type=int, default=8, help="rank of the adapters")
    parser.add_argument("--rows", type=int, default=4, help="rows of a step")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a row")
    parser.add_argument("--steps", type=int, default=5, help="steps that are measured")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="number type of everything")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every variant")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS; default: all cores")
    parser.add_argument("--output", type=Path, help="JSON file for everything that was measured")
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
