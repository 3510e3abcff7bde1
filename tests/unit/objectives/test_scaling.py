import pytest
import torch

from tunesmith.objectives.scaling import scale_in_place


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float16, 2.0**18), (torch.bfloat16, 1 / 37)])
def test_one_factor_is_not_rounded_to_half_precision(dtype, factor):
    """2**18 is infinite in fp16, and 1 / 37 is a sixth of a percent off in bf16."""
    values = torch.full((4097, 2), 2.0**-10, dtype=dtype)  # one row more than are done at once
    scale_in_place(values, torch.tensor(factor))
    assert torch.equal(values, torch.full((4097, 2), factor * 2.0**-10).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rows_have_a_factor_each(dtype):
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype)
    scale_in_place(values, torch.tensor([10.0, -1.0]))
    assert values.tolist() == [[10.0, 20.0], [-3.0, -4.0]]
    assert values.dtype == dtype


@pytest.mark.parametrize("shape", [(), (3,), (0, 5)])
def test_a_factor_for_all_fits_every_shape(shape):
    values = torch.full(shape, 3.0)
    scale_in_place(values, torch.tensor(2.0))
    assert torch.equal(values, torch.full(shape, 6.0))


def test_no_rows_are_none_afterwards():
    values = torch.zeros((0, 5), dtype=torch.bfloat16)
    scale_in_place(values, torch.zeros(0))
    assert values.shape == (0, 5)
