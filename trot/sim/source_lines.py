"""On which line of a robot file an element stands, so that an error can say where to look."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

_TREE = ("body", "worldbody", "frame")
"""What holds geoms, joints and sites in MJCF, besides <robot> in URDF."""
_COPIES = ("replicate", "composite", "attach", "flexcomp")
"""What makes elements that the file does not show, so that counting finds the wrong ones."""

_NAMED = re.compile(r"\b(body|bodies|joint|geom|site|tendon|equality|actuator|muscle)s?(?: constraint)? '([^']*)'")
_FILE = re.compile(r"there is no file '([^']*)'|MuJoCo does not read '([^']*)'")
_WRITTEN = re.compile(r'<(\w+)> has ([\w:]+)="([^"]*)"')
_ATTRIBUTE = re.compile(r"^(option|flag) (\w+) ")
_UNNAMED = re.compile(r"([a-z]+)(\d+)(?: of (.*))?")


@dataclass
class Element:
    """One opening tag."""

    tag: str
    attributes: dict[str, str]
    line: int
    file: Path
    inside: Element | None
    children: list[Element] = field(default_factory=list)


Wanted = Callable[[Element], bool]


class SourceLines:
    """The elements of a robot file and of what it includes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._elements = _read(path, path.parent, None, {path.resolve()})
        self._counted = _in_mujocos_order(self._elements)

    def find(self, sentence: str) -> str | None:
        """Where what a sentence is about stands: "line 12", or "parts.xml, line 3"; None if nobody can tell."""
        element = self._about(sentence)
        if element is None:
            return None
        return f"line {element.line}" if element.file == self._path else f"{element.file.name}, line {element.line}"

    def _about(self, sentence: str) -> Element | None:
        if found := _WRITTEN.search(sentence):
            tag, attribute, value = found.groups()
            return self._first(lambda e: e.tag == tag and e.attributes.get(attribute) == value)
        if found := _ATTRIBUTE.match(sentence):
            tag, attribute = found.groups()
            return self._first(lambda e: e.tag == tag and attribute in e.attributes)
        if found := _FILE.search(sentence):
            name = found[1] or found[2]
            named = (e.attributes.get("file") or e.attributes.get("filename") or "" for e in self._elements)
            return next((e for e, file in zip(self._elements, named, strict=True) if file.endswith(name)), None)
        if found := _NAMED.search(sentence):
            kind = {"bodies": "body", "muscle": "actuator"}.get(found[1], found[1])
            return self._named(kind, found[2])
        word = "plugin" if "plugin" in sentence else "flex"
        return self._first(lambda e: e.tag.startswith(word)) if word in sentence else None

    def _named(self, kind: str, name: str) -> Element | None:
        of_kind = [element for element in self._elements if _kind(element) == kind]
        exact = next((element for element in of_kind if element.attributes.get("name") == name), None)
        unnamed = _UNNAMED.fullmatch(name)
        if exact is not None or unnamed is None:
            return exact
        counted = self._counted.get(kind, [])
        if unnamed[1] == kind and int(unnamed[2]) < len(counted):
            return counted[int(unnamed[2])]
        return None if unnamed[3] is None else self._named("body", unnamed[3])

    def _first(self, wanted: Wanted) -> Element | None:
        return next(filter(wanted, self._elements), None)


def _kind(element: Element) -> str | None:
    """What trot calls such an element; None for those that are only mentioned, as in <default>."""
    parent = "" if element.inside is None else element.inside.tag
    if element.tag in ("body", "worldbody", "link"):
        return "body" if parent != "joint" else None
    if element.tag in ("joint", "freejoint", "geom", "site"):
        return element.tag.removeprefix("free") if parent in (*_TREE, *_COPIES, "robot") else None
    return parent if parent in ("tendon", "equality", "actuator") else None


def _in_mujocos_order(elements: list[Element]) -> dict[str, list[Element]]:
    """Elements by kind as MuJoCo counts them; none where the file makes elements that it does not show."""
    if any(element.tag in (*_COPIES, "robot") for element in elements):
        return {}
    found: dict[str, list[Element]] = {kind: [] for kind in ("body", "joint", "geom", "site")}
    worlds = [element for element in elements if element.tag == "worldbody"]
    if worlds:
        # Several <worldbody> are one.
        _count_body(worlds, found)
    for kind in ("tendon", "equality", "actuator"):
        found[kind] = [element for element in elements if _kind(element) == kind]
    return found


def _count_body(parts: list[Element], found: dict[str, list[Element]]) -> None:
    """A body with its own elements, and then the bodies on it: MuJoCo goes through the tree like this."""
    found["body"].append(parts[0])
    inside = [child for part in parts for child in _through_frames(part)]
    for child in inside:
        kind = _kind(child)
        if kind in ("joint", "geom", "site"):
            found[kind].append(child)
    for child in inside:
        if child.tag == "body":
            _count_body([child], found)


def _through_frames(element: Element) -> Iterator[Element]:
    for child in element.children:
        if child.tag == "frame":
            yield from _through_frames(child)
        else:
            yield child


def _read(path: Path, folder: Path, inside: Element | None, seen: set[Path]) -> list[Element]:
    """All elements in order; those of an included file where it is included, without its root."""
    parser = expat.ParserCreate()
    # Where the next element stands in; the root of an included file stands for what includes it.
    stack: list[Element | None] = [inside]
    found: list[Element] = []

    def begin(tag: str, attributes: dict[str, str]) -> None:
        parent = stack[-1]
        if tag == "include":
            found.extend(_included(attributes.get("file", ""), path, folder, parent, seen))
        if tag == "include" or (inside is not None and len(stack) == 1):
            stack.append(parent)
            return
        element = Element(tag, attributes, parser.CurrentLineNumber, path, parent)
        found.append(element)
        if parent is not None:
            parent.children.append(element)
        stack.append(element)

    def end(tag: str) -> None:
        stack.pop()

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    # What was read until something is wrong with the text stands: MuJoCo names what is wrong.
    with contextlib.suppress(expat.ExpatError, OSError, ValueError, LookupError):
        parser.Parse(path.read_bytes(), True)
    return found


def _included(name: str, path: Path, folder: Path, inside: Element | None, seen: set[Path]) -> list[Element]:
    """MuJoCo looks beside the robot's own file."""
    for place in (folder / name, path.parent / name):
        if place.is_file() and place.resolve() not in seen:
            seen.add(place.resolve())
            return _read(place, folder, inside, seen)
    return []
