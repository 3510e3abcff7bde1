"""A program that reads adapters with peft alone and compares their logits with those of whoever saved them."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from tests.tiny.models import tiny_model

IDS = torch.tensor([[5, 9, 200, 31, 4, 77, 18, 300], [8, 8, 41, 250, 19, 3, 77, 120]])
EXPECTED = "expected.pt"
"""Logits of `IDS`, in the folder of an adapter."""


def logits(model: nn.Module) -> Tensor:
    """Return what a model gives for `IDS`."""
    with torch.no_grad():
        found: Tensor = model.eval()(input_ids=IDS, use_cache=False).logits
    return found


def compare(work: list[dict[str, Any]]) -> None:
    """Load every folder onto its base model, and fail where the logits differ."""
    for item in work:
        model = PeftModel.from_pretrained(tiny_model(item["family"], **item["overrides"]), item["folder"])
        expected = torch.load(Path(item["folder"]) / EXPECTED)
        torch.testing.assert_close(logits(model), expected, atol=1e-4, rtol=1e-4, msg=item["name"])
    assert "tunesmith" not in sys.modules


if __name__ == "__main__":
    compare(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
