"""An iteration of SHAC in CUDA graphs: captured once, then replayed without Python and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trot.learn.algorithms.shac import Shac

Phase = Callable[[], None]


def fast_phases(shac: Shac) -> dict[str, Phase]:
    """The parts of an iteration by name, to be called in this order: as they are on the CPU, captured on CUDA."""
    phases: dict[str, Phase] = {
        "rollout": shac.rollout,
        "backward": shac.improve_policy,
        "critic": shac.fit_critic,
        "other": shac.finish,
    }
    return phases if shac.device.type == "cpu" else _captured(shac, phases)


def _captured(shac: Shac, phases: dict[str, Phase]) -> dict[str, Phase]:
    """Graphs of the phases. The critic's runs beside the backward pass; its own phase only waits for it to end."""
    _warm_up(shac)
    main, beside = _new_stream(shac), _new_stream(shac)
    # What one part leaves in memory, the next one reads there. The critic's graph must not use again what the
    # backward pass frees, nor share the stream's workspace of the matrix library with it.
    pool, pool_beside = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
    graphs = {
        name: _capture(shac, phase, pool_beside, beside) if name == "critic" else _capture(shac, phase, pool, main)
        for name, phase in phases.items()
    }

    def backward() -> None:
        beside.wait_stream(torch.cuda.current_stream(shac.device))
        # In this order, because to launch the critic's many small kernels takes a while too.
        graphs["backward"].replay()
        with torch.cuda.stream(beside):
            graphs["critic"].replay()

    def wait_for_critic() -> None:
        torch.cuda.current_stream(shac.device).wait_stream(beside)

    return {
        "rollout": graphs["rollout"].replay,
        "backward": backward,
        "critic": wait_for_critic,
        "other": graphs["other"].replay,
    }


def _capture(shac: Shac, phase: Phase, pool: Any, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    for generator in (shac.env.generator, shac.generator):
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        phase()
    return graph


def _warm_up(shac: Shac) -> None:
    """One iteration that leaves no trace: kernels are loaded on first use, and a capture cannot wait for that."""
    saved = shac.state_dict()
    side = _new_stream(shac)
    side.wait_stream(torch.cuda.current_stream(shac.device))
    with torch.cuda.stream(side):
        shac.iterate()
    torch.cuda.current_stream(shac.device).wait_stream(side)
    torch.cuda.synchronize(shac.device)
    # What autograd remembers of the side stream goes with the window.
    del shac.window
    shac.load_state_dict(saved)


def _new_stream(shac: Shac) -> torch.cuda.Stream:
    return torch.cuda.Stream(shac.device)  # type: ignore[no-untyped-call]
