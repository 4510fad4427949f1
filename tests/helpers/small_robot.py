"""A small robot as MJCF text, and pieces to put into it."""

from __future__ import annotations

PLANE = '<geom name="ground" type="plane" size="0 0 1"/>'
TENDON = '<spatial name="t"><site site="post"/><site site="a"/></spatial>'
SECOND = '<body name="arm"><joint name="elbow"/><geom size="0.1"/></body>'


def mjcf(
    body: str = "",
    *,
    joint: str = '<joint name="knee"/>',
    geom: str = '<geom name="ball" size="0.1"/>',
    world: str = PLANE,
    top: str = "",
    actuator: str = "",
    tendon: str = "",
) -> str:
    """One jointed body over the ground, with places to put what a test is about."""
    return f"""
    <mujoco>
      <compiler angle="radian"/>
      {top}
      <worldbody>
        {world}
        <site name="post" pos="0.1 0.2 1"/>
        <body name="leg" pos="0 0 1">
          {joint}
          {geom}
          <site name="a" pos="0.3 0 0"/>
          <site name="b" pos="0 0.4 0"/>
          {body}
        </body>
      </worldbody>
      <tendon>{tendon}</tendon>
      <actuator>{actuator}</actuator>
    </mujoco>"""
