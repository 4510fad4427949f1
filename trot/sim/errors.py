"""What goes wrong before a simulation starts."""


class ModelError(ValueError):
    """A robot file that MuJoCo rejects or that asks for something trot does not simulate."""
