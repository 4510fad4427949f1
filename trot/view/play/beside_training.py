"""`trot train --view`: the page of a run that learns, in a process that yields to the training and ends with it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from trot.view.play.play_command import play_command

NICENESS = 19
"""Where cores are short, the training gets 98.5 % of one that both want: Linux weighs them as 1024 to 15."""


def main() -> int:
    """Show the run that the arguments name, until standard input ends: when the training ends, in whatever way."""
    threading.Thread(target=_end_with_the_training, daemon=True).start()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    try:
        return play_command([*sys.argv[1:], "--watch", "--port", "0"])
    except (OSError, ValueError) as error:
        print(f"--view: {' '.join(str(error).split())}", flush=True)
        return 2


def _end_with_the_training() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    # Nothing here is worth saving, and imports that are under way would not let go.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
