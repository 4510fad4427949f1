"""Several processes that train one policy, each with a share of the worlds: PyTorch's distributed engine, put to work.

`torchrun --nproc-per-node 2 -m trot train ant` starts them. All draw the same random numbers and take the same steps
of the optimiser, because what they step by is reduced over all of them first. Rank 0 runs the training loop and writes;
the others follow what it says. Without torchrun nothing here is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from trot.sim.threads import get_num_threads, set_num_threads

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process."""
PATIENCE = timedelta(minutes=10)
"""Before a rank that does not answer counts as lost; the first one to compile kernels may take a minute or two."""
ITERATE, STATE, END = range(3)
"""What rank 0 tells the others to do: an iteration, to give their state, or to go."""


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
            self.tell(STATE)

    def dismiss(self) -> None:
        """On rank 0: the others are done."""
        self.leading = False
        # Where one of them is lost, so is this.
        with contextlib.suppress(LostRankError):
            self.tell(END)

    def tell(self, command: int, iteration: int = 0) -> None:
        """On rank 0: what all are to do now."""
        with _losses_told():
            dist.broadcast(torch.tensor([command, iteration]), src=0, group=self._beside)

    def hear(self) -> list[int]:
        """On the others: the command and the number of the iteration that rank 0 told."""
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


@contextlib.contextmanager
def _losses_told() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise LostRankError(f"another rank does not answer any more ({reason})") from None
