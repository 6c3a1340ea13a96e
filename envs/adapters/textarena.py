"""TextArena's games: for one, or for two with an opponent of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envs.adapters.config import TextArenaConfig
from envs.adapters.engine import Engine, Reply, Start, make_inner, named
from envs.adapters.environment import AdapterEnvironment
from envs.text_env import Split

_POLICY = 0


class TextArenaEngine(Engine):
    """The policy is player 0. An observation is what the game's own wrapper makes of the messages so far.

    The reward comes with the last turn, as the library gives it. It says who won for games of two; one that
    is played alone is won with `success_reward`. Every episode is a new game: the library's wrappers go on
    showing the messages of the one before otherwise.
    """

    def __init__(self, make: Callable[[], Any], opponent: Callable[[str], str] | None) -> None:
        self._make, self._opponent = make, opponent
        self.inner = make()

    def start(self, seed: int, split: Split) -> Start:
        """See `Engine.start`."""
        self.inner = self._make()
        self.inner.reset(num_players=1 if self._opponent is None else 2, seed=seed)
        done, text = self._until_turn()
        return Start("The game is over." if done else text, None)

    def act(self, action: str) -> Reply:
        """See `Engine.act`."""
        done, _ = self.inner.step(action=action)
        text = ""
        if not done:
            done, text = self._until_turn()
        if not done:
            return Reply(text, None, 0.0, terminated=False, truncated=False)
        rewards, told = self.inner.close()
        reward = float((rewards or {}).get(_POLICY, 0.0))
        reason = (told or {}).get(_POLICY, {}).get("reason", "")
        success = reward > 0 if self._opponent is not None else None
        return Reply(str(reason), None, reward, terminated=True, truncated=False, success=success)

    def _until_turn(self) -> tuple[bool, str]:
        """Let the opponent move until it is the policy's turn: whether the game is over, and what it sees."""
        while True:
            player, observation = self.inner.get_observation()
            text = _joined(observation)
            if player == _POLICY or self._opponent is None:
                return False, text
            done, _ = self.inner.step(action=self._opponent(text))
            if done:
                return True, ""


def _joined(observation: Any) -> str:
    """One text; unwrapped games (`-raw`) give messages: (sender, text, kind)."""
    if isinstance(observation, str):
        return observation.strip()
    return "\n".join(str(message[1]) for message in observation).strip()


def open_textarena(config: TextArenaConfig) -> TextArenaEngine:
    """The engine of a configuration. Raises AdapterError."""
    import textarena

    opponent = None if config.opponent is None else named(config.opponent, "opponent")
    return TextArenaEngine(lambda: make_inner(config, textarena.make)[0], opponent)


TEXTARENA = AdapterEnvironment(
    TextArenaConfig,
    open_textarena,
    module="textarena",
    distribution="textarena",
    remedy="pip install 'arlarena[adapters]'",
)
