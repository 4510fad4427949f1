"""What trot uses of PyTorch, Warp and viser that they do not promise to keep, in one place.

tests/test_unpromised.py says in words what broke when a new version changes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    import viser

_serve_replaced = threading.Lock()


def foreach_norm(tensors: list[Tensor]) -> list[Tensor]:
    """The Euclidean norm of each tensor, in one operation."""
    return list(torch._foreach_norm(tensors))


def foreach_mul_(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply each tensor by one number, in place and in one operation."""
    torch._foreach_mul_(tensors, factor)


def foreach_add_(tensors: list[Tensor], others: list[Tensor] | float) -> None:
    """Add to each tensor the other that belongs to it, or one number, in place and in one operation."""
    torch._foreach_add_(tensors, others)


def fused_adam_(
    weights: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    steps: list[Tensor],
    rate: Tensor,
    betas: tuple[float, float],
) -> None:
    """A step of Adam for each weight, in place and in one operation; `steps` count this one already."""
    torch._fused_adam_(
        weights, gradients, means, squares, [], steps,
        lr=rate, beta1=betas[0], beta2=betas[1], weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


def foreach_copy_(tensors: list[Tensor], sources: list[Tensor]) -> None:
    """Overwrite each tensor by its source, in one operation."""
    torch._foreach_copy_(tensors, sources)


def foreach_lerp_(tensors: list[Tensor], ends: list[Tensor], weight: float) -> None:
    """Move each tensor that part of the way to its end, in place and in one operation."""
    torch._foreach_lerp_(tensors, ends, weight)


def inside_transform() -> bool:
    """Whether vmap, jvp, grad or another transform of torch.func runs the caller."""
    return torch._C._are_functorch_transforms_active()


def watching_operations(
    saw: Callable[[str, list[Tensor], list[Tensor]], None],
) -> contextlib.AbstractContextManager[object]:
    """While this is entered, `saw` is told the name, the tensors given and those returned of every operation."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def tensors(values: Any) -> list[Tensor]:
        return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
        ) -> Any:
            result = function(*arguments, **(named or {}))
            saw(function.overloadpacket.__name__, tensors((arguments, named)), tensors(result))
            return result

    watching: contextlib.AbstractContextManager[object] = Watching()  # type: ignore[no-untyped-call]
    return watching


def declare_source(text: str, key: str) -> Any:
    """A Warp function that does nothing when called but puts `text` at namespace scope, in front of later functions.

    Warp writes a native snippet between the braces of a function. Headers with types and templates cannot stand there,
    so the snippet closes that function and opens an empty one for the brace that Warp adds.
    """
    import warp as wp

    def declare() -> None: ...

    declare.__name__ = declare.__qualname__ = f"declare_{key}"
    return wp.func_native(f"}}\n{text}\nstatic CUDA_CALLABLE void end_of_{key}() {{\n")(declare)


def warp_module(name: str, options: dict[str, Any]) -> Any:
    """A Warp module that stands for no Python module, with compiler options of its own."""
    import warp as wp

    module = wp.get_module(name)
    module.options.update(options)
    return module


def before_loading(module: Any, prepare: Callable[[Path, str, Callable[[Path], object]], None]) -> None:
    """Have `prepare(folder, binary, build)` called before Warp looks into its cache for a module's files.

    Warp loads `folder/binary` if it is there and compiles it if not; build(elsewhere) compiles into another folder.
    """
    compile_module = module._compile

    def compile_or_find(
        device: Any = None, output_dir: Any = None, output_name: Any = None, *rest: Any, **how: Any
    ) -> Any:
        # Who compiles without loading leaves the name to Warp.
        if output_name is not None and device is not None:

            def build(elsewhere: Path) -> object:
                return compile_module(device, str(elsewhere), output_name, *rest, **how)

            prepare(Path(output_dir), output_name, build)
        return compile_module(device, output_dir, output_name, *rest, **how)

    module._compile = compile_or_find


def clang_headers() -> Path | None:
    """Where Warp's clang looks for precompiled headers in this thread, and leaves them; None where it does not."""
    from warp._src import context

    look = getattr(context.runtime, "get_clang_pch_dir", None)
    found = None if look is None else look()
    return None if found is None else Path(found)


def warp_headers() -> Path:
    """Where Warp's own headers lie."""
    import warp as wp

    return Path(str(wp.__file__)).parent / "native"


def warp_structure(struct: Any) -> type[ctypes.Structure]:
    """The ctypes structure in which Warp hands a value of its struct to a kernel."""
    return type(struct().__ctype__())


def set_argument(launch: Any, packed: ctypes.Structure) -> None:
    """Give a recorded launch of a kernel with one argument another value of it, without Warp's slow checks."""
    launch.set_params_from_ctypes([packed])


def cpu_entry(launch: Any) -> tuple[Any, ctypes.Structure]:
    """The C function behind a recorded launch on the CPU, which takes the addresses of two structures, and the first.

    That is Warp's bounds of the launch, which the function only reads; the second is all arguments one after the other.
    """
    return launch.hooks.forward, launch.params[0]


def start_viser(host: str, port: int, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> viser.ViserServer:
    """A viser server whose websockets server starts with other settings than viser's, which offers no way to them.

    Its thread looks serve() up in the module of websockets and has called it when the constructor returns. Where it no
    longer does there is no server, rather than one that changed() has not seen.
    """
    import viser
    from websockets.asyncio import server as module

    serve, ports = module.serve, []

    def serve_changed(handler: Any, on: Any, at: Any, **settings: Any) -> Any:
        ports.append(at)
        return serve(handler, on, at, **changed(settings))

    with _serve_replaced:
        module.serve = serve_changed  # type: ignore[assignment, misc]
        try:
            server = viser.ViserServer(host=host, port=port, verbose=False)
        finally:
            module.serve = serve  # type: ignore[misc]
    if not ports:
        server.stop()
        raise RuntimeError("this version of viser starts its server in another way: install viser 1.1")
    return server


def control_uuid(control: Any) -> str:
    """What a page calls a control of viser's panel when it tells of a new value."""
    return str(control._impl.uuid)
