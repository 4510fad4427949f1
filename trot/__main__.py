"""Makes `python -m trot` the same as `trot`, which begins here, too."""

import sys


def run() -> int:
    """Run the command line; Ctrl-C is no traceback either while it is being imported."""
    try:
        from trot.cli import main

        return main()
    except KeyboardInterrupt:
        print("trot: stopped")
        return 130


if __name__ == "__main__":
    sys.exit(run())
