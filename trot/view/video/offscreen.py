"""An OpenGL context without a window, by whatever library the machine has."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

PLATFORMS = ("egl", "osmesa")
"""In this order on Linux: EGL draws on a GPU where there is one, OSMesa on the processor."""
MODULES = (*PLATFORMS, "glfw", "cgl")
"""MuJoCo has a module for each of these."""


class NoOpenGL(ValueError):
    """No library of this machine can draw without a window."""


def open_context(width: int, height: int) -> Any:
    """A current context of MuJoCo's; its free() releases it. MUJOCO_GL chooses the library, as in MuJoCo itself."""
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    platforms = (chosen,) if chosen else PLATFORMS if sys.platform == "linux" else ("",)
    reasons = []
    for platform in platforms:
        try:
            return _opened(platform, width, height)
        except Exception as error:
            # A missing library shows as almost any error: no attribute of None, no display, no such file.
            reasons.append(f"{platform or 'OpenGL'}: {' '.join(str(error).split()) or type(error).__name__}")
            _forget(platform)
    raise NoOpenGL(
        "this machine has no OpenGL to draw with; install it with `apt install libegl1 libgl1`, or with "
        f"`apt install libosmesa6` and set MUJOCO_GL=osmesa ({'; '.join(reasons)})"
    )


def _opened(platform: str, width: int, height: int) -> Any:
    mujoco = _imported_mujoco()
    # MuJoCo picks a library when it is first imported, which may be long ago; so it is asked for by name.
    module = f"mujoco.{platform}" if platform in MODULES else "mujoco.gl_context"
    context = importlib.import_module(module).GLContext(width, height)
    context.make_current()
    # Some libraries give a context that nothing can be drawn in, and only this shows it.
    mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100).free()
    return context


def _imported_mujoco() -> Any:
    """MuJoCo fails to import where MUJOCO_GL names a library that is missing, and says nothing that helps."""
    chosen = os.environ.pop("MUJOCO_GL", None)
    try:
        return importlib.import_module("mujoco")
    finally:
        if chosen is not None:
            os.environ["MUJOCO_GL"] = chosen


def _forget(platform: str) -> None:
    """PyOpenGL decides for one library when it is imported; without this the next could not be tried."""
    os.environ.pop("PYOPENGL_PLATFORM", None)
    for name in list(sys.modules):
        if name.partition(".")[0] == "OpenGL" or name == f"mujoco.{platform}":
            del sys.modules[name]
