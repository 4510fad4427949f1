"""Makes `python -m trot` the same as `trot`, which begins here, too."""

import os
import sys


def run() -> int:
    """Run the command line; Ctrl-C is no traceback either while it is being imported."""
    try:
        from trot.cli import main

        code = main()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("trot: stopped")
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough, as in `trot train --help | head`. What Python still has to write at
        # its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(run())
