"""Threads that share the blocks of a kernel, each inside one call that waits for work without Python's lock.

To hand work over takes a few microseconds so, where a thread that wakes up in Python takes sixty. On Linux alone, since
they sleep and wake by its futex; elsewhere the threads of threads.py share the blocks.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import math
import os
import platform
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import warp as wp

from trot.sim.arguments import Argument, ArgumentGroup, Packer, address
from trot.sim.build import Kernel, build_lock, define_programs, quiet_warp, record_launch, start_warp
from trot.sim.threads import busy_threads, cores, get_num_threads
from trot.unpromised import cpu_entry, warp_structure

ROOM_BYTES, MOST_CALL_BYTES = 4096, 1024
"""Of where the threads hear of work, and of what a kernel is called with."""
FUTEX = {"x86_64": 202, "aarch64": 98}
"""The number of the system call, by processor."""
HAS_CREW = sys.platform == "linux" and platform.machine() in FUTEX
SPIN = 500_000
"""Nanoseconds for which a thread looks out for the next step before it sleeps: as long as the last block of a step and
what Python does behind it may take, because to wake up takes long too, and on another core its memory would be cold."""
AGAIN = 0.1
"""Seconds within which a thread that works at the end of a process is expected once more."""
PARTS = 8
"""Into so many for each thread blocks are cut, so that one that comes late takes fewer."""
CPU = torch.device("cpu")
HEADER = Path(__file__).parent / "kernels" / "crew.h"

CREW = ArgumentGroup(
    "Crew",
    (
        Argument("room", "char*", "where the threads hear of work", ("room_bytes",)),
        Argument("syscall", "unsigned long long", "address of the C library's function"),
        Argument("clock", "unsigned long long", "address of its clock_gettime"),
        Argument("futex", "long long", "number of that system call"),
    ),
)
MEMBER = ArgumentGroup("Member", (Argument("number", "int", "of a thread, from 1"),))
TASK = ArgumentGroup(
    "Task",
    (
        Argument("kernel", "unsigned long long", "address of a compiled kernel"),
        Argument("bounds", "unsigned long long", "address of Warp's bounds of a launch of one"),
        Argument("call", "unsigned long long", "address of what the kernel is called with"),
        Argument("call_bytes", "int", "size of that"),
        Argument("first_at", "int", "where in it the number of the block stands"),
        Argument("scratch_at", "int", "where in it the address of scratch stands; negative: nowhere"),
        Argument("scratch_stride", "long long", "bytes from one thread's scratch to the next one's"),
        Argument("rows", "int", "of scratch: threads that can help, and the caller"),
        Argument("blocks", "long long", "of the kernel, each to be run once"),
        Argument("grain", "long long", "blocks that are taken at once"),
        Argument("helpers", "int", "that may take part beside the caller"),
        Argument("most_busy", "int", "helpers that may work at once, for all callers together"),
        Argument("spin", "int", "ns to wait before sleeping"),
    ),
)


@functools.cache
def _programs() -> dict[str, Kernel]:
    start_warp()
    groups = {"serve": (CREW, MEMBER), "share": (CREW, TASK), "dismiss": (CREW,)}
    declared = "".join(group.declaration() for group in (CREW, MEMBER, TASK))
    header = HEADER.read_text(encoding="utf-8").replace("#pragma once\n", "")
    constants = f"constexpr int ROOM_BYTES = {ROOM_BYTES}, MOST_CALL_BYTES = {MOST_CALL_BYTES};\n"
    text = f"namespace trot {{\n{constants}{declared}{header}}}  // namespace trot\n"
    bodies = {}
    for name, given in groups.items():
        unpacked = "".join(group.unpacking() for group in given)
        called = ", ".join(group.name.lower() for group in given)
        bodies[name] = (given, f"{unpacked}    trot::{name}({called});\n")
    return define_programs(text, bodies, torch.float32, CPU)


@dataclass(frozen=True)
class Entry:
    """A compiled kernel as C calls it."""

    function: Any
    bounds: ctypes.Structure
    """Of a launch of one thread."""

    @classmethod
    def of(cls, kernel: Kernel) -> Entry:
        """The first one of a kernel loads it."""
        with build_lock, quiet_warp():
            return cls(*cpu_entry(record_launch(kernel, 1, None, wp.device_from_torch(CPU))))

    def __call__(self, packed: ctypes.Structure) -> None:
        """Run it once, without Python's lock."""
        self.function(ctypes.byref(self.bounds), ctypes.byref(packed))


@dataclass(frozen=True)
class Shared:
    """A kernel whose blocks do not depend on each other, and where its argument says what to work on and where."""

    entry: Entry
    numbers: dict[str, int]
    """What a task tells of it."""

    @classmethod
    def of(cls, kernel: Kernel, first: str) -> Shared:
        """Its argument `first` is the number of the block, `scratch`, if it has one, what a thread works in."""
        entry, structure = Entry.of(kernel), warp_structure(kernel.call)
        if ctypes.sizeof(structure) > MOST_CALL_BYTES:
            raise ValueError(f"a kernel that is shared is called with {MOST_CALL_BYTES} bytes at most")
        numbers = {
            "kernel": _address(entry.function),
            "bounds": ctypes.addressof(entry.bounds),
            "call_bytes": ctypes.sizeof(structure),
            "first_at": getattr(structure, first).offset,
            "scratch_at": structure.scratch.offset if hasattr(structure, "scratch") else -1,
        }
        return cls(entry, numbers)


class Crew:
    """The threads of this process. They become more, and none goes before the end."""

    def __init__(self) -> None:
        kernels = _programs()
        self._entries = {name: Entry.of(kernel) for name, kernel in kernels.items()}
        self._structures = {name: warp_structure(kernel.call) for name, kernel in kernels.items()}
        self._packer = Packer((TASK,), self._structures["share"], torch.float32, CPU)
        self._room = torch.zeros(ROOM_BYTES, dtype=torch.uint8)
        library = ctypes.CDLL(None)
        functions = _address(library.syscall), _address(library.clock_gettime)
        room = address("room", self._room, (ROOM_BYTES,), torch.uint8, CPU)
        self._crew = (room, *functions, FUTEX[platform.machine()])
        self._threads: list[threading.Thread] = []
        self._adding = threading.Lock()
        self._seen: dict[int, float] = {}
        """When a thread was last inside run(); inf while it is."""
        self._held: set[int] = set()
        """Those of them that go on no more, because the process ends."""
        self._ending: int | None = None
        """The thread that ends it."""
        atexit.register(self._dismiss)

    def rows(self, threads: int) -> int:
        """Rows of scratch for so many threads, the caller among them: each of the crew has one of its own."""
        if len(self._threads) < threads - 1:
            with self._adding:
                while len(self._threads) < threads - 1:
                    self._add()
        return len(self._threads) + 1

    def run(self, kernel: Shared, packed: ctypes.Structure, blocks: int, threads: int, rows: int, stride: int) -> None:
        """Every block once, by the caller and whoever of so many threads finds the time; returns when all are done.

        The argument's scratch is the first of so many rows. A Ctrl-C comes when all are done: they write into memory
        that the caller owns.
        """
        most = get_num_threads()
        numbers = {
            **kernel.numbers,
            "call": ctypes.addressof(packed),
            "scratch_stride": stride,
            "rows": rows,
            "blocks": blocks,
            "grain": max(1, blocks // (PARTS * threads)),
            "helpers": threads - 1,
            "most_busy": most - 1 - busy_threads(),
            "spin": SPIN if most <= cores() else 0,
        }
        thread = threading.get_ident()
        self._seen[thread] = math.inf
        try:
            self._hold_at_the_end(thread)
            self._entries["share"](self._packer.pack(numbers, {}, self._crew))
            self._hold_at_the_end(thread)
        finally:
            self._seen[thread] = time.monotonic()

    def _hold_at_the_end(self, thread: int) -> None:
        """Python would stop it anywhere, and take away the memory that it works in."""
        if self._ending is not None and self._ending != thread:
            self._held.add(thread)
            threading.Event().wait()

    def _add(self) -> None:
        packed = self._structures["serve"](*self._crew, len(self._threads) + 1)
        thread = threading.Thread(target=self._entries["serve"], args=(packed,), name="trot", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _dismiss(self) -> None:
        """Before Warp takes the kernels out of memory."""
        if self is not _crew:
            # A forked process has the object, but not the threads.
            return
        self._ending = threading.get_ident()
        now = time.monotonic()
        # Whoever was here a moment ago is likely to come again.
        awaited = {thread for thread, seen in self._seen.copy().items() if seen > now - AGAIN} - {self._ending}
        while awaited - self._held and time.monotonic() < now + 2 * AGAIN:
            time.sleep(0.001)
        self._entries["dismiss"](self._structures["dismiss"](*self._crew))
        for thread in self._threads:
            thread.join(timeout=1.0)


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None, "a C function has an address"
    return found


_crew: Crew | None = None


def of_this_process() -> Crew:
    """The crew of this process, made on first use."""
    global _crew
    if _crew is None:
        with build_lock:
            _crew = _crew or Crew()
    return _crew


def _forget_crew() -> None:
    global _crew
    _crew = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_crew)
