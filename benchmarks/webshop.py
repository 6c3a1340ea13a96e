"""WebShop's speed: steps with 1,000 and 50,000 products, opening a shop, demonstrations.

CPU time of this process. Steps are the expert's, no search remembered from an earlier one. The original needs
Java and an old torch and does not install beside this; the peer of the search is bm25s's own, with the same
stemmer and stop words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import bm25s
import Stemmer
import yaml

from envs.registry import load_environment
from envs.webshop.search import K1, STOP_WORDS, B
from envs.webshop.shop import Shop, _open, _stock, open_shop

ROOT = Path(__file__).parents[1]
SIZES = (1_000, 50_000)
EPISODES = 200
LIMITS_MS = {1_000: 1.0, 50_000: 3.0}


def configuration(name: str, **catalogue: Any) -> Any:
    values = yaml.safe_load((ROOT / f"arena/conf/env/{name}.yaml").read_text(encoding="utf-8"))
    return load_environment({**values, "catalogue": {**values["catalogue"], **catalogue}})


def timed(work: Callable[[], object]) -> float:
    """CPU-seconds of a call."""
    start = process_time()
    work()
    return process_time() - start


def expert_steps(environment: Any, config: Any) -> Iterator[float]:
    """CPU-seconds of every step of the expert's episodes, its own thinking left out."""
    env, expert = environment.make(config), environment.expert(config)
    for seed in range(EPISODES):
        env.reset(seed, {"split": "eval"})
        over = False
        while not over:
            action = expert.action(env)
            # what the expert looked up must not be remembered for the step
            env.shop.search.cache_clear()
            start = process_time()
            _, _, terminated, truncated, _ = env.step(action)
            yield process_time() - start
            over = terminated or truncated


def searches(shop: Shop) -> None:
    """Print the time of a search with a whole instruction, ours and bm25s's."""
    queries = [goal.instruction for goal in shop.goals["eval"]]
    stemmer = Stemmer.Stemmer("porter")
    shape = {"stopwords": list(STOP_WORDS), "stemmer": stemmer, "token_pattern": r"[^\W_]+"}
    engine = bm25s.BM25(method="lucene", k1=K1, b=B)
    corpus = [product.text for product in shop.products]
    engine.index(bm25s.tokenize(corpus, show_progress=False, **shape), show_progress=False)

    def theirs() -> None:
        for query in queries:
            tokens = bm25s.tokenize(query, show_progress=False, **shape)
            engine.retrieve(tokens, k=50, show_progress=False)

    def ours() -> None:
        for query in queries:
            shop.search_now(query)

    own, peer = (timed(work) / len(queries) * 1e3 for work in (ours, theirs))
    print(f"{len(shop.products):6,} products: {own:.3f} ms a search, bm25s's own {peer:.3f}")


def main() -> None:
    for size in SIZES:
        environment, config = configuration("webshop_full", products=size)
        opened = timed(lambda config=config: open_shop(config))
        for mode in ("text", "compact"):
            _, shown = load_environment({**config.model_dump(), "observation": mode})
            times = [seconds * 1e3 for seconds in expert_steps(environment, shown)]
            mean, slowest = sum(times) / len(times), max(times)
            print(
                f"{size:6,} products, {mode:7}: {mean:.3f} ms a step (median {median(times):.3f}, slowest "
                f"{slowest:.2f}), new queries; the limit is {LIMITS_MS[size]:.0f}"
            )
        shop = open_shop(config)
        searches(shop)
        print(f"{size:6,} products: {opened:.2f} CPU-seconds to open the shop")
        _open.cache_clear()
        _stock.cache_clear()

    environment, config = configuration("webshop")
    open_shop(config)

    def demonstrate() -> None:
        environment.demonstrations(config, episodes=1000, seed=0, explore=0.35, error=0.5, history=0)

    print(f"1000 demonstrated episodes: {timed(demonstrate):.2f} CPU-seconds")


if __name__ == "__main__":
    main()
