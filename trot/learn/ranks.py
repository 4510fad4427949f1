"""Several processes that train one policy, each with a share of the worlds: PyTorch's distributed engine, put to work.

`torchrun --nproc-per-node 2 -m trot train ant` starts them. All draw the same random numbers and take the same steps
of the optimiser, because what they step by is reduced over all of them first. Rank 0 runs the training loop and writes;
the others follow what it says. Without torchrun nothing here is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from trot.interruption import Interruption
from trot.learn.torch_threads import one_torch_thread
from trot.sim.threads import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from trot.learn.learner import Learner

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process."""
PATIENCE = timedelta(minutes=10)
"""Before a rank that does not answer counts as lost; the first one to compile kernels may take a minute or two."""
WORLD_AXES = {"episodes.collected": 0, "episodes.age": 0, "bad_window.noise": 1, "bad_window.start_*": 0}
"""Of what a learner saves: where each rank has the rows of its own worlds, and along which axis."""
ITERATE, STATE, END = range(3)

NumberedRun = Callable[[int], None]


class LostRankError(ValueError):
    """Another process does not answer any more."""


class Ranks:
    """The processes of one training, as one of them sees it.

    Args:
        number: Its own, from 0.
        size: How many there are.
        cuda: Whether they work on GPUs.
    """

    def __init__(self, number: int, size: int, cuda: bool) -> None:
        self.number, self.size = number, size
        self.leading = False
        """Whether the others wait for what this one tells them."""
        with _losses_told():
            dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
            # What is said between iterations, and what is saved, goes past the GPUs.
            self._beside = dist.new_group(backend="gloo", timeout=PATIENCE) if cuda else dist.group.WORLD

    def part(self, num_worlds: int) -> int:
        """Of so many worlds, those of each rank."""
        if num_worlds % self.size:
            raise ValueError(f"num_worlds {num_worlds} must be a multiple of {self.size}: as many worlds on every rank")
        return num_worlds // self.size

    def rows(self, each: int) -> slice:
        """This rank's, where each has so many."""
        return slice(self.number * each, (self.number + 1) * each)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each of them added up over all ranks, in one message. They have one precision."""
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        with _losses_told():
            dist.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The same, divided by the number of ranks."""
        return [total / self.size for total in self.sum(tensors)]

    def gathered(self, rows: Tensor, dim: int = 0) -> Tensor:
        """All ranks' rows, one rank's after the other's, on the CPU."""
        own = rows.detach().cpu().movedim(dim, 0).contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        if own.numel():
            with _losses_told():
                dist.all_gather(parts, own, group=self._beside)
        return torch.cat(parts).movedim(0, dim).contiguous()

    def ask_for_state(self) -> None:
        """Where this rank leads, the others are told to give theirs now, too."""
        if self.leading:
            self._tell(STATE)

    def joined(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """What a learner saves, with the rows of all ranks: as a single process with all worlds would save it."""
        whole = dict(state)
        for name, part in state.items():
            axis = _world_axis(name)
            if axis is not None:
                whole[name] = self.gathered(part, axis)
        return whole

    def own_part(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The way back from joined()."""
        own = dict(state)
        for name, part in state.items():
            axis = _world_axis(name)
            if axis is not None:
                own[name] = part.tensor_split(self.size, dim=axis)[self.number]
        return own

    def led(self, phases: Mapping[str, NumberedRun]) -> dict[str, NumberedRun]:
        """On rank 0: the phases of an iteration, as all ranks run them. From here on the others do what it says."""
        first, *_ = phases

        def told(iteration: int) -> None:
            self._tell(ITERATE, iteration)
            phases[first](iteration)

        self.leading = True
        return {**phases, first: told}

    def dismiss(self) -> None:
        """On rank 0: the others are done."""
        self.leading = False
        # Where one of them is lost, so is this.
        with contextlib.suppress(LostRankError):
            self._tell(END)

    def follow(self, learner: Learner, phases: Mapping[str, NumberedRun]) -> None:
        """On the other ranks: do what rank 0 says, until it says that it is done. Signals are for rank 0."""
        with Interruption(), one_torch_thread():
            while True:
                command, iteration = self._hear()
                if command == END:
                    return
                if command == STATE:
                    learner.state_dict()
                else:
                    for phase in phases.values():
                        phase(iteration)

    def _tell(self, command: int, iteration: int = 0) -> None:
        with _losses_told():
            dist.broadcast(torch.tensor([command, iteration]), src=0, group=self._beside)

    def _hear(self) -> list[int]:
        message = torch.zeros(2, dtype=torch.int64)
        with _losses_told():
            dist.broadcast(message, src=0, group=self._beside)
        heard: list[int] = message.tolist()
        return heard


def launched() -> bool:
    """Whether torchrun started this process together with others."""
    return all(name in os.environ for name in LAUNCHED) and int(os.environ["WORLD_SIZE"]) > 1


def follows() -> bool:
    """Whether this process helps another one, which reads and writes the run folder."""
    return launched() and os.environ["RANK"] != "0"


def refuse_ranks(what: str) -> None:
    """Raise where torchrun started several processes for something that one alone does."""
    if launched():
        raise ValueError(f"{what} runs in one process: start it without torchrun")


@functools.cache
def ranks_on(device: str) -> Ranks | None:
    """Those that this process belongs to, working on cpu or cuda; None without torchrun. To be asked any time."""
    if not launched():
        return None
    local, beside = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if device.startswith("cuda"):
        if beside > torch.cuda.device_count():
            raise ValueError(f"there are {torch.cuda.device_count()} GPUs here for {beside} ranks: --nproc-per-node")
        torch.cuda.set_device(local)
    else:
        # They share the cores of this machine.
        set_num_threads(max(1, get_num_threads() // beside))
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), device.startswith("cuda"))


def _world_axis(name: str) -> int | None:
    return next((axis for pattern, axis in WORLD_AXES.items() if fnmatch(name, pattern)), None)


@contextlib.contextmanager
def _losses_told() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise LostRankError(f"another rank does not answer any more ({reason})") from None
