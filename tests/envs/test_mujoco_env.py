"""Tasks in MuJoCo: the same starts and rules, moved by MuJoCo itself."""

import docking
import mujoco
import numpy as np
import pytest
import torch

from trot.envs.mujoco_env import MujocoEnv
from trot.envs.registry import make_env, make_task
from trot.learn.evaluate import evaluate
from trot.sim.threads import get_num_threads, set_num_threads

TASK = f"{docking.__file__}:Docking"


def test_it_begins_where_trots_own_does():
    ours, theirs = make_env("ant", 8, seed=3), MujocoEnv(make_task("ant"), 8, seed=3)
    assert ours.reset()[0].equal(theirs.reset()[0])


def test_a_step_is_mujocos():
    env = MujocoEnv(make_task("ant"), 3, seed=1)
    env.reset()
    before, action = env.state, torch.rand(3, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    env.step(action)
    model = env.task.model.source
    assert env.steps_per_control == 9
    for world in range(3):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:], data.ctrl[:] = before.joint_q[world], before.joint_qd[world], action[world]
        timestep, model.opt.timestep = model.opt.timestep, 1 / 60 / 9
        try:
            for _ in range(9):
                mujoco.mj_step(model, data)
        finally:
            model.opt.timestep = timestep
        np.testing.assert_allclose(env.state.joint_q[world], data.qpos, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(env.state.joint_qd[world], data.qvel, rtol=1e-5, atol=1e-5)


def test_the_robots_own_model_stays_as_it_is():
    task = make_task("hopper")
    before = task.model.source.opt.timestep
    MujocoEnv(task, 1).reset()
    assert task.model.source.opt.timestep == before


def test_threads_do_not_change_it():
    found, threads = [], get_num_threads()
    try:
        for count in (1, 3):
            set_num_threads(count)
            env = MujocoEnv(make_task("hopper"), 5, seed=2)
            env.reset()
            for _ in range(5):
                env.step(torch.full((5, 3), 0.5))
            found.append(env.state.joint_q)
    finally:
        set_num_threads(threads)
    assert found[0].equal(found[1])


def test_a_new_episode_owes_nothing_to_the_last():
    """Episodes of the sled end by time; the one after that begins like one in a new environment."""
    env = MujocoEnv(make_task(TASK), 1, seed=4)
    env.reset()
    for _ in range(docking.STEPS):
        env.step(torch.ones(1, 1))
    start, fresh = env.worlds, MujocoEnv(make_task(TASK), 1)
    assert int(start.clock) == 0
    fresh.reset()
    fresh.worlds = start
    for one in (env, fresh):
        one.step(torch.full((1, 1), 0.3))
    assert env.state.joint_q.equal(fresh.state.joint_q) and env.state.joint_qd.equal(fresh.state.joint_qd)


def test_where_mujoco_blows_up_the_world_is_set_aside():
    env = MujocoEnv(make_task(TASK), 2)
    env.reset()
    worlds = env.worlds
    worlds.joint_qd[1] = 1e12
    env.worlds = worlds
    *_, info = env.step(torch.zeros(2, 1))
    assert info["fault"].tolist() == [False, True]
    assert env.state.joint_q.isfinite().all()


def test_without_contact_both_simulators_pay_the_same():
    """The sled: both are exact up to the length of their steps, 2 ms and 100 ms with one substep."""
    agent = _push_back()
    ours, theirs = (evaluate(agent, TASK, 16, seed=5, simulator=name) for name in ("trot", "mujoco"))
    assert theirs.mean_length == docking.STEPS and theirs.falls == theirs.faults == 0
    np.testing.assert_allclose(theirs.returns, ours.returns, rtol=0.1, atol=0.05)
    assert np.corrcoef(theirs.returns, ours.returns)[0, 1] > 0.99
    assert len(theirs.distances) == 16


def _push_back():
    """A trained agent's form with weights that push against offset and speed."""
    from trot.learn.agent import AgentDescription

    agent = AgentDescription(2, 1, (), kind="deterministic", normalize=False).build()
    with torch.no_grad():
        (layer,) = agent.policy.network
        layer.weight.copy_(torch.tensor([[-0.5, -0.5]]))
        layer.bias.zero_()
    return agent


@pytest.mark.parametrize("step", [0.0, -1.0, 1.0])
def test_a_step_that_is_none_is_refused(step):
    with pytest.raises(ValueError, match="longest_step must be above 0 and at most a control step"):
        MujocoEnv(make_task(TASK), 1, longest_step=step)
