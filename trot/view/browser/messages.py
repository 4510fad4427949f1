"""What a page may say to the viewer: its camera, that a control has another value, a key, and what it drags.

All else is dropped. viser's own reader takes all of its messages, among them uploads, a tunnel to the outside and any
field of a control.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

LONGEST_BYTES = 2**14
"""Of one message; those of a page have a few hundred."""

FARTHEST = 1e6
Number = Annotated[float, msgspec.Meta(ge=-FARTHEST, le=FARTHEST)]
Pixels = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Text = Annotated[str, msgspec.Meta(max_length=255)]
Value = bool | int | float | str


class CameraMoved(msgspec.Struct, tag_field="type", tag="ViewerCameraMessage", forbid_unknown_fields=True):
    """The camera of the page, in metres and radians."""

    wxyz: tuple[Number, Number, Number, Number]
    position: tuple[Number, Number, Number]
    fov: Number
    near: Number
    far: Number
    image_height: Pixels
    image_width: Pixels
    look_at: tuple[Number, Number, Number]
    up_direction: tuple[Number, Number, Number]


class NewValue(msgspec.Struct, forbid_unknown_fields=True):
    """A control's value, and no other attribute of it."""

    value: bool | int | float | Text


class ControlUsed(msgspec.Struct, tag_field="type", tag="GuiUpdateMessage", forbid_unknown_fields=True):
    """A control that the user moved, chose from or pressed."""

    uuid: Text
    updates: NewValue


class NodeDragged(msgspec.Struct, tag_field="type", tag="SceneNodeDragMessage", forbid_unknown_fields=True):
    """A part of the scene that the user holds: the point that was grasped, and where it is pulled to."""

    phase: Literal["start", "update", "end"]
    name: Text
    instance_index: None
    start_position: tuple[float, float, float]
    start_screen_pos: tuple[float, float]
    end_position: tuple[float, float, float]
    end_screen_pos: tuple[float, float]
    button: Literal["left"]
    modifier: None
    owner: Literal[""]

    def __post_init__(self) -> None:
        # Not refused, as a camera is: without its end, a drag would last for ever.
        for name in ("start_position", "start_screen_pos", "end_position", "end_screen_pos"):
            setattr(self, name, tuple(_bounded(number) for number in getattr(self, name)))


class KeyPressed(msgspec.Struct, tag_field="type", tag="CommandTriggerMessage", forbid_unknown_fields=True):
    """A key that means something, or its entry in the page's list of such."""

    uuid: Text


Message = CameraMoved | ControlUsed | KeyPressed | NodeDragged

_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def read_message(content: str | bytes) -> Message | None:
    """The message of a page, or None for anything else."""
    if isinstance(content, str) or len(content) > LONGEST_BYTES:
        return None
    try:
        return _DECODER.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _bounded(number: float) -> float:
    return 0.0 if math.isnan(number) else min(max(number, -FARTHEST), FARTHEST)
