"""`trot render`: videos, animations and strips, and what it says where it cannot make them."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from made_run import make_run

from trot import cli
from trot.envs.registry import TASKS
from trot.view.motion.record import record
from trot.view.motion.trajectory import Trajectory
from trot.view.video import offscreen
from trot.view.video.encode import GAP
from trot.view.video.offscreen import NoOpenGL, open_context
from trot.view.video.render import render_command
from trot.view.video.scene import Scene, _smooth

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg", reason='needs pip install "trot[video]"')
Image = pytest.importorskip("PIL.Image", reason='needs pip install "trot[video]"')

WALKER = Path(__file__).parents[2] / "examples" / "walker" / "my_task.py"
SMALL = ["--width", "160", "--height", "90"]


@pytest.fixture(scope="module")
def opengl():
    """Skips what draws where nothing can."""
    try:
        open_context(16, 16).free()
    except NoOpenGL as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def motion(tmp_path_factory):
    """One second of two Ants that act at random, as a file."""
    path = tmp_path_factory.mktemp("motion") / "ants.npz"
    record("ant", agent="random", worlds=2, seconds=1.0).save(path)
    return str(path)


@pytest.fixture
def trot(monkeypatch, capsys):
    """Runs `trot render`, and gives back its exit code and what it wrote to stderr."""
    monkeypatch.setitem(cli.COMMANDS, "render", render_command)

    def run(*arguments):
        code = cli.main(["render", *map(str, arguments)])
        return code, capsys.readouterr().err

    return run


def test_video(opengl, trot, motion, tmp_path):
    out = tmp_path / "ant.mp4"
    code, told = trot(motion, out, "--seconds", 0.5, "--fps", 24, *SMALL)
    assert code == 0
    assert "12/12" in told, "the progress bar ends at the last frame"
    frames = imageio_ffmpeg.read_frames(str(out))
    about = next(frames)
    pictures = [np.frombuffer(frame, np.uint8).reshape(90, 160, 3).astype(int) for frame in frames]
    assert about["size"] == (160, 90)
    assert about["fps"] == 24
    assert about["codec"].startswith("h264")
    count, seconds = imageio_ffmpeg.count_frames_and_secs(str(out))
    assert (count, len(pictures)) == (12, 12)
    assert seconds == pytest.approx(0.5, abs=0.05)
    for picture in pictures:
        assert picture.std() > 10, "a blank frame"
    assert np.abs(pictures[-1] - pictures[0]).max() > 50, "nothing moves"
    assert [file.name for file in tmp_path.iterdir()] == ["ant.mp4"]


def test_motion_is_as_fast_as_it_was(opengl, trot, motion, tmp_path, monkeypatch):
    drawn = []

    def draw(self, frame):
        drawn.append(frame)
        return np.zeros((16, 16, 3), np.uint8)

    monkeypatch.setattr(Scene, "draw", draw)
    # A frame of the motion lasts 1/60 s.
    for fps, seconds, expected in ((60, 0.1, range(6)), (30, 0.2, range(0, 12, 2)), (120, 1 / 24, [0, 0, 1, 2, 2])):
        drawn.clear()
        assert trot(motion, tmp_path / "x.gif", "--fps", fps, "--seconds", seconds)[0] == 0
        assert drawn == list(expected)
    drawn.clear()
    assert trot(motion, tmp_path / "x.gif", "--seconds", 50)[0] == 0
    assert len(drawn) == 15, "no longer than the motion"


def test_the_beginning_can_be_left_out(opengl, trot, motion, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Scene, "draw", lambda _, frame: drawn.append(frame) or np.zeros((16, 16, 3), np.uint8))
    assert trot(motion, tmp_path / "x.gif", "--fps", 60, "--begin", 0.5, "--seconds", 0.1)[0] == 0
    assert drawn == list(range(30, 36))
    drawn.clear()
    assert trot(motion, tmp_path / "x.png", "--begin", 0.5, "--seconds", 0.4, "--frames", 3)[0] == 0
    assert drawn == [30, 42, 54]
    drawn.clear()
    # The motion lasts a second.
    assert trot(motion, tmp_path / "x.png", "--begin", 0.9, "--frames", 2)[0] == 0
    assert drawn == [54, 60]
    code, told = trot(motion, tmp_path / "x.png", "--begin", 1.5)
    assert code == 2 and "the motion lasts 1.00 s" in told


def test_animation(opengl, trot, motion, tmp_path):
    assert trot(motion, tmp_path / "ant.gif", "--seconds", 0.2, "--fps", 30, "--width", 120, "--height", 80)[0] == 0
    with Image.open(tmp_path / "ant.gif") as animation:
        assert animation.size == (120, 80)
        assert animation.n_frames == 6
        milliseconds = []
        for index in range(6):
            animation.seek(index)
            milliseconds.append(animation.info["duration"])
            assert np.asarray(animation.convert("RGB")).std() > 10
    assert sum(milliseconds) == 200
    assert set(milliseconds) == {30, 40}


def test_a_gif_is_small_unless_asked_otherwise(opengl, trot, motion, tmp_path):
    assert trot(motion, tmp_path / "ant.gif")[0] == 0
    with Image.open(tmp_path / "ant.gif") as animation:
        # A second of motion.
        assert (animation.size, animation.n_frames) == ((480, 270), 15)
        assert len(animation.convert("RGB").getcolors()) <= 64
    # Ten such seconds would be 2 MB.
    assert (tmp_path / "ant.gif").stat().st_size < 200_000


def test_strip(opengl, trot, motion, tmp_path):
    out = tmp_path / "ant.png"
    assert trot(motion, out, "--frames", 3, "--world", 1, "--width", 100, "--height", 80)[0] == 0
    with Image.open(out) as strip:
        assert strip.size == (3 * 100 + 2 * GAP, 80)
        pixels = np.asarray(strip.convert("RGB")).astype(int)
    first, last = pixels[:, :100], pixels[:, -100:]
    assert np.all(pixels[:, 100 : 100 + GAP] == 255)
    assert np.abs(last - first).max() > 50
    trajectory = Trajectory.load(motion)
    with Scene(trajectory, 1, 100, 80) as scene:
        np.testing.assert_array_equal(first, scene.draw(0))
        np.testing.assert_array_equal(last, scene.draw(len(trajectory.begins) - 1))


@pytest.mark.parametrize("task", TASKS)
def test_every_task_can_be_seen(opengl, task):
    trajectory = record(task, agent="random", steps=2)
    with Scene(trajectory, 0, 192, 108) as scene:
        picture = scene.draw(2).astype(int)
    assert picture.shape == (108, 192, 3)
    sky, middle = picture[:10], picture[30:78, 60:132]
    assert sky.mean() > 200, "the sky is light"
    colourful = np.ptp(middle, axis=2) > 60
    assert colourful.mean() > 0.02, "the robot stands in the middle"


def test_muscles_turn_red(opengl):
    trajectory = record("muscle_humanoid", agent="zero", steps=2)
    trajectory.control[1], trajectory.control[2] = 0, 1
    trajectory.joint_q[2] = trajectory.joint_q[1]
    with Scene(trajectory, 0, 192, 108) as scene:
        relaxed, tense = scene.draw(1).astype(int), scene.draw(2).astype(int)
    assert (tense[..., 0] - relaxed[..., 0]).max() > 60
    assert (relaxed[..., 2] - tense[..., 2]).max() > 60


def test_run_and_robot_file(opengl, trot, tmp_path):
    run, _ = make_run(tmp_path)
    saved = tmp_path / "motion.npz"
    options = ["--frames", 2, "--width", 64, "--height", 48, "--seconds", 0.5]
    assert trot(run.path, tmp_path / "run.png", "--save-trajectory", saved, "--seed", 3, *options)[0] == 0
    trajectory = Trajectory.load(saved)
    assert len(trajectory.begins) == 31
    np.testing.assert_array_equal(trajectory.joint_q, record(str(run.path), steps=30, seed=3).joint_q)
    assert trot("examples/walker/walker.urdf", tmp_path / "walker.png", *options)[0] == 0


def test_camera_keeps_up_and_jumps_at_resets():
    time = np.arange(60.0)
    path = np.column_stack([time, np.zeros(60), np.sin(2 * time)])
    path[40:, 0] -= 40
    begins = np.isin(time, [0, 40])
    smooth = _smooth(path, begins, width=8.0)
    np.testing.assert_allclose(smooth[:, 0], path[:, 0], atol=1e-9)
    assert np.abs(np.diff(smooth[5:35, 2])).max() < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ant", "OUT/x.avi"], "must end in .mp4, .gif, .png"),
        (["ant", "OUT/missing/x.png"], "there is no folder"),
        (["ant", "OUT/x.mp4", "--width", 101], "must be even"),
        (["ant", "OUT/x.png", "--height", 4], "16 to 8192"),
        (["ant", "OUT/x.png", "--seconds", 0], "seconds and fps must be above 0"),
        (["ant", "OUT/x.png", "--begin", -1], "begin must be 0 or more seconds"),
        (["ant", "OUT/x.png", "--frames", 0], "frames must be at least 1"),
    ],
)
def test_what_cannot_be_asked_for(trot, tmp_path, arguments, message):
    code, told = trot(*(str(argument).replace("OUT", str(tmp_path)) for argument in arguments))
    assert code == 2
    assert told.startswith("trot render: ")
    assert message in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_shown(opengl, trot, motion, tmp_path):
    run, _ = make_run(tmp_path)
    (run.path / "checkpoints" / "best.pt").write_bytes(b"half a file")
    (tmp_path / "broken.npz").write_bytes(b"half a file")
    out = tmp_path / "x.png"
    for source, message, *options in (
        (run.path, "cannot be read"),
        (run.path, "no checkpoint 'third'", "--checkpoint", "third"),
        (tmp_path / "broken.npz", "is not a trajectory"),
        (motion, "none of number 2", "--world", 2),
        ("anth", "tasks are"),
        (f"{WALKER}:Walker", "no policy comes with trot", "--agent", "policy"),
    ):
        code, told = trot(source, out, *options)
        assert code == 2
        assert message in told
        assert told.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(("suffix", "module"), [("mp4", "imageio_ffmpeg"), ("gif", "PIL.Image"), ("png", "PIL.Image")])
def test_missing_extra(trot, tmp_path, monkeypatch, suffix, module):
    monkeypatch.setitem(sys.modules, module, None)
    code, told = trot("ant", tmp_path / f"x.{suffix}")
    assert code == 2
    assert 'pip install "trot[video]"' in told
    assert told.count("\n") == 1


def test_missing_opengl(trot, tmp_path, monkeypatch):
    class Missing:
        @staticmethod
        def import_module(name):
            if name == "mujoco":
                return importlib.import_module(name)
            raise AttributeError("'NoneType' object\nhas no attribute 'eglQueryString'")

    monkeypatch.setattr(offscreen, "importlib", Missing)
    monkeypatch.setattr(offscreen, "_forget", lambda platform: None)
    code, told = trot("ant", tmp_path / "x.png")
    assert code == 2
    assert "apt install libegl1 libgl1" in told and "libosmesa6" in told
    assert told.count("\n") == 1


def test_file_stays_whole_when_drawing_fails(opengl, trot, motion, tmp_path, monkeypatch):
    out = tmp_path / "ant.gif"
    out.write_bytes(b"an older one")

    def fail(self, frame):
        raise ValueError("the lamp broke")

    monkeypatch.setattr(Scene, "draw", fail)
    assert trot(motion, out)[0] == 2
    assert out.read_bytes() == b"an older one"
    assert [file.name for file in tmp_path.iterdir()] == ["ant.gif"]
