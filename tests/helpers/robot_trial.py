"""Robot files, one after the other, in a process of their own: what kills it is the last one that it was given.

Run as a program it reads a file's text per line and answers with what became of it.
"""

import contextlib
import json
import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

LARGEST_MEMORY = 4 << 30
"""Bytes of addresses: far above what a robot takes, PyTorch and compilers included, and below what stops a machine."""
LARGEST_ROBOT = 40
"""Dofs beyond which a kernel takes long to build."""
PATIENCE_SECONDS = 60
STEPS, CONTROL_DT, SUBSTEPS = 3, 1 / 60, 2


class Trials:
    """A process that tries robot files, started anew where one has ended it."""

    def __init__(self):
        self._kernels, self._process = {"left": 0, "built": []}, None
        self._folder = tempfile.TemporaryDirectory()
        self.outcomes = {}

    def begin(self, kernels):
        """Count outcomes anew. Robots are stepped with the kernels that there are, and with so many more."""
        self._kernels["left"] = kernels
        self.outcomes.clear()

    def outcome(self, text, robot="", **how):
        """What became of the file: a word, and what was said. `robot` is a file beside whose meshes it lies."""
        process = self._process = self._process or self._start()
        case = {"text": text, "robot": robot, "kernels": self._kernels, **how}
        process.stdin.write(json.dumps(case) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            word, said, self._kernels = json.loads(line)
            if "want of memory" in said:
                # MuJoCo keeps a lock then, and the next file that it would warn of waits for it without end.
                self._end()
        else:
            process.kill()
            word = f"ended the process: {process.wait()}" if ready else "hangs"
            said, self._process = Path(self._folder.name, "stderr").read_text()[-2000:], None
        self.outcomes[word] = self.outcomes.get(word, 0) + 1
        return word, said

    def _start(self):
        with Path(self._folder.name, "stderr").open("w") as told:
            return subprocess.Popen(
                [sys.executable, __file__], cwd=self._folder.name, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=told, text=True,
            )  # fmt: skip

    def close(self):
        self._end()
        self._folder.cleanup()

    def _end(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(PATIENCE_SECONDS)
            self._process.stdout.close()
            self._process = None


def _try(case, kernels):
    from trot.sim.load import load_model

    source = case["text"]
    if case["robot"]:
        source = Path("assets", "changed.xml")
        source.write_text(case["text"], encoding="utf-8", errors="surrogatepass")
    how = {name: value for name, value in case.items() if name not in ("text", "robot", "kernels")}
    try:
        model = load_model(source, **how)
    except ValueError as error:
        return _refusal(error, str(source) if case["robot"] else "robot")
    return _steps(model, kernels)


def _refusal(error, beginning):
    from trot.sim.errors import ModelError

    if type(error) is not ModelError or not str(error).startswith(f"{beginning}: "):
        raise error
    return "refused", str(error)


def _steps(model, kernels):
    """Whether it moves, and whether a flag tells where it cannot."""
    import torch

    from trot.sim.build import Variant, module_name, source
    from trot.sim.guard import BOUND, Guard
    from trot.sim.launch import launcher
    from trot.sim.layout import kernel_layout
    from trot.sim.programs import FORWARD
    from trot.sim.step import Physics, guarded_step

    variant, programs = Variant(torch.float32), (FORWARD,)
    if model.num_dofs > LARGEST_ROBOT:
        return "loaded", "too large to step here"
    needed = module_name(source(kernel_layout(model, 1), variant, programs))
    if needed not in kernels["built"]:
        if kernels["left"] == 0:
            return "loaded", "no kernel to step it with"
        kernels["left"] -= 1
        kernels["built"].append(needed)
    run = launcher(model, variant, torch.device("cpu"), programs)
    state = model.default_state(2)
    joint_q, joint_qd, activation = state.joint_q, state.joint_qd, state.activation
    physics = Physics(run, CONTROL_DT, SUBSTEPS, Guard(joint_q[:1], torch.zeros(())))
    lower, upper = (torch.tensor(bound, dtype=torch.float32) for bound in model.sample_range())
    control, flagged = torch.stack([lower, upper]), False
    for _ in range(STEPS):
        joint_q, joint_qd, activation, sound, *_ = guarded_step(physics, joint_q, joint_qd, control, None, activation)
        if not (joint_q.abs() <= BOUND).all() or not (joint_qd.abs() <= BOUND).all():
            return "not finite, without a flag", f"{joint_q.tolist()} {joint_qd.tolist()}"
        flagged |= not bool(sound.all())
    return ("blew up, flagged" if flagged else "stepped"), ""


def main():
    """Answer each line of stdin; what libraries print goes elsewhere."""
    import trot

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_MEMORY, LARGEST_MEMORY))
    shutil.copytree(Path(trot.__path__[0]) / "envs" / "assets", "assets", dirs_exist_ok=True)
    for line in sys.stdin:
        case = json.loads(line)
        kernels = case["kernels"]
        try:
            word, said = _try(case, kernels)
        except Exception:
            word, said = "another error", traceback.format_exc()
        with contextlib.suppress(BrokenPipeError):
            answers.write(json.dumps([word, said, kernels]) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
