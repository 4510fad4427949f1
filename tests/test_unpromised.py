"""What trot uses without a promise still behaves as it did; each failure says what to mend in trot/unpromised.py."""

from __future__ import annotations

import ctypes
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import warp as wp

from trot import unpromised
from trot.sim.build import quiet_warp, start_warp

MEND = "see trot/unpromised.py"


def test_torch_foreach() -> None:
    def fresh() -> list[torch.Tensor]:
        return [torch.tensor([3.0, 4.0]), torch.tensor([[5.0, 12.0]])]

    norms = unpromised.foreach_norm(fresh())
    assert [float(norm) for norm in norms] == [5.0, 13.0], f"torch._foreach_norm is no longer the 2-norm; {MEND}"
    tensors = fresh()
    unpromised.foreach_mul_(tensors, torch.tensor(2.0))
    assert tensors[1].tolist() == [[10.0, 24.0]], f"torch._foreach_mul_ does not scale by a tensor in place; {MEND}"
    unpromised.foreach_copy_(tensors, fresh())
    assert tensors[0].tolist() == [3.0, 4.0], f"torch._foreach_copy_ does not copy in place; {MEND}"
    unpromised.foreach_lerp_(tensors, [torch.zeros(2), torch.zeros(1, 2)], 0.25)
    assert tensors[0].tolist() == [2.25, 3.0], f"torch._foreach_lerp_ does not go a quarter of the way; {MEND}"


def test_torch_tells_of_every_operation() -> None:
    seen: list[tuple[str, int, int]] = []
    with unpromised.watching_operations(lambda name, given, found: seen.append((name, len(given), len(found)))):
        x = torch.ones(2)
        x[:1] = (x > 0).any(dim=0, keepdim=True)
    names = [name for name, *_ in seen]
    assert names == ["ones", "gt", "any", "slice", "copy_"], f"torch names its operations otherwise: {names}; {MEND}"
    assert seen[-1] == ("copy_", 2, 1), f"torch no longer returns what it writes into; {MEND}"


def test_torch_tells_of_its_transforms() -> None:
    found = []
    torch.func.vmap(lambda x: found.append(unpromised.inside_transform()) or x)(torch.zeros(2))
    found.append(unpromised.inside_transform())
    assert found == [True, False], f"torch no longer tells whether a transform is active; {MEND}"


@wp.struct
class Doubled:
    given: wp.int32
    found: wp.uint64


def test_warp_writes_a_snippet_between_braces_and_takes_arguments_as_they_are() -> None:
    start_warp()
    # A template cannot stand inside a function: this compiles only where our brace closes Warp's.
    declare = unpromised.declare_source("template <typename T> CUDA_CALLABLE T twice(T x) { return x + x; }", "twice")
    module = unpromised.warp_module("trot_test_unpromised", {"enable_backward": False})
    assert module.options["enable_backward"] is False, f"a Warp module's options no longer change so; {MEND}"

    @wp.func_native("*(int*)call.found = twice(call.given);")
    def write(call: Doubled): ...

    @wp.kernel(module=module)
    def double(call: Doubled):
        declare()
        write(call)

    structure = unpromised.warp_structure(Doubled)
    assert issubclass(structure, ctypes.Structure), f"Warp no longer packs a struct as a ctypes structure; {MEND}"
    names = [name for name, _ in structure._fields_]
    assert names == ["given", "found"], f"Warp no longer packs a struct's members in order; {MEND}"
    found = ctypes.c_int(0)
    try:
        with quiet_warp():
            launch = wp.launch(double, dim=1, inputs=[Doubled()], device="cpu", record_cmd=True)
    except Exception as error:
        raise AssertionError(f"Warp no longer writes native code between braces that we may close; {MEND}") from error
    for given in (21, -4):
        unpromised.set_argument(launch, structure(given, ctypes.addressof(found)))
        launch.launch()
        assert found.value == 2 * given, f"a recorded launch does not take another argument as it is; {MEND}"
    function, bounds = unpromised.cpu_entry(launch)
    # As C calls it: with two addresses.
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(ctypes.cast(function, ctypes.c_void_p).value)
    packed = structure(-7, ctypes.addressof(found))
    entry(ctypes.addressof(bounds), ctypes.addressof(packed))
    assert found.value == -14, f"the function of a CPU kernel no longer takes bounds and arguments; {MEND}"


def test_viser_starts_through_serve_of_websockets_and_names_its_controls() -> None:
    pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')
    from websockets.asyncio import server as websockets_server

    serve, seen = websockets_server.serve, []

    def remember(settings: dict[str, object]) -> dict[str, object]:
        seen.append(settings)
        return settings

    try:
        server = unpromised.start_viser("127.0.0.1", 0, remember)
    except RuntimeError as error:
        raise AssertionError(f"viser no longer calls websockets.asyncio.server.serve; {MEND}") from error
    try:
        assert websockets_server.serve is serve, "other servers of this process get viser's settings"
        names = {"process_request", "max_size"}
        assert len(seen) == 1 and names <= seen[0].keys(), f"viser no longer hands serve() what we wrap; {MEND}"
        assert callable(seen[0]["process_request"]), f"viser no longer answers with its page in process_request; {MEND}"
        uuids = [unpromised.control_uuid(server.gui.add_checkbox(label, False)) for label in ("one", "two")]
        assert len(set(uuids)) == 2 and all(uuids), f"viser no longer keeps a control's name in _impl.uuid; {MEND}"
    finally:
        server.stop()


def test_a_viser_that_starts_otherwise_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    viser = pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')
    stopped = []

    class Otherwise:
        def __init__(self, **_: object) -> None: ...

        def stop(self) -> None:
            stopped.append(self)

    monkeypatch.setattr(viser, "ViserServer", Otherwise)
    with pytest.raises(RuntimeError, match="another way"):
        unpromised.start_viser("127.0.0.1", 0, lambda settings: settings)
    assert len(stopped) == 1


def test_warp_asks_before_it_looks_into_its_cache() -> None:
    start_warp()
    module = unpromised.warp_module("trot_test_before_loading", {"enable_backward": False})
    asked: list[tuple[Path, str]] = []

    def prepare(folder: Path, binary: str, build: Callable[[Path], object]) -> None:
        asked.append((folder, binary))
        shutil.rmtree(folder, ignore_errors=True)
        build(folder)
        for file in (folder / binary, folder / f"{folder.name}.meta"):
            assert file.is_file(), f"Warp's compiler no longer leaves {file.name} where it is told to; {MEND}"
        made.append((folder / binary).stat().st_ino)

    made: list[int] = []
    unpromised.before_loading(module, prepare)

    @wp.kernel(module=module)
    def idle():
        pass

    with quiet_warp():
        wp.launch(idle, dim=1, device="cpu")
    assert len(asked) == 1, f"Warp no longer compiles through Module._compile with the place of the binary; {MEND}"
    ((folder, binary),) = asked
    assert folder.parent == Path(wp.config.kernel_cache_dir or ""), f"Warp's cache lies elsewhere; {MEND}"
    assert made == [(folder / binary).stat().st_ino], f"Warp compiled again what was there already; {MEND}"


def test_nothing_private_is_used_elsewhere() -> None:
    """What PyTorch, Warp and viser mark as private with an underscore stands in trot/unpromised.py alone."""
    root = Path(unpromised.__file__).parent
    private = re.compile(r"\b(torch|wp|warp|viser)(\.\w+)*\._[a-z]\w*|\._impl\b")
    users = {
        str(path.relative_to(root)): found.group()
        for path in root.rglob("*.py")
        if (found := private.search(path.read_text("utf-8")))
    }
    assert users.keys() == {"unpromised.py"}, users
