"""The simulators that bench.peers knows: where each is, what it needs, and the step that it stands."""

from __future__ import annotations

from dataclasses import dataclass

TROT = "trot"
TROT_ONE_THREAD = "trot-1-thread"

IMPLICIT_SUBSTEPS = 4
"""Of a control step, for contacts that a constraint solver holds: 4.2 ms, about the step of MuJoCo's own robots."""


@dataclass(frozen=True)
class Listed:
    """A simulator that may be installed."""

    where: str
    """module:class"""
    modules: tuple[str, ...]
    """That must be there."""
    packages: tuple[str, ...]
    """The same as pip names them; the first one's version is told."""
    implicit: bool = False
    """Its contacts stand IMPLICIT_SUBSTEPS; penalty contacts need as many as trot's."""
    differentiable: bool = False
    double: bool = False
    """It has float64 with gradients, in which they are compared with differences."""

    def own_substeps(self, equal: int) -> int:
        """The fewer that it stands, where trot takes `equal`."""
        return min(IMPLICIT_SUBSTEPS, equal) if self.implicit else equal


PEERS = {
    TROT: Listed("bench.peers_trot:Trot", ("trot",), ("trot",), differentiable=True, double=True),
    TROT_ONE_THREAD: Listed("bench.peers_trot:TrotOneThread", ("trot",), ("trot",), differentiable=True, double=True),
    "mujoco": Listed("bench.peers_mujoco:Mujoco", ("mujoco",), ("mujoco",), implicit=True),
    "mujoco-rollout": Listed("bench.peers_mujoco:MujocoRollout", ("mujoco",), ("mujoco",), implicit=True),
    "mujoco-warp": Listed("bench.peers_warp:MujocoWarp", ("mujoco_warp",), ("mujoco-warp",), implicit=True),
    "newton-mujoco": Listed(
        "bench.peers_newton:NewtonMujoco", ("newton", "mujoco_warp"), ("newton[sim]",), implicit=True
    ),
    "newton-featherstone": Listed(
        "bench.peers_newton_penalty:NewtonFeatherstone", ("newton",), ("newton",), differentiable=True
    ),
    "newton-featherstone-kept": Listed(
        "bench.peers_newton_penalty:NewtonFeatherstoneKept", ("newton",), ("newton",), differentiable=True
    ),
    "newton-semi-implicit": Listed(
        "bench.peers_newton_penalty:NewtonSemiImplicit", ("newton",), ("newton",), differentiable=True
    ),
    "mjx": Listed("bench.peers_jax:Mjx", ("mujoco.mjx", "jax"), ("mujoco-mjx", "jax"), implicit=True),
    "mjx-gradient": Listed(
        "bench.peers_jax:MjxGradient", ("mujoco.mjx", "jax"), ("mujoco-mjx", "jax"), differentiable=True, double=True
    ),
    "brax": Listed(
        "bench.peers_jax:Brax", ("brax", "jax"), ("brax", "jax"), implicit=True, differentiable=True, double=True
    ),
}
