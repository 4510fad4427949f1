"""What counts as a healthy gradient: for learners and for figures, which import no PyTorch."""

STEEP = 1e3
"""A world whose state adjoint exceeds this has a gradient that chaos or stiffness has taken over."""
WORLD_COLUMNS = ("largest_world", "half_cosine")
"""Of metrics.csv: how far the gradient is one world's alone, and how far two halves of the worlds agree on it."""
