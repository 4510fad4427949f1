"""Exported policies: the same actions, whoever runs them, and what they mean."""

import json
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from made_run import make_agent, make_run

from trot import cli
from trot.envs.registry import make_env
from trot.learn import export as export_module
from trot.learn.agent import MeanPolicy, load_agent
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.export import describe, export_agent, export_command

FILES = {"policy.onnx", "policy.pt", "policy.json"}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")


def names_in(folder):
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def actions_of_files(folder, observation):
    session = onnxruntime.InferenceSession(str(folder / "policy.onnx"), providers=["CPUExecutionProvider"])
    (from_onnx,) = session.run(None, {"observation": observation.numpy()})
    from_torchscript = torch.jit.load(str(folder / "policy.pt"))(observation)
    return torch.from_numpy(from_onnx), from_torchscript


@pytest.mark.parametrize("kind", ["gaussian", "state_dependent", "deterministic"])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_files_act_as_the_agent(tmp_path, capsys, kind, normalize):
    run, agent = make_run(tmp_path, "hopper", policy=kind, normalize_observations=normalize)
    assert export_command([str(run.path)]) == 0
    folder = run.path / "export"
    assert names_in(folder) == FILES
    for batch in (1, 7):
        observation = 3 * torch.randn(batch, 11, generator=torch.Generator().manual_seed(batch))
        expected = agent(observation)
        assert expected.shape == (batch, 3)
        for action in actions_of_files(folder, observation):
            torch.testing.assert_close(action, expected, rtol=0, atol=1e-6)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "policy.onnx: same actions as the agent's, up to" in printed.out
    assert "policy.pt: same actions as the agent's, up to" in printed.out


@pytest.mark.parametrize("activation", ["elu", "relu", "silu"])
@pytest.mark.parametrize("layer_norm", [True, False])
def test_the_files_act_as_agents_of_other_layers(tmp_path, activation, layer_norm):
    agent = make_agent(6, 2, activation=activation, layer_norm=layer_norm)
    differences = export_agent(agent, {}, tmp_path)
    assert differences.keys() == {"policy.onnx", "policy.pt"}
    observation = 3 * torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    expected = agent(observation)
    for action in actions_of_files(tmp_path, observation):
        torch.testing.assert_close(action, expected, rtol=0, atol=1e-6)
    # The plain layers of an agent that differs in these alone would act otherwise.
    others = {"activation": "relu" if activation == "elu" else "elu", "layer_norm": layer_norm}
    assert not torch.allclose(make_agent(6, 2, **others)(observation), expected, atol=1e-2)


@pytest.mark.parametrize("kind", ["gaussian", "state_dependent"])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_files_act_as_an_agent_that_clips_what_it_sees_and_cuts_what_it_does(tmp_path, kind, normalize):
    settings = ShacSettings(actor_hidden=(16, 8), policy=kind, normalize_observations=normalize)
    agent, free = (make_agent(6, 2, settings, clip_observations=limit, squash="clamp") for limit in (1.5, None))
    export_agent(agent, {}, tmp_path)
    observation = 30 * torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    expected = agent(observation)
    cut = expected.abs() == 1
    assert cut.any() and not cut.all()
    # Beyond the limit the agent acts as at it.
    shift, scale = agent.normalization(torch.float32)
    near = ((observation - shift) * scale).clamp(-1.5, 1.5) / scale + shift
    torch.testing.assert_close(free(near), expected, rtol=0, atol=1e-5)
    assert not torch.allclose(free(observation), expected, atol=0.1)
    for action in (*actions_of_files(tmp_path, observation), MeanPolicy(agent)(observation)):
        torch.testing.assert_close(action, expected, rtol=0, atol=1e-5)


def test_another_checkpoint_and_folder(tmp_path):
    run, best = make_run(tmp_path)
    out = tmp_path / "some" / "folder"
    assert export_command([str(run.path), "--checkpoint", "last", "--out", str(out)]) == 0
    assert names_in(out) == FILES and not (run.path / "export").exists()
    observation = torch.randn(4, 5)
    for action in actions_of_files(out, observation):
        torch.testing.assert_close(action, load_agent(run, "last")(observation), rtol=0, atol=1e-6)
        assert not torch.allclose(action, best(observation), atol=1e-3)


def test_what_the_files_say_about_themselves(tmp_path):
    run, _ = make_run(tmp_path)
    assert export_command([str(run.path)]) == 0
    told = json.loads((run.path / "export" / "policy.json").read_text())
    shift, scale = load_agent(run).normalization(torch.float32)
    parts = ["position", "velocity", "sine", "cosine", "angle_rate"]
    entries, (action,) = told.pop("observation_entries"), told.pop("actions")
    assert [entry["part"] for entry in entries] == parts and all("unit" in entry for entry in entries)
    assert action["name"] == "cart" and action["gear"] == [1000]
    assert [joint["name"] for joint in told.pop("joints")] == ["cart", "pole"]
    assert told == {
        "task": "cartpole",
        "dt": 1 / 60,
        "rate": 60,
        "observation": {name: [column, column + 1] for column, name in enumerate(parts)},
        "actuators": list(make_env("cartpole", 1).task.model.actuator_name),
        "normalization": {
            "shift": shift.tolist(), "scale": scale.tolist(), "clip": None, "inside_policy": True,
        },
        "action_delay": [0, 0],
        "trained_with": None,
    }  # fmt: skip
    model = onnx.load(run.path / "export" / "policy.onnx")
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties.pop("task") == "cartpole"
    told = json.loads((run.path / "export" / "policy.json").read_text())
    assert {name: json.loads(text) for name, text in properties.items()} == {
        name: value for name, value in told.items() if name != "task"
    }


def test_inputs_and_outputs_of_the_onnx_file(tmp_path):
    run, _ = make_run(tmp_path, "hopper")
    assert export_command([str(run.path)]) == 0
    session = onnxruntime.InferenceSession(str(run.path / "export" / "policy.onnx"))
    (observation,), (action,) = session.get_inputs(), session.get_outputs()
    assert (observation.name, observation.shape, observation.type) == ("observation", ["batch", 11], "tensor(float)")
    assert (action.name, action.shape, action.type) == ("action", ["batch", 3], "tensor(float)")
    (far,) = session.run(None, {"observation": np.full((2, 11), 1e6, dtype=np.float32)})
    assert np.abs(far).max() <= 1


def test_columns_and_actuators_cover_everything():
    env = make_env("ant", 1)
    told = describe(env)
    columns = [column for first, behind in told["observation"].values() for column in range(first, behind)]
    assert columns == list(range(env.num_observations))
    assert len(told["actuators"]) == env.num_actions == len(set(told["actuators"])) == len(told["actions"])
    assert len(told["observation_entries"]) == env.num_observations


def test_deviations_are_left_out():
    agent = make_agent(6, 2, ShacSettings(policy="state_dependent"))
    assert agent.policy.network[-1].out_features == 4
    assert MeanPolicy(agent).layers[-1].out_features == 2


def test_the_agent_stays_as_it_is(tmp_path):
    agent = make_agent(6, 2)
    before = {name: tensor.clone() for name, tensor in agent.state_dict().items()}
    export_agent(agent, {}, tmp_path)
    assert all(tensor.equal(before[name]) for name, tensor in agent.state_dict().items())
    assert all(parameter.requires_grad for parameter in agent.parameters())


def test_no_warning_comes_out(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_agent(make_agent(6, 2), {}, tmp_path)


@pytest.mark.parametrize("writer", ["write_onnx", "write_torchscript"])
def test_a_spoilt_file_is_noticed_and_nothing_is_left(tmp_path, monkeypatch, capsys, writer):
    run, _ = make_run(tmp_path)
    folder = run.path / "export"
    honest = getattr(export_module, writer)

    def spoilt(policy, *rest):
        with torch.no_grad():
            policy.layers[-1].bias += 1e-3
            honest(policy, *rest)
            policy.layers[-1].bias -= 1e-3

    with monkeypatch.context() as patch:
        patch.setattr(export_module, writer, spoilt)
        assert cli.main(["export", str(run.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ("policy.onnx" if writer == "write_onnx" else "policy.pt") in line and "differ from the agent's" in line
    assert names_in(folder) == set()

    # Files of an earlier export stay as they were.
    assert cli.main(["export", str(run.path)]) == 0
    before = {name: (folder / name).read_bytes() for name in FILES}
    monkeypatch.setattr(export_module, writer, spoilt)
    assert cli.main(["export", str(run.path)]) == 2
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == before


def test_an_agent_that_is_not_finite_is_not_exported(tmp_path):
    agent = make_agent(6, 2)
    with torch.no_grad():
        agent.policy.network[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="by up to nan"):
        export_agent(agent, {}, tmp_path)
    assert names_in(tmp_path) == set()


def test_layers_without_an_onnx_operation_are_named(tmp_path):
    agent = make_agent(6, 2)
    agent.policy.network[1] = torch.nn.GELU()
    with pytest.raises(ValueError, match="no ONNX operation for a layer GELU"):
        export_agent(agent, {}, tmp_path)


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch, capsys, missing):
    run, _ = make_run(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    assert export_command([str(run.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'pip install "trot[export]"' in line
    assert not (run.path / "export").exists()


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path, capsys):
    run, _ = make_run(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    assert cli.main(["export", str(run.path), "--out", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"cannot write to '{file}'" in line


def test_commands_are_imported_without_pytorch():
    code = "import sys, trot.learn.evaluate, trot.learn.export; print({'torch', 'onnx', 'warp'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
