"""A living cart on a rail, whose policy pushes with all its force."""

import torch
from slider_task import Rail

from trot.view.play.living import Living


def always(value):
    return lambda observation: torch.full((1, 1), value)


def rail():
    living = Living(Rail(), None, "zero")
    living.acts["policy"] = always(1.0)
    return living
