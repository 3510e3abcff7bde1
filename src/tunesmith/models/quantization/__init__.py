"""Weights in fewer bits: compressed while they are loaded, or stored like that.

resolve.py        what is done about the weights of a model, decided before they are loaded
asked.py          the settings as options of the libraries that compress
stored.py         what each kind of compressed checkpoint can do
hqq.py            the one method that compresses after loading
exact_base.py     which 16-bit model a compressed one was made from
qat.py            layers that round their weights while they are trained
fp8.py            products in 8-bit floats while training
dequantize.py     exact weights again, checked by their logits
"""

from tunesmith.models.quantization.dequantize import dequantize_checked
from tunesmith.models.quantization.resolve import Quantization, resolve_quantization

__all__ = ["Quantization", "dequantize_checked", "resolve_quantization"]
