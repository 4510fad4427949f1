"""What a recorded page says beside the robot: the task, the return, and the terms of the reward as it plays.

On a screen the numbers stand in a corner; on a phone, which is taller than wide, below a square with the robot.
"""

from __future__ import annotations

import html
import json

import numpy as np

from trot.view.browser.charts import COLORS, episode_returns
from trot.view.motion.trajectory import Trajectory

WIDTH, HEIGHT = 220, 56
"""Of the curve, in its own units."""

STYLE = """
#trot { position: fixed; top: 12px; right: 12px; z-index: 5; width: 240px; padding: 10px 12px; border-radius: 6px;
  background: rgba(255, 255, 255, 0.85); font: 13px/1.5 system-ui, sans-serif; color: #222; pointer-events: none; }
#trot h1 { font-size: 15px; margin: 0; overflow-wrap: anywhere; }
#trot table { width: 100%; border-collapse: collapse; }
#trot td { padding: 0; overflow-wrap: anywhere; }
#trot td:last-child { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
#trot svg { width: 100%; height: 56px; display: block; margin-top: 4px; }
@media (orientation: portrait) {
  #root { height: 100vw !important; max-height: 70vh; }
  #trot { position: absolute; top: min(100vw, 70vh); left: 0; right: 0; width: auto; }
}
"""

SCRIPT = """
(() => {
  const cells = document.querySelectorAll("#trot [data-now]"), dot = document.querySelector("#trot circle");
  setInterval(() => {
    const at = Number(document.querySelector("#root [role=slider]")?.getAttribute("aria-valuenow") ?? NaN);
    if (Number.isNaN(at)) return;
    const frame = Math.min(Math.max(Math.floor(at / motion.dt + 1e-6), 0), motion.x.length - 1);
    cells.forEach((cell, row) => { cell.textContent = motion.values[row][frame].toFixed(motion.digits[row]); });
    if (dot) { dot.setAttribute("cx", motion.x[frame]); dot.setAttribute("cy", motion.y[frame]); }
  }, 100);
})();
"""


def numbers(trajectory: Trajectory, world: int) -> str:
    """For the body of the page, behind viser's own; names in it are shown as they are."""
    frames = len(trajectory.begins)
    seconds = (frames - 1) * trajectory.dt
    title = f"<h1>{html.escape(trajectory.task)}</h1>{_summary(trajectory, world, seconds)}"
    rows, content = list[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]], int]](), ""
    x, y = [0.0] * frames, [0.0] * frames
    if trajectory.reward_terms:
        total = episode_returns(trajectory)[:, world]
        terms = {name: values[:, world].astype(np.float64) for name, values in trajectory.reward_terms.items()}
        rows = [("return so far", total, 1), ("reward", np.sum(list(terms.values()), axis=0), 3)]
        rows += [(f"\u2003{name}", values, 3) for name, values in terms.items()]
        cells = "".join(
            f'<tr><td>{html.escape(name)}</td><td data-now="">{values[-1]:.{digits}f}</td></tr>'
            for name, values, digits in rows
        )
        x, y = _curve(total)
        points = " ".join(f"{across},{down}" for across, down in zip(x, y, strict=True))
        content = (
            f'<table>{cells}</table><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">'
            f'<polyline points="{points}" fill="none" stroke="{COLORS[0]}" stroke-width="1.5"/>'
            f'<circle r="3" cx="{x[-1]}" cy="{y[-1]}" fill="{COLORS[1]}"/></svg>'
        )
    motion = {
        "dt": trajectory.dt, "x": x, "y": y, "digits": [digits for *_, digits in rows],
        "values": [[round(value, digits) for value in values.tolist()] for _, values, digits in rows],
    }  # fmt: skip
    script = f"const motion = {json.dumps(motion, separators=(',', ':'))};{SCRIPT}"
    return f'<style>{STYLE}</style><div id="trot">{title}{content}</div><script>{{{script}}}</script>'


def _summary(trajectory: Trajectory, world: int, seconds: float) -> str:
    if not trajectory.reward_terms:
        return f"{seconds:.1f} s"
    total = episode_returns(trajectory)[:, world]
    ends = [*(np.flatnonzero(trajectory.begins[1:, world])).tolist(), len(total) - 1]
    if len(ends) == 1:
        return f"return {total[-1]:.1f} in {seconds:.1f} s"
    # The end of the recording may have cut off the last one.
    mean = np.mean(total[ends[:-1]])
    return f"{len(ends)} episodes in {seconds:.1f} s; return {mean:.1f} on average of those before the last"


def _curve(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[list[float], list[float]]:
    """Places in the picture, a unit away from its edges."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    x = np.linspace(3, WIDTH - 3, len(values))
    y = HEIGHT - 3 - (values - low) / (high - low or 1.0) * (HEIGHT - 6)
    return np.round(x, 1).tolist(), np.round(y, 1).tolist()
