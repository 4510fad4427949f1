"""What a hostile page may send to the viewer: messages of its kinds with anything in them, other kinds, and noise."""

import math

import msgspec
from viewer_page import CAMERA

NUMBERS = (0, 1, -1, 2, 7, 20, 0.5, 1e6, 1e7, -1e300, math.nan, math.inf, 2**31, 2**63, 2**64 - 1, -(2**63))
TEXTS = (
    "", "1", "2", "16", "1000000000", "nan", "last", "best", "initial", "../elsewhere", "/etc/passwd", "..", "\x00",
    "é", "<script>alert(1)</script>", "x" * 300, "x" * 20_000, "deterministic", "sampled", "drunk", "__class__",
    "0.25",
)  # fmt: skip
OTHER_KINDS = (
    "ShareUrlRequest", "ShareUrlDisconnect", "GuiRemoveMessage", "RunJavascriptMessage", "FileTransferStartUpload",
    "FileTransferPart", "CommandTriggerMessage", "ScenePointerMessage", "SceneNodeDragMessage",
    "TransformControlsUpdateMessage",
    "ViewerCamera", "SetCameraPositionMessage", "BackgroundImageMessage", "GuiUpdateMessage", "ViewerCameraMessage", "",
    "x" * 1000,
)  # fmt: skip
PATHS = (
    "..", "../..", "%2e%2e/%2e%2e", "etc/passwd", "/etc/passwd", "assets", "index.html", "nothing.js", "%00",
    "\\..\\..", "?x=1", "a" * 3000, "#", "%", "//", "elsewhere.pt", "checkpoints/last.pt", "C:\\", "file:///etc/passwd",
    "~root",
)  # fmt: skip


def odd_value(chance, depth=0):
    kind = chance.randrange(9)
    if kind < 3:
        return chance.choice(NUMBERS)
    if kind < 6:
        return chance.choice(TEXTS)
    if kind == 6 or depth > 4:
        return chance.choice([None, True, False, b"", b"\xff" * 40])
    if kind == 7:
        return [odd_value(chance, depth + 1) for _ in range(chance.randrange(5))]
    return {chance.choice(TEXTS): odd_value(chance, depth + 1) for _ in range(chance.randrange(4))}


def odd_message(chance, controls):
    """As bytes, or as text, which viser's pages never send. The controls are those of the panel, by label."""
    kind = chance.randrange(10)
    if kind < 5 and controls:
        uuid = chance.choice(sorted(control["uuid"] for control in controls.values() if "uuid" in control))
        message = {"type": "GuiUpdateMessage", "uuid": uuid, "updates": {"value": odd_value(chance)}}
        if chance.random() < 0.3:
            others = [odd_value(chance), {"props": odd_value(chance)}, {"value": 1, "label": "x"}]
            message["updates"] = chance.choice(others)
    elif kind < 7:
        message = CAMERA | {chance.choice(sorted(CAMERA.keys() - {"type"})): odd_value(chance)}
    elif kind == 7:
        message = {"type": chance.choice(OTHER_KINDS), "uuid": "x", "source": "1", "content": odd_value(chance)}
    else:
        message = odd_value(chance)
    if isinstance(message, str):
        return message
    packed = bytearray(msgspec.msgpack.encode(message))
    if chance.random() < 0.3:
        for _ in range(chance.randint(1, 4)):
            packed[chance.randrange(len(packed))] = chance.randrange(256)
    return bytes(packed[: chance.randint(0, len(packed))] if chance.random() < 0.1 else packed)


def odd_path(chance, token):
    """Of a request, with the right token or without."""
    rest = "/".join(chance.choice(PATHS) for _ in range(chance.randint(1, 3)))
    return f"{token if chance.random() < 0.7 else '/'}{rest}".replace(" ", "%20")
