"""Other simulators beside trot: what is asked of them, what becomes of those that fail, and the figures worked out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import peer_child
from bench.peer import Case, Numbers, Peer
from bench.peer_check import compare, relative_errors
from bench.peer_list import PEERS
from bench.peer_tables import Checked, Measured, check_table, flaws, notes, settings_table, speed_table
from bench.peers import PeerBenchSettings, draw_case, how_it_ended, run_peer_bench, split_name
from bench.peers_mujoco import Mujoco, MujocoRollout
from bench.robots import ANT

TROT = Measured(
    "trot", "Ant", 64, 16, "0.1.0", "all threads",
    forward_ms=8.0, forward_core_ms=10.0, gradient_ms=20.0, gradient_core_ms=25.0,
    finite_worlds=64, gradient_finite_worlds=64, height=0.26,
)  # fmt: skip
MJX = replace(
    TROT, peer="mjx", version="3.17.0", settings="1 iteration", forward_ms=80.0, forward_core_ms=160.0,
    gradient_ms=None, gradient_core_ms=None, gradient_finite_worlds=None, height=0.36,
)  # fmt: skip


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_names_may_tell_substeps() -> None:
    assert split_name("mujoco") == ("mujoco", None)
    assert split_name("mujoco-rollout@4") == ("mujoco-rollout", 4)
    for wrong in ("mujoco@", "mujoco@0", "mujoco@few"):
        with pytest.raises(ValueError, match="substeps must be a number of at least 1"):
            split_name(wrong)
    with pytest.raises(ValueError, match="there is no peer 'bullet'; there are trot, "):
        split_name("bullet")


def test_a_constraint_solver_stands_larger_steps_than_penalty_contacts() -> None:
    assert PEERS["mujoco-warp"].own_substeps(16) == 4
    assert PEERS["mujoco-warp"].own_substeps(2) == 2
    assert PEERS["newton-featherstone"].own_substeps(16) == 16


def test_mistakes_are_told_before_anything_runs() -> None:
    for wrong, told in (
        (PeerBenchSettings(robots=("horse",)), "there is no robot 'horse'; there are hopper, ant, humanoid"),
        (PeerBenchSettings(worlds=(64, 0)), "worlds must be at least 1, not 0"),
        (PeerBenchSettings(repeats=0), "repeats must be at least 1, not 0"),
        (PeerBenchSettings(python={"bullet": Path("python")}), "there is no peer 'bullet'"),
    ):
        with pytest.raises(ValueError, match=told):
            run_peer_bench(wrong)


def test_rates_and_ratios_by_the_clock_and_by_the_cores() -> None:
    # 64 worlds times 32 control steps: 2048 in 8 ms are 256,000 a second, in 20 ms 102,400 and in 80 ms 25,600.
    assert cells(speed_table([TROT, MJX], [TROT], per_core=False)) == [
        ["trot", "64", "16", "8.00", "256,000", "", "20", "102,400", "", "0.26"],
        ["mjx", "64", "16", "80", "25,600", "10", "", "", "", "0.36"],
    ]
    # 160 ms of a core instead of 10.
    assert cells(speed_table([TROT, MJX], [TROT], per_core=True)) == [
        ["trot", "64", "16", "8.00", "10", "256,000", "", "20", "25", "102,400", "", "0.26"],
        ["mjx", "64", "16", "80", "160", "25,600", "16", "", "", "", "", "0.36"],
    ]
    # Four times the substep and four times as fast; with other numbers of worlds nothing is compared.
    own = replace(MJX, substeps=4, forward_ms=20.0)
    assert cells(speed_table([own, replace(own, worlds=1024)], [TROT], per_core=False)) == [
        ["mjx", "64", "4", "20", "102,400", "2.5", "", "", "", "0.36"],
        ["mjx", "1,024", "4", "20", "1,638,400", "", "", "", "", "0.36"],
    ]
    assert cells(settings_table([TROT, MJX, own])) == [
        ["trot", "0.1.0", "all threads"],
        ["mjx", "3.17.0", "1 iteration"],
    ]


def test_rows_that_are_not_to_be_trusted_are_named() -> None:
    assert flaws(TROT, 0.36) == []
    blown = replace(MJX, finite_worlds=60, gradient_finite_worlds=63)
    assert flaws(blown, 0.36) == [
        "states are NOT FINITE in 4 worlds",
        "gradients are NOT FINITE in 1 worlds",
    ]
    assert flaws(replace(MJX, height=0.86), 0.36) == ["the ground THROWS it: at 0.86 m, where MuJoCo has it at 0.36"]
    (told,) = notes([TROT, replace(MJX, height=-0.9)], 0.36)
    assert told == (
        "- mjx, 64 worlds, 16 substeps: the ground does NOT HOLD it: at -0.90 m, where MuJoCo has it at 0.36"
    )


def test_how_a_simulator_ended_is_one_line() -> None:
    assert how_it_ended(0, "many\nwords\n") == ""
    assert how_it_ended(0, "nefc overflow - please increase njmax to 99\n").endswith("increase njmax to 99")
    assert how_it_ended(1, "Traceback\nMemoryError: no room\n\n") == "exit code 1: MemoryError: no room"
    assert how_it_ended(-9, "") == "ended by SIGKILL, as the system does where memory runs out"
    assert how_it_ended(-11, "") == "ended by SIGSEGV"


def test_a_simulator_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nowhere_to_be_found", "nowhere.to_be_found"):
        monkeypatch.setitem(PEERS, "brax", replace(PEERS["brax"], modules=("mujoco", module)))
        findings = tmp_path / "findings.json"
        peer_child.run("brax", "no case is read", str(findings), gradient=True, check=False, repeats=1, seconds=0.0)
        assert json.loads(findings.read_text()) == {"missing": [module]}
    missing = [Measured("brax", "Ant", 64, 16, missing=("brax",)), Checked("brax", "Ant", missing=("brax",))]
    assert notes(missing) == ["- brax: not installed: pip install brax jax"]
    (quoted,) = notes([Measured("newton-mujoco", "Ant", 64, 16, missing=("newton",))])
    assert quoted.endswith("pip install 'newton[sim]'")


def test_a_simulator_that_crashes_does_not_end_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crash = tmp_path / "python"
    crash.write_text("#!/bin/sh\necho 'OSError: nothing left' >&2\nexit 3\n")
    crash.chmod(0o755)
    kept = tmp_path / "figures.json"
    settings = PeerBenchSettings(
        peers=("mujoco-warp", "mujoco", "mujoco-rollout@2"), worlds=(2,), device="cpu", repeats=1,
        python={"mujoco-warp": crash}, json=kept,
    )  # fmt: skip
    run_peer_bench(settings)
    printed = capsys.readouterr().out
    assert "- mujoco-warp, 2 worlds, 4 substeps: exit code 3: OSError: nothing left" in printed
    assert "### Ant, 16 substeps each" in printed
    figures = [Measured(**one) for one in json.loads(kept.read_text())]
    ran = [(one.peer, one.substeps) for one in figures if one.forward_ms is not None]
    assert ran == [("mujoco", 16), ("mujoco", 4), ("mujoco-rollout", 2)]
    assert all(one.finite_worlds == 2 and one.version for one in figures if one.forward_ms is not None)


def test_a_simulator_that_takes_too_long_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sleeper = tmp_path / "python"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    run_peer_bench(
        PeerBenchSettings(peers=("mujoco@4",), worlds=(2,), device="cpu", python={"mujoco": sleeper}, timeout=0.1)
    )
    assert "- mujoco, 2 worlds, 4 substeps: stopped after 0 s" in capsys.readouterr().out


def test_mujoco_and_its_rollout_come_to_the_same(tmp_path: Path) -> None:
    drawn = draw_case(ANT, worlds=3, substeps=2, device="cpu", control_steps=4)
    drawn.save(tmp_path / "case.npz")
    case = Case.load(tmp_path / "case.npz")
    assert (case.robot, case.substeps, case.worlds, len(case.controls)) == ("Ant", 2, 3, 4)
    ends = []
    for kind in (Mujoco, MujocoRollout):
        peer = kind(case)
        peer.forward()
        ends.append(peer.positions())
    np.testing.assert_allclose(*ends, rtol=1e-12)
    assert not np.allclose(ends[0], case.joint_q)


# Gradients beside differences.


class Cubic(Peer):
    """Each position is the sum of its world's controls, cubed; the gradient is off by a factor."""

    factor = 1.0

    def settings(self) -> str:
        return "made up"

    def forward(self) -> None:
        self.end = self.controls.sum(axis=0) ** 3

    def gradient(self) -> None:
        self.set_controls(self.case.controls)

    def positions(self) -> Numbers:
        return self.end

    def control_gradient(self) -> Numbers:
        once = 3 * self.controls.sum(axis=0) ** 2 * self.factor
        return np.broadcast_to(once, self.controls.shape)

    def set_controls(self, controls: Numbers) -> None:
        self.controls = controls


def test_a_right_gradient_agrees_with_differences_and_a_wrong_one_does_not() -> None:
    controls = np.random.default_rng(1).uniform(0.5, 1.0, (2, 5, 3))
    case = Case("Ant", "", 1, 1 / 60, "cpu", True, 2, np.zeros((5, 1)), np.zeros((5, 1)), controls)
    right, wrong = Cubic(case), Cubic(case)
    wrong.factor = 1.5
    found, doubted = (Checked("made up", "Ant", **compare(peer, controls)) for peer in (right, wrong))
    assert (found.worlds, found.finite_worlds, found.smooth_worlds) == (5, 5, 5)
    assert found.worst_error is not None and found.worst_error < 1e-6
    assert doubted.median_error == pytest.approx(0.5, rel=1e-4)
    ((_, _, settings, finite, *_, median, _),) = cells(check_table([doubted]))
    assert (settings, finite, median) == ("made up", "5 of 5", "5.0e-01")


def test_errors_are_told_where_differences_agree() -> None:
    # Two worlds, three widths: the first's last two agree on 2; the second's never agree to 1 %.
    slopes = np.array([[5.0, 1.0], [2.0, 2.0], [2.0, 4.0]])
    errors, smooth = relative_errors(np.array([2.2, np.nan]), slopes)
    assert smooth.tolist() == [True, False]
    assert errors[0] == pytest.approx(0.1)
    assert errors[1] == np.inf
