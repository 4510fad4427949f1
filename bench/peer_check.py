"""A simulator's gradient beside central differences of its own forward pass."""

from __future__ import annotations

import numpy as np

from bench.peer import Numbers, Peer

DOUBLE_WIDTHS = (1e-3, 1e-4, 1e-5, 1e-6)
SINGLE_WIDTHS = (1e-1, 5e-2, 2.5e-2, 1.2e-2, 6e-3)
SMOOTH = 0.01
"""Differences of neighbouring widths agree to this, where a derivative can be told from them."""


def compare(peer: Peer, controls: Numbers) -> dict[str, float | int | str | None]:
    """Along one random direction in each world: relative errors where the differences agree among themselves.

    They do not where rounding drowns them or where a contact begins within their width, for which no gradient is to
    blame.
    """
    peer.gradient()
    peer.synchronize()
    gradient = peer.control_gradient()
    direction = np.random.default_rng(0).standard_normal(controls.shape)
    slopes = []
    for width in DOUBLE_WIDTHS if peer.case.double else SINGLE_WIDTHS:
        sums = []
        for sign in (1, -1):
            peer.set_controls(controls + sign * width * direction)
            peer.forward()
            peer.synchronize()
            sums.append(peer.positions().sum(axis=1))
        slopes.append((sums[0] - sums[1]) / (2 * width))
    errors, smooth = relative_errors((gradient * direction).sum(axis=(0, 2)), np.array(slopes))
    return {
        "settings": peer.settings(),
        "worlds": len(smooth),
        "finite_worlds": int(np.isfinite(gradient).all(axis=(0, 2)).sum()),
        "smooth_worlds": int(smooth.sum()),
        "median_error": float(np.median(errors[smooth])) if smooth.any() else None,
        "worst_error": float(errors[smooth].max()) if smooth.any() else None,
    }


def relative_errors(claimed: Numbers, slopes: Numbers) -> tuple[Numbers, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Of each world, by the two neighbouring widths that agree best, and whether these do; `slopes`: (width, world)."""
    # A slope that happens to vanish in one world makes no error large.
    scale = np.maximum(np.abs(slopes[1:]), 0.1 * np.median(np.abs(slopes)))
    spread = np.abs(slopes[1:] - slopes[:-1]) / scale
    best, worlds = spread.argmin(axis=0), np.arange(slopes.shape[1])
    errors = (np.abs(claimed - slopes[1:]) / scale)[best, worlds]
    return np.where(np.isfinite(errors), errors, np.inf), spread[best, worlds] < SMOOTH
