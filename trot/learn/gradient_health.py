"""What counts as a healthy gradient: for learners and for figures, which import no PyTorch."""

STEEP = 1e3
"""A world whose state adjoint exceeds this has a gradient that chaos or stiffness has taken over."""
