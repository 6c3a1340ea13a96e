"""An environment that can be told to die, hang or raise in the middle of an episode."""

from __future__ import annotations

import os
import signal
import time

from envs.text_env import TextEnv


class Unruly(TextEnv):
    """Counts turns; can say its process, so that tests see who plays. Negative seeds are its death."""

    def __init__(self, limit=3, speaks_of_itself=False):
        self.limit, self.speaks_of_itself = limit, speaks_of_itself
        self.seed, self.turns = 0, 0

    def reset(self, seed, options=None):
        if seed < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seed, self.turns = seed, 0
        return self._look((options or {}).get("split", "train"))

    def step(self, text):
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "leave":
            os._exit(7)
        if text == "hang":
            time.sleep(1000)
        if text == "raise":
            raise ValueError(f"turn {self.turns} of seed {self.seed}")
        self.turns += 1
        text, info = self._look(text)
        return text, float(self.turns), info["success"], self.turns >= self.limit, info

    def _look(self, said):
        who = f" in {os.getpid()}" if self.speaks_of_itself else ""
        text = f"seed {self.seed} turn {self.turns} {said}{who}"
        return text, {"anchor": text, "admissible": ["go", "win"], "success": said == "win"}
