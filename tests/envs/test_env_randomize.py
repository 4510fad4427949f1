"""Physics of its own for each world, drawn anew for each episode."""

import torch

import trot

RANDOM = trot.Randomize(friction=(0.5, 1.5), mass=(0.8, 1.25), motor_strength=(0.7, 1.3))


def make(worlds=64, **options):
    env = trot.make_env("ant", worlds, dtype=torch.float64, randomize=RANDOM, **options)
    env.reset()
    return env


def test_factors_lie_in_their_ranges_and_fill_them():
    env = make(256)
    model, row = env.task.model, env.worlds.parameter
    mass = row[:, : model.num_bodies]
    friction = row[:, -model.num_shapes :] / torch.tensor(model.shape_friction)
    for factors, (low, high) in ((mass, (0.8, 1.25)), (friction, (0.5, 1.5)), (env.worlds.strength, (0.7, 1.3))):
        assert low <= factors.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < factors.max() <= high
    # Friction is the ground's: one factor for all shapes of a world.
    assert torch.allclose(friction, friction[:, :1])
    assert len(torch.unique(mass[0])) == model.num_bodies
    # Stiffness and damping of the contacts stay.
    middle = row[:, model.num_bodies : -model.num_shapes]
    assert (middle == middle[0]).all()


def test_a_step_is_the_simulators_with_those_parameters():
    env = make()
    model, worlds = env.task.model, env.worlds
    action = torch.linspace(-1, 1, 64 * 8, dtype=torch.float64).view(64, 8)
    parameters = trot.Parameters(
        body_mass=worlds.parameter[:, : model.num_bodies] * torch.tensor(model.body_mass),
        friction=worlds.parameter[:, -model.num_shapes :].contiguous(),
    )
    expected = trot.step(model, env.state, action * worlds.strength, 1 / 60, 16, parameters)
    env.step(action)
    torch.testing.assert_close(env.state.joint_qd, expected.joint_qd, rtol=0, atol=1e-9)


def test_only_a_world_that_starts_anew_gets_new_physics():
    env = make()
    joint_q = env.state.joint_q.clone()
    joint_q[5, 2] = 0.1
    env.place(trot.State(joint_q, env.state.joint_qd))
    before = env.worlds
    assert env.step(torch.zeros(64, 8, dtype=torch.float64))[2].nonzero().flatten().tolist() == [5]
    for name in ("parameter", "strength"):
        same = (getattr(env.worlds, name) == getattr(before, name)).all(dim=1)
        assert same.logical_not().nonzero().flatten().tolist() == [5]


def test_the_nominal_pose_can_have_random_physics():
    env = make(stochastic_start=False)
    assert (env.state.joint_q == env.state.joint_q[0]).all()
    assert not (env.worlds.parameter == env.worlds.parameter[0]).all()
