"""A robot dog from a URDF that walks and turns as commanded: the task `quadruped` with another file.

Try it: trot train examples/commanded_urdf/robot_dog_task.py:RobotDog
"""

from pathlib import Path

from trot.envs.tasks.quadruped import Quadruped


class RobotDog(Quadruped):
    """A URDF has no servos, no rotors, no ground and no constants of contact: the options give them."""

    summary = "a robot dog from a URDF: walk and turn as commanded"
    robot = Path(__file__).parent / "robot_dog.urdf"
    ground = True
    floating_base = True
    robot_options = {  # noqa: RUF012
        "actuators": "position",
        "kp": 35.0,
        "kd": 0.0,
        "armature": 0.005,
        # Feet as soft as the task's own: stiffness, damping, friction stiffness.
        "contact": (4e3, 2e2, 50.0),
    }
