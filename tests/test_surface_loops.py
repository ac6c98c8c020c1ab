"""Names of 2.9 beside its loops."""

import pytest
import torch
from torch_xla.experimental import gradient_accumulation, scan


def test_parts_of_sequences() -> None:
    assert scan.split((1, 2, 3, 4, 5), 2, 2) == ((1, 2), (3, 4), (5,))
    assert scan.split([1, 2], 2) == ([1, 2], [])


def test_slices_at_a_number_on_the_device() -> None:
    values = torch.arange(6.0).reshape(3, 2).to("xla")
    index = torch.tensor(1, device="xla")
    assert scan.dynamic_slice(values, index).tolist() == [2, 3]
    written = scan.dynamic_update_slice(values, torch.zeros(2, device="xla"), index)
    assert written.tolist() == [[0, 1], [0, 0], [4, 5]]


@pytest.mark.parametrize(
    "make", [scan.Builder, scan.Scan, scan.Scan.apply, gradient_accumulation.XlaBuildHelper]
)
def test_what_belongs_to_how_2_9_is_made(make) -> None:
    with pytest.raises(NotImplementedError, match="belongs to how torch_xla 2.9"):
        make("name")


def test_the_layout_of_a_loop() -> None:
    layout = gradient_accumulation.GradientAccumulationContext(4, 2, 1)
    assert layout.num_gradient_steps == 4 and layout[1:] == (2, 1)
