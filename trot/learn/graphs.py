"""An iteration of SHAC in CUDA graphs: captured once, then replayed without Python and without waiting."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trot.learn.shac import Shac

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
    _warm_up(shac)
    graphs: dict[str, Phase] = {}
    # One pool for all: what one part leaves in memory, the next one reads there.
    pool = torch.cuda.graph_pool_handle()
    for name, phase in phases.items():
        graph = torch.cuda.CUDAGraph()
        for generator in (shac.env.generator, shac.generator):
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=pool):
            phase()
        graphs[name] = graph.replay
    return graphs


def _warm_up(shac: Shac) -> None:
    """One iteration that leaves no trace: kernels are loaded on first use, and a capture cannot wait for that."""
    saved = shac.state_dict()
    side = torch.cuda.Stream(shac.device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(shac.device))
    with torch.cuda.stream(side):
        shac.iterate()
    torch.cuda.current_stream(shac.device).wait_stream(side)
    torch.cuda.synchronize(shac.device)
    # What autograd remembers of the side stream goes with the window.
    del shac.window
    shac.load_state_dict(saved)
