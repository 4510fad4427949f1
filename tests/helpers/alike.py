"""How far two saved states are from each other: what members learn is held against what each would learn alone."""

import torch

ROUNDING = 1e-9
"""Between sums in another order, in float64 over ten iterations."""


def distance(found, expected, where=""):
    """The largest difference of floating-point numbers, to their size where that is above 1; NaN and infinity alike.

    Names, shapes, precisions, whole numbers and flags must be the same.
    """
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        return max((distance(found[name], expected[name], f"{where}/{name}") for name in expected), default=0.0)
    if not isinstance(expected, torch.Tensor):
        assert found == expected, where
        return 0.0
    assert found.shape == expected.shape and found.dtype == expected.dtype, where
    if not expected.is_floating_point():
        assert found.equal(expected), where
        return 0.0
    found, expected = found.double(), expected.double()
    same = (found == expected) | (found.isnan() & expected.isnan())
    errors = torch.where(same, 0.0, (found - expected).abs() / expected.abs().clamp(min=1.0))
    assert not errors.isnan().any(), where
    return errors.max().item() if errors.numel() else 0.0


def same_bits(found, expected):
    """Whether all of it is the same, to the bit."""
    return distance(found, expected) == 0.0
