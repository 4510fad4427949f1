"""What a user can mend: robot files that cannot be simulated, and motions that leave the numbers."""


class ModelError(ValueError):
    """A robot file that MuJoCo rejects or that asks for something trot does not simulate."""


class NonFiniteError(ArithmeticError):
    """A state holds a NaN or an infinity."""

    def __init__(self, world: int, substep: int | None, dof: str, num_worlds: int) -> None:
        self.world, self.substep, self.dof = world, substep, dof
        when = "before the step" if substep is None else f"in substep {substep}"
        others = f" ({num_worlds} worlds in all)" if num_worlds > 1 else ""
        super().__init__(
            f"world {world} becomes non-finite {when}, first in dof '{dof}'{others}. Usual causes: a substep too long "
            "for the stiffest contact, spring or damper (raise substeps), or controls far out of range."
        )


class GradientError(ArithmeticError):
    """Learning stopped because a gradient was not finite."""
