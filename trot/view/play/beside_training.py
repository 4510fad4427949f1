"""`trot train --view`: the page of a run that learns, in a process that yields to the training and ends with it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

from trot.view.play.play_command import play_command

NICENESS = 15
"""Of a core that both want, the training gets 29 parts of 30: Linux weighs them as 1024 to 36."""
THREADS, AUTOGROUP = Path("/proc/self/task"), Path("/proc/self/autogroup")


def main() -> int:
    """Show the run that the arguments name, until standard input ends: when the training ends, in whatever way."""
    threading.Thread(target=_end_with_the_training, daemon=True).start()
    try:
        # Not before it shows something: its start takes seconds of processor time, and somebody waits for it.
        return play_command([*sys.argv[1:], "--watch", "--port", "0"], shown=_yield_to_the_training)
    except (OSError, ValueError) as error:
        print(f"--view: {' '.join(str(error).split())}", flush=True)
        return 2


def _yield_to_the_training() -> None:
    with contextlib.suppress(OSError, AttributeError):
        if THREADS.exists():
            # On Linux each thread has a niceness of its own.
            for thread in THREADS.iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), NICENESS)
        else:
            os.nice(NICENESS)
    # Linux on a desktop shares cores among sessions first, and niceness counts inside of one alone. This process is a
    # session of its own, which can be nice as a whole.
    with contextlib.suppress(OSError):
        if AUTOGROUP.exists():
            AUTOGROUP.write_text(f"{NICENESS}\n")


def _end_with_the_training() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    # Nothing here is worth saving, and imports that are under way would not let go.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
