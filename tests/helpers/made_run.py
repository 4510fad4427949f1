"""A run as a trainer leaves it, made by hand: random networks, and statistics of random observations."""

import json
from dataclasses import asdict, replace

import torch

from trot.envs.registry import make_env
from trot.learn.agent import AgentDescription
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.runs.folder import RunFolder

SMALL = ShacSettings(actor_hidden=(16, 8))


def make_agent(observations, actions, settings=SMALL, seed=0, **changes):
    generator = torch.Generator().manual_seed(seed)
    description = AgentDescription(
        observations,
        actions,
        settings.actor_hidden,
        settings.policy,
        settings.initial_log_std,
        normalize=settings.normalize_observations,
        **changes,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        agent = description.build()
        # Also what begins as ones and zeros, so that a mistake with it shows.
        with torch.no_grad():
            for parameter in agent.policy.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape))
    scale = torch.logspace(-1, 1, observations)
    agent.normalizer.update(scale * (torch.randn(100, observations, generator=generator) + 1))
    return agent


def make_run(root, task="cartpole", **changes):
    """The run, and the agent in its checkpoint "best"; "last" is another agent's."""
    settings = replace(SMALL, **changes)
    env = make_env(task, num_worlds=1)
    best, last = (make_agent(env.num_observations, env.num_actions, settings, seed) for seed in (0, 1))
    run = RunFolder.create(
        root,
        task,
        {
            "task": task,
            "algo": "shac",
            "preset": "tuned",
            "seed": 0,
            "device": "cpu",
            "settings": asdict(settings),
            "agent": best.described(),
        },
    )
    run.save_checkpoint("best", {"agent": best.saved()})
    run.save_checkpoint("last", {"agent": last.saved(), "iteration": 7})
    return run, best


def rewrite_settings(run, change):
    """Let change() alter the content of settings.json; returns the run, opened again."""
    settings = json.loads((run.path / "settings.json").read_text())
    del settings["checksum"]
    change(settings)
    (run.path / "settings.json").write_text(json.dumps(settings))
    return RunFolder.open(run.path)
