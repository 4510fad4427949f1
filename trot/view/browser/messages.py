"""What a page may say to the viewer: where its camera is, and that a control has another value. All else is dropped.

viser's own reader takes all of its messages, among them uploads, a tunnel to the outside and any field of a control.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

LONGEST_BYTES = 2**14
"""Of one message; those of a page have a few hundred."""

Number = Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]
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


_DECODER: msgspec.msgpack.Decoder[CameraMoved | ControlUsed] = msgspec.msgpack.Decoder(CameraMoved | ControlUsed)


def read_message(content: str | bytes) -> CameraMoved | ControlUsed | None:
    """The message of a page, or None for anything else."""
    if isinstance(content, str) or len(content) > LONGEST_BYTES:
        return None
    try:
        return _DECODER.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
