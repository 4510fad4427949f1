"""Runs the CUDA source of a step without a GPU: 32 lanes on one core, one after the other from barrier to barrier.

Each lane is a thread of its own making (ucontext) that gives up the core at every barrier and shuffle. The next lane
goes on in the order that is asked for. Where a lane reads what another writes without a barrier in between, the order
changes the result; where lanes wait at different places, the program ends. Only a shuffle that stands where a barrier
should goes unseen: here all lanes catch up at it, and a GPU promises that of no memory.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trot.sim.build import Variant, source
from trot.sim.layout import kernel_layout
from trot.sim.model import Model

COMPILER = shutil.which("g++")
FORWARD, BACKWARD = 0, 1
ORDERS = {"first to last": 0, "last to first": 1, "shuffled": 2}

LANES_ON_ONE_CORE = r"""
#include <cmath>
#include <cstring>
#include <ucontext.h>
#include <algorithm>
#include <random>
#include <vector>
#define __CUDA_ARCH__ 900
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
using std::sqrt; using std::rint;

constexpr int warp_lanes = 32;
enum Waits { RUNS, AT_BARRIER, AT_SHUFFLE, HAS_ENDED };
static ucontext_t lane_context[warp_lanes], scheduler;
static Waits waits[warp_lanes];
static double shown[warp_lanes];
static int running;

static __attribute__((noinline)) void wait_at(Waits place) {
    const int lane = running;
    waits[lane] = place;
    swapcontext(&lane_context[lane], &scheduler);
}
static void __syncwarp() { wait_at(AT_BARRIER); }
template <typename Number> static Number __shfl_sync(unsigned, Number value, int other) {
    shown[running] = value;
    wait_at(AT_SHUFFLE);
    const double result = shown[other];
    wait_at(AT_SHUFFLE);
    return Number(result);
}
static float __frcp_rn(float a) { return 1 / a; }
static double __drcp_rn(double a) { return 1 / a; }
static float rsqrtf(float a) { return 1 / sqrt(a); }
static double rsqrt(double a) { return 1 / sqrt(a); }
"""

ONE_STEP = r"""
using namespace trot;
static Work work; static Tensors tensors; static Cotangents cotangents;
static int direction, block;
static std::vector<char> stack[warp_lanes];

static void run_lane(int lane) {
    if (direction == 0) run_forward(work, tensors, block * warp_lanes + lane);
    else run_backward(work, tensors, cotangents, block * warp_lanes + lane);
    wait_at(HAS_ENDED);
}
// Whether all lanes came to the same barriers.
static bool run_block(int order, std::mt19937& random) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
        stack[lane].resize(1 << 20);
        getcontext(&lane_context[lane]);
        lane_context[lane].uc_stack.ss_sp = stack[lane].data();
        lane_context[lane].uc_stack.ss_size = stack[lane].size();
        makecontext(&lane_context[lane], (void (*)())run_lane, 1, lane);
        waits[lane] = RUNS;
    }
    int lanes[warp_lanes];
    for (int i = 0; i < warp_lanes; ++i) lanes[i] = order == 1 ? warp_lanes - 1 - i : i;
    while (waits[0] != HAS_ENDED) {
        if (order == 2) std::shuffle(lanes, lanes + warp_lanes, random);
        for (int lane : lanes) {
            running = lane;
            waits[lane] = RUNS;
            swapcontext(&scheduler, &lane_context[lane]);
        }
        for (int lane = 1; lane < warp_lanes; ++lane) if (waits[lane] != waits[0]) return false;
    }
    return true;
}
extern "C" int record_numbers() { return record_size; }
extern "C" int run(int given_direction, int order, void* model, Scalar** t, int worlds, int substeps, double dt) {
    std::vector<BackwardWorkspace> scratch(fits_shared ? 0 : worlds);
    direction = given_direction;
    std::memset(&tensors, 0, sizeof tensors);
    std::memset(&cotangents, 0, sizeof cotangents);
    work.model = (const Model*)model;
    work.scratch = (char*)scratch.data();
    tensors.joint_q = t[0]; tensors.joint_qd = t[1]; tensors.activation = t[2]; tensors.control = t[3];
    tensors.next_q = t[4]; tensors.next_qd = t[5]; tensors.next_activation = t[6]; tensors.trajectory = t[7];
    tensors.num_worlds = tensors.num_blocks = cotangents.bar_rows = worlds;
    tensors.substeps = substeps;
    tensors.substep_dt = dt / substeps;
    cotangents.next_q_bar = t[8]; cotangents.next_qd_bar = t[9]; cotangents.next_activation_bar = t[10];
    cotangents.joint_q_bar = t[11]; cotangents.joint_qd_bar = t[12]; cotangents.activation_bar = t[13];
    cotangents.control_bar = t[14];
    std::mt19937 random(5);
    for (block = 0; block < worlds; ++block) if (!run_block(order, random)) return 0;
    return 1;
}
"""


class StepInLanes:
    """One control step of a model, forward and backward, through the kernels that a GPU would be given."""

    def __init__(self, model: Model, variant: Variant, folder: Path) -> None:
        assert COMPILER is not None
        layout = kernel_layout(model, 32)
        text = source(layout, variant)
        # What only a GPU has: an instruction that changes no number, and memory that the lanes of a block share.
        text = re.sub(r"asm volatile\(\"prefetch[^\n]*?\);", ";", text)
        text = re.sub(r"__shared__ (alignas\(\S*\)) ", r"\1 static ", text)
        code, library = folder / "step.cpp", folder / "step.so"
        code.write_text(LANES_ON_ONE_CORE + text + ONE_STEP)
        # Statics of two such libraries are not one.
        flags = ["-O1", "-std=c++17", "-w", "-shared", "-fPIC", "-fno-gnu-unique", "-ffp-contract=off"]
        subprocess.run([COMPILER, *flags, "-o", library, code], check=True)
        self._library = ctypes.CDLL(str(library))
        self._dtype = variant.dtype
        scalar = np.float32 if variant.dtype == torch.float32 else np.float64
        self._constants = aligned(torch.from_numpy(layout.pack(scalar)))

    def __call__(
        self,
        state: list[Tensor | None],
        control: Tensor,
        bars: list[Tensor | None],
        dt: float,
        substeps: int,
        order: str,
    ) -> list[Tensor]:
        """The next joint_q, joint_qd and activation; derivatives by these three and by the control."""
        worlds = len(control)
        following = [fresh(tensor) for tensor in state]
        by_state, by_control = [fresh(tensor) for tensor in state], fresh(control)
        record = torch.zeros(worlds * substeps * self._library.record_numbers(), dtype=self._dtype)
        tensors = [*state, control, *following, aligned(record), *bars, *by_state, by_control]
        places = (ctypes.c_void_p * len(tensors))(*(None if one is None else one.data_ptr() for one in tensors))
        model = ctypes.c_void_p(self._constants.data_ptr())
        for direction in (FORWARD, BACKWARD):
            together = self._library.run(direction, ORDERS[order], model, places, worlds, substeps, ctypes.c_double(dt))
            assert together, "lanes wait for each other at different places"
        return [one for one in (*following, *by_state, by_control) if one is not None]


def aligned(tensor: Tensor) -> Tensor:
    """The same numbers where a GPU would have them, at a multiple of 64 bytes."""
    room = torch.zeros(len(tensor) + 64, dtype=tensor.dtype)
    first = -room.data_ptr() % 64 // tensor.element_size()
    room[first : first + len(tensor)] = tensor
    return room[first : first + len(tensor)]


def fresh(tensor: Tensor | None) -> Tensor | None:
    """Full of NaN, so that what is not written shows."""
    return None if tensor is None else torch.full_like(tensor, float("nan"))
