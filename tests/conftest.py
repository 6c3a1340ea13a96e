"""Makes the fake back-end (`tests/faults`) importable, here and in the processes that tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_FAULTS = Path(__file__).parent / "faults"
_PATHS = [str(_FAULTS), str(_FAULTS.parents[1])]

sys.path[:0] = [path for path in _PATHS if path not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join([*_PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
