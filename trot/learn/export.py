"""`trot export`: an agent as ONNX and as TorchScript, for robots that run without trot.

PyTorch and ONNX are imported when they are needed: the command line's help answers at once, and ONNX is an extra.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trot.command_line import RunPath, parse
from trot.runs.folder import RunFolder

if TYPE_CHECKING:
    import onnx
    from torch import Tensor

    from trot.envs.env import Env
    from trot.learn.agent import Agent, MeanPolicy

ONNX, TORCHSCRIPT, DESCRIPTION = "policy.onnx", "policy.pt", "policy.json"
OPSET, IR_VERSION = 17, 8
"""The oldest that have layer normalisation, so that old runtimes read the file."""
TRIALS = 1000
"""Random observations on which the files are compared with the agent."""
TOLERANCE = 1e-5
"""Largest difference between actions; sums in another order differ by a tenth of it."""


@dataclass
class ExportSettings:
    """Write a trained policy as ONNX and as TorchScript."""

    run: RunPath
    """The run's folder."""
    checkpoint: str = "best"
    """Of the run: initial, iteration_000400, ..., best, last."""
    out: Path | None = None
    """Folder for the files; RUN/export unless given."""


def export_command(arguments: list[str]) -> int:
    """Write a trained policy as ONNX and as TorchScript, and check both files against it."""
    settings = parse(ExportSettings, "trot export", export_command.__doc__, arguments)
    try:
        for name in ("onnx", "onnxruntime"):
            importlib.import_module(name)
    except ImportError as error:
        print(f'trot export needs ONNX: pip install "trot[export]" ({error})', file=sys.stderr)
        return 2

    from trot.envs.registry import make_env
    from trot.learn.agent import load_agent

    run = RunFolder.open(settings.run)
    agent = load_agent(run, settings.checkpoint)
    env = make_env(str(run.settings["task"]), num_worlds=1)
    agent.require_fit(env)
    folder = settings.out or settings.run / "export"
    try:
        differences = export_agent(agent, describe(env, agent, run.settings.get("randomize")), folder)
    except OSError as error:
        raise ValueError(f"cannot write to '{folder}': {error.strerror}") from None
    for name, difference in differences.items():
        print(f"{folder / name}: same actions as the agent's, up to {difference:.1e}")
    print(f"{folder / DESCRIPTION}: what observations and actions mean")
    return 0


def describe(env: Env, agent: Agent | None = None, randomize: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a program needs to know to use the policy; columns are [first, behind the last].

    With the agent its normalisation too; randomize is what it was trained to bear.
    """
    from trot.envs.description import described_actions, described_joints, described_observation

    task = env.task
    return {
        "task": task.name,
        "dt": task.control_dt,
        "rate": 1 / task.control_dt,
        "observation": {name: [columns.start, columns.stop] for name, columns in env.observation_layout.items()},
        "observation_entries": described_observation(env),
        "actuators": list(task.model.actuator_name),
        "actions": described_actions(task),
        "joints": described_joints(task.model),
        "normalization": None if agent is None else _normalization(agent),
        "action_delay": (randomize or {}).get("action_delay", [0, 0]),
        "trained_with": randomize,
    }


def _normalization(agent: Agent) -> dict[str, Any]:
    """What the exported policy itself does to an observation, before its first layer."""
    from trot.learn.agent import MeanPolicy

    policy = MeanPolicy(agent)
    return {"shift": policy.shift.tolist(), "scale": policy.scale.tolist(), "clip": policy.limit, "inside_policy": True}


def export_agent(agent: Agent, description: dict[str, Any], folder: Path) -> dict[str, float]:
    """Write the three files; returns by how much the actions of the two policies differ from the agent's.

    Where they differ by more than TOLERANCE this raises, and nothing in the folder has changed.
    """
    from trot.learn.agent import MeanPolicy

    agent = copy.deepcopy(agent).cpu().requires_grad_(False)
    policy = MeanPolicy(agent).requires_grad_(False)
    observation = _trial_observations(agent)
    expected = agent(observation)
    folder.mkdir(parents=True, exist_ok=True)
    # Files get their final names only after the checks.
    with tempfile.TemporaryDirectory(prefix=".exporting-", dir=folder) as temporary:
        unchecked = Path(temporary)
        (unchecked / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        write_onnx(policy, description, unchecked / ONNX)
        write_torchscript(policy, unchecked / TORCHSCRIPT)
        actions = {
            ONNX: _actions_of_onnx(unchecked / ONNX, observation),
            TORCHSCRIPT: _actions_of_torchscript(unchecked / TORCHSCRIPT, observation),
        }
        differences = {name: float((action - expected).abs().max()) for name, action in actions.items()}
        for name, difference in differences.items():
            # Not the other way round: a difference that is no number must not pass.
            if not difference <= TOLERANCE:
                raise ValueError(
                    f"the actions of {name} differ from the agent's by up to {difference:.1e}, more than "
                    f"{TOLERANCE:.0e}; nothing was exported"
                )
        for name in (ONNX, TORCHSCRIPT, DESCRIPTION):
            os.replace(unchecked / name, folder / name)
    return differences


def write_onnx(policy: MeanPolicy, description: dict[str, Any], path: Path) -> None:
    """The network's graph, node by node, with the description in its metadata."""
    import onnx
    from onnx import TensorProto, helper

    nodes, weights = _onnx_nodes(policy)
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", policy.num_observations])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", policy.num_actions])],
        weights,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="trot",
        producer_version=version("trot"),
    )
    # ONNX holds text only.
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in description.items()}
    helper.set_model_props(model, texts)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def _onnx_nodes(policy: MeanPolicy) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    import torch
    from onnx import helper, numpy_helper
    from torch import nn

    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    last = "observation"

    def add(operation: str, *tensors: Tensor, output: str | None = None, **attributes: Any) -> None:
        """A node that takes the last one's output and these constants."""
        nonlocal last
        place = len(nodes)
        names = [f"constant_{place}_{index}" for index in range(len(tensors))]
        weights.extend(numpy_helper.from_array(t.numpy(), name) for t, name in zip(tensors, names, strict=True))
        output = output or f"hidden_{place}"
        nodes.append(helper.make_node(operation, [last, *names], [output], **attributes))
        last = output

    def add_silu() -> None:
        """The last node's output times its own sigmoid."""
        nonlocal last
        before = last
        add("Sigmoid")
        nodes.append(helper.make_node("Mul", [before, last], [f"hidden_{len(nodes)}"]))
        last = nodes[-1].output[0]

    def add_clip(limit: float, output: str | None = None) -> None:
        add("Clip", torch.tensor(-limit), torch.tensor(limit), output=output)

    def add_mirror_images() -> None:
        """The rows, and behind them their mirror images."""
        nonlocal last
        before = last
        add("MatMul", policy.mirrored_observation)
        nodes.append(helper.make_node("Concat", [before, last], [f"hidden_{len(nodes)}"], axis=0))
        last = nodes[-1].output[0]

    def add_mean_of_both() -> None:
        """Of what rows gave, and the mirror image of what their mirror images gave."""
        nonlocal last
        place = len(nodes)
        straight, mirrored = f"hidden_{place}", f"hidden_{place}_mirrored"
        nodes.append(helper.make_node("Split", [last], [straight, mirrored], axis=0))
        last = mirrored
        add("MatMul", policy.mirrored_action)
        nodes.append(helper.make_node("Add", [straight, last], [f"hidden_{len(nodes)}"]))
        last = nodes[-1].output[0]
        add("Mul", torch.tensor(0.5))

    add("Sub", policy.shift)
    add("Mul", policy.scale)
    if policy.limit is not None:
        add_clip(policy.limit)
    if policy.mirror is not None:
        add_mirror_images()
    for layer in policy.layers:
        match layer:
            case nn.Linear():
                add("Gemm", layer.weight, layer.bias, transB=1)
            case nn.ELU():
                add("Elu", alpha=layer.alpha)
            case nn.ReLU():
                add("Relu")
            case nn.SiLU():
                add_silu()
            case nn.LayerNorm():
                add("LayerNormalization", layer.weight, layer.bias, axis=-1, epsilon=layer.eps)
            case _:
                raise ValueError(f"the export knows no ONNX operation for a layer {type(layer).__name__}")
    if policy.mirror is not None:
        add_mean_of_both()
    if policy.squash == "tanh":
        add("Tanh", output="action")
    else:
        add_clip(1.0, output="action")
    return nodes, weights


def write_torchscript(policy: MeanPolicy, path: Path) -> None:
    """A module that torch.jit.load() reads, in Python and in C++."""
    import torch

    example = torch.zeros(2, policy.num_observations)
    with _torchscript():
        torch.jit.save(torch.jit.trace(policy, example), str(path))  # type: ignore[no-untyped-call]


def _trial_observations(agent: Agent) -> Tensor:
    """Like those of the training: around its mean, with its deviation."""
    import torch

    mean, variance = agent.normalizer.mean, agent.normalizer.variance
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(TRIALS, len(mean), generator=generator, dtype=mean.dtype)
    return (mean + variance.sqrt() * noise).float()


def _actions_of_onnx(path: Path, observation: Tensor) -> Tensor:
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"observation": observation.numpy()})
    return torch.from_numpy(action)


def _actions_of_torchscript(path: Path, observation: Tensor) -> Tensor:
    import torch

    with _torchscript(), torch.no_grad():
        action: Tensor = torch.jit.load(str(path))(observation)  # type: ignore[no-untyped-call]
    return action


@contextlib.contextmanager
def _torchscript() -> Iterator[None]:
    """PyTorch advises against TorchScript, but names nothing else that C++ loads without a compiler."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        yield
