"""Settings that went through JSON come back as they were."""

import json
from dataclasses import asdict, dataclass, field
from typing import Literal, Optional

import pytest

from trot.learn.saved_settings import settings_from


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (3, 4)


@dataclass(frozen=True)
class Outer:
    rate: float = 0.1
    kind: Literal["a", "b"] = "a"
    hidden: tuple[int, ...] = (8, 8)
    betas: tuple[float, float] = (0.9, 0.999)
    maybe: tuple[int, ...] | None = (1,)
    perhaps: Optional[tuple[int, ...]] = (2,)  # noqa: UP045
    nothing: tuple[int, ...] | None = None
    pairs: tuple[tuple[int, str], ...] = ((1, "x"), (2, "y"))
    inner: Inner = field(default_factory=Inner)
    listed: list[int] = field(default_factory=lambda: [5])


def test_there_and_back():
    changed = Outer(0.2, "b", (1,), (0.5, 0.6), (7, 8), (9,), None, ((3, "z"),), Inner((1, 2, 3)), [6, 7])
    for settings in (Outer(), changed):
        assert settings_from(json.loads(json.dumps(asdict(settings))), Outer, "it") == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "c"}, "kind must be one of a, b, not 'c'"),
        ({"inner": {"sizes": [1], "more": 2}}, "the settings of inner do not have more"),
        ({"colour": 1}, "the settings of it do not have colour"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    saved = json.loads(json.dumps(asdict(Outer()))) | change
    with pytest.raises(ValueError, match=message):
        settings_from(saved, Outer, "it")
