"""bitsandbytes repacks 4-bit weights for its CPU kernel at the first forward pass in evaluation mode, and loses them.

Seen with bitsandbytes 0.50.2 on processors with avx512_bf16: after an evaluation, saving, merging and dequantising read
the packed layout as if it were the plain one, and give garbage without a word (a loss of 17 where it was 2.8). Layers
ask once, when they are built, whether the processor has the instructions; here the answer is no, which costs some speed
of evaluation and nothing in training. Upstream: https://github.com/bitsandbytes-foundation/bitsandbytes/pull/2083. Drop
this file when a dequantised model gives the same logits after an evaluation as before (the unit test measures it).
"""

from importlib import import_module


def keep_weights_unpacked() -> None:
    """Make 4-bit layers that are built from now on keep the layout in which they can be read."""
    import_module("bitsandbytes.nn.modules").has_avx512bf16 = _has_no_packed_kernel  # type: ignore[attr-defined]


def _has_no_packed_kernel() -> bool:
    return False
