"""What verl finds through the entry point `verl.plugins`: it registers our functions, and nothing else.

Patches that let verl run without a GPU act only where ARLARENA_VERL_CPU=1 asks for them; they come first,
because verl asks for its platform while its modules are imported.
"""

from __future__ import annotations

import os
from importlib import import_module

CPU = "ARLARENA_VERL_CPU"
"""Environment variable: 1 lets verl run without a GPU."""

if os.environ.get(CPU) == "1":
    import_module("trainers.verl.cpu_platform")
import_module("trainers.verl.registrations")
