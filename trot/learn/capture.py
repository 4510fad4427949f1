"""The iterations of a learner: on CUDA in graphs, captured once, then replayed without Python and without waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from trot.learn.learner import Learner, Phase
from trot.learn.torch_threads import one_torch_thread
from trot.sim.threads import get_num_threads, run_beside

Run = Callable[[], None]
NumberedRun = Callable[[int], None]


def fast_phases(learner: Learner) -> dict[str, NumberedRun]:
    """The parts of an iteration by name: as they are on the CPU, captured on CUDA.

    To be called in this order, with the number of the iteration, counted from 0.
    """
    phases = learner.phases()
    names = [phase.name for phase in phases]
    if len(set(names)) < len(names):
        raise ValueError(f"two phases have the same name: {', '.join(names)}")
    if phases[0].beside_last:
        raise ValueError(f"the first phase, '{phases[0].name}', has none before it that it could run beside")
    for before, phase in pairwise(phases):
        if before.beside_last and phase.beside_last:
            raise ValueError(f"'{phase.name}' cannot run beside '{before.name}', which runs beside another itself")
        if phase.beside_last and (before.due or phase.due):
            raise ValueError(f"'{phase.name}' cannot run beside '{before.name}': one of them is not always due")
    runs = _in_threads(phases) if learner.device.type == "cpu" else _captured(learner, phases)
    return {phase.name: _when_due(phase, runs[phase.name]) for phase in phases}


def _when_due(phase: Phase, run: Run) -> NumberedRun:
    def run_if_due(iteration: int) -> None:
        if phase.takes_part(iteration):
            run()

    return run_if_due


def _in_threads(phases: tuple[Phase, ...]) -> dict[str, Run]:
    """The phases as they are. One that runs beside another has a thread of its own, where there is one to spare."""
    runs = {phase.name: _repeated(phase.run, phase.times) for phase in phases}
    for phase, following in pairwise(phases):
        if following.beside_last:
            runs[phase.name], runs[following.name] = _both(runs[phase.name], runs[following.name])
    return runs


def _both(first: Run, second: Run) -> tuple[Run, Run]:
    """The first with the second beside it, and what waits for the second's end."""
    begun: list[Run] = []

    def alone() -> None:
        with one_torch_thread():
            second()

    def run() -> None:
        if get_num_threads() > 1:
            begun.append(run_beside(alone))
        try:
            first()
        except BaseException:
            # Nobody is to find the learner half changed.
            while begun:
                with contextlib.suppress(BaseException):
                    begun.pop()()
            raise

    def turn() -> None:
        if begun:
            begun.pop()()
        else:
            second()

    return run, turn


def _captured(learner: Learner, phases: tuple[Phase, ...]) -> dict[str, Run]:
    """Graphs of the phases. One that runs beside another is begun with it; its own turn only waits for its end."""
    _warm_up(learner)
    main, beside = _new_stream(learner), _new_stream(learner)
    # What one part leaves in memory, the next one reads there. What runs beside must not use again what the other
    # frees, nor share the stream's workspace of the matrix library with it.
    pool, pool_beside = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
    runs: list[Run] = []
    for phase in phases:
        if not phase.captured:
            run = phase.run
        elif phase.beside_last:
            run = _capture(learner, phase, pool_beside, beside)
        else:
            run = _capture(learner, phase, pool, main)
        runs.append(_repeated(run, phase.times))

    def wait() -> None:
        torch.cuda.current_stream(learner.device).wait_stream(beside)

    def both(first: Run, second: Run) -> Run:
        def run() -> None:
            beside.wait_stream(torch.cuda.current_stream(learner.device))
            # In this order, because to launch many small kernels takes a while too.
            first()
            with torch.cuda.stream(beside):
                second()

        return run

    ordered: dict[str, Run] = {}
    for index, phase in enumerate(phases):
        following = phases[index + 1] if index + 1 < len(phases) else None
        if phase.beside_last:
            ordered[phase.name] = wait
        elif following is not None and following.beside_last:
            ordered[phase.name] = both(runs[index], runs[index + 1])
        else:
            ordered[phase.name] = runs[index]
    return ordered


def _repeated(run: Run, times: int) -> Run:
    def again() -> None:
        for _ in range(times):
            run()

    return run if times == 1 else again


def _capture(learner: Learner, phase: Phase, pool: Any, stream: torch.cuda.Stream) -> Run:
    graph = torch.cuda.CUDAGraph()
    for generator in (*learner.env.generators, *learner.generators):
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        phase.run()
    return graph.replay


def _warm_up(learner: Learner) -> None:
    """One iteration that leaves no trace: kernels are loaded on first use, and a capture cannot wait for that."""
    saved = learner.state_dict()
    side = _new_stream(learner)
    side.wait_stream(torch.cuda.current_stream(learner.device))
    with torch.cuda.stream(side):
        for phase in learner.phases():
            phase.run()
    torch.cuda.current_stream(learner.device).wait_stream(side)
    torch.cuda.synchronize(learner.device)
    # What autograd remembers of the side stream goes with it.
    learner.forget()
    learner.load_state_dict(saved)


def _new_stream(learner: Learner) -> torch.cuda.Stream:
    return torch.cuda.Stream(learner.device)  # type: ignore[no-untyped-call]
