"""Pools of episodes: the bookkeeping that all share, and a pool over any single-episode environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from envs.text_env import EnvPool, Info, Observation, Outcome, Split, TextEnv


class EpisodeBook:
    """Which episodes of a pool are running."""

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._started = 0

    def start(self, count: int) -> None:
        """Drop everything and start `count` episodes."""
        self._running = set(range(count))
        self._started = count

    def check(self, episodes: Sequence[int], actions: Sequence[str]) -> None:
        """Raise ValueError unless these are different running episodes with one action each."""
        if len(episodes) != len(actions):
            raise ValueError(f"{len(episodes)} episodes but {len(actions)} actions")
        asked = set(episodes)
        if len(asked) != len(episodes):
            raise ValueError("an episode is named twice in one step")
        if not asked <= self._running:
            episode = min(asked - self._running)
            state = "is over" if 0 <= episode < self._started else "does not exist"
            raise ValueError(f"episode {episode} {state} ({self._started} were started)")

    def is_running(self, episode: int) -> bool:
        """Whether an episode was started and has not ended."""
        return episode in self._running

    def finish(self, episodes: Iterable[int]) -> None:
        """Note that these have ended."""
        self._running.difference_update(episodes)


class SerialPool(EnvPool):
    """Steps environments of `make` one after the other in this process.

    Environments are kept and reset again; as many are made as the largest reset had seeds.
    """

    def __init__(self, make: Callable[[], TextEnv]) -> None:
        self._make = make
        self._envs: list[TextEnv] = []
        self._book = EpisodeBook()

    def reset(self, seeds: Sequence[int], split: Split) -> list[Observation]:
        """See `EnvPool.reset`."""
        while len(self._envs) < len(seeds):
            self._envs.append(self._make())
        started = [env.reset(seed, {"split": split}) for env, seed in zip(self._envs, seeds, strict=False)]
        self._book.start(len(seeds))
        return [_observation(text, info) for text, info in started]

    def step(self, episodes: Sequence[int], actions: Sequence[str]) -> list[Outcome]:
        """See `EnvPool.step`."""
        self._book.check(episodes, actions)
        outcomes = []
        for episode, action in zip(episodes, actions, strict=True):
            text, reward, terminated, truncated, info = self._envs[episode].step(action)
            over = terminated or truncated
            observation = None if over else _observation(text, info)
            success, void = bool(info["success"]), bool(info.get("void", False))
            outcomes.append(Outcome(observation, float(reward), terminated, truncated, success, void))
            if over:
                self._book.finish([episode])
        return outcomes

    def close(self) -> None:
        """Close every environment."""
        self._book.start(0)
        while self._envs:
            self._envs.pop().close()


def _observation(text: str, info: Info) -> Observation:
    admissible = info["admissible"]
    return Observation(text, info["anchor"], None if admissible is None else tuple(admissible))
