"""``python -m rankbits``."""

import sys

from rankbits.cli import main

sys.exit(main())
