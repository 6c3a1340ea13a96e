"""The schema of the WebShop environment; its values are in `arena/conf/env/webshop*.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from envs.text_env import EnvConfig
from envs.webshop.wordbook import BRANDS, KINDS

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Mode = Literal["compact", "text", "text_rich"]
GoalSource = Literal["synthetic", "human"]


class Section(BaseModel):
    """Frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Rewards(Section):
    """What a turn earns; the sum over an episode is its return."""

    step: float
    """Every turn, also one that changes nothing."""
    score: float
    """The purchase, times its score in [0, 1] (`envs.webshop.reward`)."""
    success: float
    """A purchase with score 1, on top of `score`."""


class CatalogueConfig(Section):
    """The generated catalogue: how many products, and how alike they are."""

    products: Annotated[int, Field(ge=1, le=2_000_000)]
    kinds: Annotated[int, Field(ge=1, le=len(KINDS))]
    """Kinds of products (shirts, lamps ...), the first of the word book."""
    brands: Annotated[int, Field(ge=0, le=len(BRANDS))]
    """Brand names at the head of titles; 0 leaves them out."""
    attributes: Annotated[int, Field(ge=1, le=6)]
    """Attributes of a product (soft, foldable ...)."""
    hidden_attributes: Annotated[int, Field(ge=0)]
    """How many of them its title does not tell, only its features do."""
    goal_attributes: Count
    """How many of them an instruction asks for."""
    options: Annotated[int, Field(ge=0, le=2)]
    """Options of a product to choose, at most (colors, sizes ...)."""
    option_values: Annotated[int, Field(ge=2, le=4)]
    """Values of each of them."""
    seed: Seed

    @model_validator(mode="after")
    def _enough_attributes(self) -> CatalogueConfig:
        for name in ("hidden_attributes", "goal_attributes"):
            if getattr(self, name) > self.attributes:
                raise ValueError(f"{name} ({getattr(self, name)}) exceeds attributes ({self.attributes})")
        return self


class WebShopConfig(EnvConfig):
    """A shop, the goals its customers come with, and how a policy sees and uses it."""

    max_turns: Count
    data_path: str | None
    """Folder of the official files; the catalogue is generated without it."""
    max_products: Count | None
    """Only the first so many products of the official files."""
    catalogue: CatalogueConfig
    goals: GoalSource
    """`human` instructions come with the official files only."""
    goals_per_product: Count | None
    """Synthetic goals of a product: so many combinations of its option values, all when None."""
    goal_seed: Seed
    train_goals: Count | None
    """All that are left when None."""
    eval_goals: Count
    observation: Mode
    search: Literal["choose", "free"]
    """Whether the search page admits a few queries made from the goal, or any."""
    queries: Count
    """How many queries there are to choose from."""
    hits: Annotated[int, Field(ge=1, le=1000)]
    page_size: Annotated[int, Field(ge=1, le=100)]
    page_words: Count
    """Words of a description, features or reviews page in the compact mode."""
    nouns: Annotated[str, Field(min_length=1)]
    """Who finds the nouns of a title: `auto`, `words`, or a spaCy model (`envs.webshop.nouns`)."""
    rewards: Rewards

    @model_validator(mode="after")
    def _consistent(self) -> WebShopConfig:
        if self.goals == "human" and self.data_path is None:
            raise ValueError(
                "goals: human needs the official files (data_path); generated goals are synthetic"
            )
        return self
