"""Robots whose bodies are held together by <connect> and <weld>, as MJCF text."""

from __future__ import annotations

BODY = """
    <body name="{name}" pos="{pos}" euler="{euler}">
      <freejoint/>
      <inertial pos="{com}" mass="{mass}" diaginertia="{inertia}"/>
      <site name="{name}" pos="0.1 0.2 -0.1" euler="20 -30 40"/>
    </body>"""

FIRST = BODY.format(name="first", pos="0 0 0", euler="10 20 30", com="0.02 0.01 0", mass=2, inertia="0.1 0.2 0.25")
SECOND = BODY.format(name="second", pos="0.3 0.1 0", euler="0 50 0", com="0 0 0.03", mass=0.7, inertia="0.05 0.04 0.03")
TARGET = '<body name="target" mocap="true" pos="0.2 0 0.1" euler="0 0 20"><site name="target"/></body>'


def bonded(bonds: str, bodies: str = FIRST + SECOND + TARGET, gravity: str = "0 0 0", timestep: float = 2e-3) -> str:
    """Bodies held together by what stands in <equality>."""
    return f"""
    <mujoco>
      <option gravity="{gravity}" timestep="{timestep}"/>
      <worldbody>{bodies}</worldbody>
      <equality>{bonds}</equality>
    </mujoco>"""


BONDS = {
    "connect": '<connect body1="first" body2="second" anchor="0.2 0.05 0.1" solref="0.1 0.7"/>',
    "connect to the world": '<connect body1="second" anchor="0.1 0.05 -0.1" solref="-300 -20"/>',
    "connect of sites": '<connect site1="first" site2="second"/>',
    "weld": '<weld body1="first" body2="second" anchor="0.1 0 0.2" torquescale="0.6"/>',
    "weld to a mocap body": '<weld body1="target" body2="second" relpose="0.1 0.2 0 1 0.2 -0.3 0.4"/>',
    "weld of sites": '<weld site1="second" site2="target" solref="0.05 1.5"/>',
}
"""By what they are."""


def four_bar(time_constant: float, timestep: float = 1e-3) -> str:
    """A crank, a coupler and a rocker in the plane, closed by a connect; the crank is pulled by gravity."""
    bar = '<geom type="capsule" size="0.02" fromto="0 0 0 {length} 0 0" mass="{mass}" contype="0" conaffinity="0"/>'
    return f"""
    <mujoco>
      <compiler angle="radian"/>
      <option gravity="0 0 -9.81" timestep="{timestep}"/>
      <worldbody>
        <body name="crank" euler="0 -1.2 0">
          <joint name="crank" axis="0 1 0" damping="0.02"/>{bar.format(length=0.2, mass=0.4)}
          <body name="coupler" pos="0.2 0 0" euler="0 0.9 0">
            <joint name="coupler" axis="0 1 0" damping="0.02"/>{bar.format(length=0.5, mass=0.8)}
          </body>
        </body>
        <body name="rocker" pos="0.45 0 0" euler="0 -1.0 0">
          <joint name="rocker" axis="0 1 0" damping="0.02"/>{bar.format(length=0.35, mass=0.6)}
        </body>
      </worldbody>
      <equality>
        <connect body1="coupler" body2="rocker" anchor="0.5 0 0" solref="{time_constant} 1"
                 solimp="0.9999 0.9999 0.001"/>
      </equality>
    </mujoco>"""
