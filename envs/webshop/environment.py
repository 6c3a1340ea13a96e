"""WebShop as a text environment, and what the platform asks of it.

The anchor of a state is its observation. In the modes `text_rich` and `compact` that is all of the state but
the last query (on pages of results) and what was clicked before; the official mode `text` does not show which
options are chosen either, so states that differ in them share an anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.demonstrations import demonstrate
from envs.pool import SerialPool
from envs.text_env import Demonstration, Info, Inventory, Need, Split, TextEnv
from envs.webshop import reward, search
from envs.webshop.browsing import Link, Visit, follow, links, parse_action, queries
from envs.webshop.browsing import search as search_for
from envs.webshop.config import WebShopConfig
from envs.webshop.expert import WebShopExpert
from envs.webshop.files import DataError, find_files, fingerprint
from envs.webshop.generator import GENERATOR
from envs.webshop.nouns import WORDS, NounsError, resolve
from envs.webshop.pages import click_name, observe, write_action
from envs.webshop.shop import Shop, open_shop, split_stock
from envs.webshop.vocabulary import vocabulary
from envs.webshop.wording import plain

if TYPE_CHECKING:
    from envs.playing import Policy
    from envs.webshop.browser import ShopServer

_TASK = """You shop on the web for what the instruction describes.
On the search page, search[<words>] finds products. On the other pages, click[<name>] clicks on something \
that the page shows: a product, a value of an option, Description, Features, Reviews, < Prev, Next > or \
Back to Search. Choose every option that the instruction asks for, then click[Buy Now]: that ends the \
episode, and what you bought is compared with the instruction. You have {turns} turns."""

_QUICK = 20_000
"""Generated catalogues up to this size are made when a study is planned, to see whether the goals suffice."""


class WebShopEnv(TextEnv):
    """One episode; `visit` is there for the expert.

    Info holds, beside what every environment gives, `score` (of the purchase, 0 before), `nouns` (what found
    the nouns of titles for it) and `void` (whether the turn was no action that the page knows).
    """

    visit: Visit

    def __init__(self, config: WebShopConfig) -> None:
        self.config = config
        self._shop: Shop | None = None
        self._clickable: dict[str, Link] = {}
        self._turns = 0
        self._over = True

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the shop, which each process opens itself."""
        return {**self.__dict__, "_shop": None}

    @property
    def shop(self) -> Shop:
        """The shop that all episodes of this process visit."""
        if self._shop is None:
            self._shop = open_shop(self.config)
        return self._shop

    def reset(self, seed: int, options: Mapping[str, Any] | None = None) -> tuple[str, Info]:
        """Start with goal `seed` modulo the goals of the split; see `TextEnv.reset`."""
        self.visit = Visit(self.shop.goal(seed, (options or {}).get("split", "train")))
        self._turns = 0
        self._over = False
        return self._observe()

    def step(self, text: str) -> tuple[str, float, bool, bool, Info]:
        """Search or click; see `TextEnv.step`. Raises ValueError when no episode is running.

        Anything else, also a click on what is not there, changes nothing but the number of turns.
        """
        if self._over:
            raise ValueError("the episode is over: reset first")
        visit = self.visit
        action = parse_action(text)
        void = True
        if action is not None and action.verb == "search":
            void = visit.page != "search"
            search_for(self.shop, visit, action.argument)
        elif action is not None and (link := self.clickable().get(action.argument)):
            void = False
            follow(self.shop, visit, link)
        self._turns += 1
        terminated = visit.score is not None
        truncated = not terminated and self._turns >= self.config.max_turns
        self._over = terminated or truncated
        paid = self.config.rewards.step
        if visit.score is not None:
            paid += self.config.rewards.score * visit.score.total
            paid += self.config.rewards.success * visit.score.success
        observation, info = self._observe()
        info["void"] = void
        return observation, paid, terminated, truncated, info

    def clickable(self) -> dict[str, Link]:
        """The links of the current page by the names that `click[...]` has for them; the first of a name."""
        return self._clickable

    def _observe(self) -> tuple[str, Info]:
        config, visit = self.config, self.visit
        text = observe(
            self.shop, visit, config.observation, page_size=config.page_size, page_words=config.page_words
        )
        self._clickable = {}
        for link in links(self.shop, visit, config.page_size):
            self._clickable.setdefault(click_name(link, config.observation), link)
        score = visit.score
        return text, {
            "anchor": text,
            "admissible": self._admissible(),
            "success": score is not None and score.success,
            "void": False,
            "score": score.total if score else 0.0,
            "nouns": self.shop.nouns_by,
        }

    def _admissible(self) -> list[str] | None:
        mode = self.config.observation
        if self.visit.page != "search":
            return [write_action("click", name, mode) for name in self._clickable]
        if self.config.search == "free":
            return None
        choices = queries(self.visit.goal, self.config.queries)
        if mode == "compact":
            choices = list(dict.fromkeys(map(plain, choices)))
        return [write_action("search", query, mode) for query in choices]


class WebShopEnvironment:
    """See `envs.text_env.Environment`."""

    config_type = WebShopConfig

    def data_id(self, config: WebShopConfig) -> str:
        """The generator's name or the fingerprint of the files, and what finds the nouns of titles."""
        data = GENERATOR if config.data_path is None else f"files-{_fingerprint(config.data_path)}"
        return f"{data} nouns:{_nouns_by(config)}"

    def problems(self, config: WebShopConfig) -> list[str]:
        """Missing packages, files or models, and too few goals."""
        packages = {**search.PACKAGES, **reward.PACKAGES}
        missing = [distribution for module, distribution in packages.items() if find_spec(module) is None]
        found = [f"webshop needs {name}: pip install {name}" for name in missing]
        try:
            resolve(config.nouns)
        except NounsError as error:
            found.append(str(error))
        try:
            if config.data_path is not None:
                find_files(Path(config.data_path), human=config.goals == "human")
            elif config.catalogue.products <= _QUICK:
                split_stock(config)
        except DataError as error:
            found.append(str(error))
        return found

    def inventory(self, config: WebShopConfig) -> Inventory:
        """Search and reward come with the platform; a spaCy model finds nouns where there is one."""
        if config.data_path is not None:
            data = f"WebShop's files in {config.data_path}"
        else:
            data = f"{config.catalogue.products:,} products made from a seed"
        try:
            model = resolve(config.nouns)
        except NounsError:
            model = WORDS
        remedy = "pip install spacy; python -m spacy download en_core_web_lg"
        return Inventory(
            data, (Need("spaCy model", None if model == WORDS else model, remedy, optional=True),)
        )

    def task(self, config: WebShopConfig) -> str:
        """The rules."""
        return _TASK.format(turns=config.max_turns)

    def vocabulary(self, config: WebShopConfig) -> tuple[str, ...]:
        """Every word of the pages, goals, queries and thoughts; unreadable for large catalogues."""
        return vocabulary(config)

    def has_anchors(self, config: WebShopConfig) -> bool:
        """Observations recur."""
        return True

    def make(self, config: WebShopConfig) -> WebShopEnv:
        """One environment."""
        return WebShopEnv(config)

    def make_pool(self, config: WebShopConfig) -> SerialPool:
        """Environments side by side in one shop."""
        return SerialPool(lambda: WebShopEnv(config))

    def pages(self, config: WebShopConfig, *, seed: int, split: Split, policy: Policy | None) -> ShopServer:
        """The shop as web pages of this machine, for a person, or to watch a policy."""
        from envs.webshop.browser import ShopServer

        return ShopServer(config, seed=seed, split=split, policy=policy)

    def expert(self, config: WebShopConfig) -> WebShopExpert:
        """A customer who knows every product."""
        return WebShopExpert(config)

    def demonstrations(
        self, config: WebShopConfig, *, episodes: int, seed: int, explore: float, error: float, history: int
    ) -> list[Demonstration]:
        """As `envs.demonstrations.demonstrate` gives them."""
        return demonstrate(
            lambda: WebShopEnv(config),
            self.expert(config),
            max_turns=config.max_turns,
            episodes=episodes,
            seed=seed,
            explore=explore,
            error=error,
            history=history,
        )


def _fingerprint(data_path: str) -> str:
    try:
        return fingerprint(Path(data_path))
    except DataError:
        # `problems` says what is wrong; an environment that cannot run still needs a name in the plan
        return "missing"


def _nouns_by(config: WebShopConfig) -> str:
    try:
        return resolve(config.nouns)
    except NounsError:
        return f"{config.nouns} missing"


WEBSHOP = WebShopEnvironment()
