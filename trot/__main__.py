"""Makes `python -m trot` the same as `trot`."""

import sys

from trot.cli import main

sys.exit(main())
