"""The words of the generated catalogue: kinds of products, their attributes and options.

Chosen so that search is hard and the reward is not: kinds share attributes, options and parts of their names,
but no attribute is part of another word or close to another attribute, so that the reward's fuzzy comparison
finds an attribute exactly where a product has it.
"""

from __future__ import annotations

from dataclasses import dataclass

OPTIONS: dict[str, tuple[str, ...]] = {
    "color": ("black", "white", "red", "blue", "green", "gray", "pink", "brown"),
    "size": ("small", "medium", "large", "huge"),
    "scent": ("vanilla", "lemon", "rose", "lavender", "mint"),
    "material": ("cotton", "linen", "wool", "silk"),
    "flavor": ("honey", "ginger", "berry", "almond"),
    "pack": ("single", "pair", "triple", "dozen"),
}
"""Names and values of options; a kind offers some of the values of one or two of them."""

_WEAR = ("soft", "breathable", "stretchy", "waterproof", "casual", "durable", "elegant", "thick")
_HOME = ("modern", "foldable", "sturdy", "washable", "rustic", "adjustable", "elegant", "compact")
_KITCHEN = ("heavy", "insulated", "rustic", "durable", "leakproof", "stackable", "compact", "washable")
_TECH = ("wireless", "portable", "waterproof", "compact", "rechargeable", "durable", "adjustable", "slim")
_CARE = ("gentle", "vegan", "organic", "moisturizing", "unscented", "travel sized", "soft", "refillable")
_FOOD = ("organic", "vegan", "gluten free", "low sugar", "crunchy", "fresh", "kosher", "natural")

ATTRIBUTES = tuple(dict.fromkeys((*_WEAR, *_HOME, *_KITCHEN, *_TECH, *_CARE, *_FOOD)))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of product.

    name: what it is called and searched by; department, shelf: where it stands; attributes: what it may be;
    options: the names of what can be chosen; low, high: whole dollars.
    """

    name: str
    department: str
    shelf: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    low: int
    high: int


KINDS: tuple[Kind, ...] = (
    # the first dozen have one-word names: a shop whose words a tiny policy can learn
    Kind("shirt", "Clothing", "Tops", _WEAR, ("color", "size"), 10, 70),
    Kind("lamp", "Home", "Lighting", _HOME, ("color", "size"), 15, 90),
    Kind("mug", "Kitchen", "Drinkware", _KITCHEN, ("color", "pack"), 5, 45),
    Kind("chair", "Home", "Furniture", _HOME, ("color", "material"), 40, 120),
    Kind("pillow", "Home", "Bedding", ("soft", "thick", *_HOME[3:]), ("size", "material"), 10, 60),
    Kind("bag", "Clothing", "Luggage", (*_WEAR[3:], "slim", "compact"), ("color", "size"), 20, 90),
    Kind("jacket", "Clothing", "Coats", _WEAR, ("color", "size"), 30, 120),
    Kind("towel", "Home", "Bath", ("soft", "thick", "durable", *_HOME[3:]), ("color", "pack"), 5, 50),
    Kind("speaker", "Electronics", "Audio", _TECH, ("color",), 20, 120),
    Kind("candle", "Home", "Decor", ("unscented", "vegan", *_HOME[4:], "heavy"), ("scent", "pack"), 5, 40),
    Kind("soap", "Beauty", "Bath", _CARE, ("scent", "pack"), 5, 30),
    Kind("tea", "Grocery", "Drinks", _FOOD, ("flavor", "pack"), 5, 40),
    # the others share words with them and with each other
    Kind("desk lamp", "Home", "Lighting", _HOME, ("color",), 15, 90),
    Kind("floor lamp", "Home", "Lighting", _HOME, ("color", "size"), 30, 150),
    Kind("lamp shade", "Home", "Lighting", _HOME, ("color", "material"), 10, 60),
    Kind("dress shirt", "Clothing", "Tops", _WEAR, ("color", "size"), 20, 90),
    Kind("rain jacket", "Clothing", "Coats", _WEAR, ("color", "size"), 30, 120),
    Kind("travel mug", "Kitchen", "Drinkware", _KITCHEN, ("color", "size"), 10, 50),
    Kind("water bottle", "Kitchen", "Drinkware", _KITCHEN, ("color", "size"), 10, 50),
    Kind("bottle opener", "Kitchen", "Tools", _KITCHEN, ("color", "pack"), 5, 30),
    Kind("coffee maker", "Kitchen", "Appliances", _KITCHEN, ("color",), 30, 200),
    Kind("coffee table", "Home", "Furniture", _HOME, ("color", "size"), 60, 300),
    Kind("desk chair", "Home", "Furniture", _HOME, ("color", "material"), 60, 250),
    Kind("chair cushion", "Home", "Furniture", _HOME, ("color", "material"), 10, 60),
    Kind("pillow case", "Home", "Bedding", _HOME, ("size", "material"), 10, 40),
    Kind("phone case", "Electronics", "Phones", _TECH, ("color",), 5, 50),
    Kind("phone stand", "Electronics", "Phones", _TECH, ("color", "size"), 10, 50),
    Kind("speaker stand", "Electronics", "Audio", _TECH, ("color", "size"), 30, 150),
    Kind("towel rack", "Home", "Bath", _HOME, ("color", "size"), 15, 90),
    Kind("shoe rack", "Home", "Storage", _HOME, ("color", "size"), 20, 90),
    Kind("running shoe", "Clothing", "Shoes", _WEAR, ("color", "size"), 30, 150),
    Kind("candle holder", "Home", "Decor", _HOME, ("color", "pack"), 5, 60),
    Kind("makeup bag", "Beauty", "Tools", _CARE, ("color", "size"), 10, 50),
    Kind("gym bag", "Clothing", "Luggage", _WEAR, ("color", "size"), 20, 90),
    Kind("hair brush", "Beauty", "Hair", _CARE, ("color",), 5, 40),
    Kind("face cream", "Beauty", "Skin", _CARE, ("scent", "pack"), 10, 60),
    Kind("hand soap", "Beauty", "Bath", _CARE, ("scent", "pack"), 5, 30),
    Kind("iced tea", "Grocery", "Drinks", _FOOD, ("flavor", "pack"), 5, 40),
    Kind("snack bar", "Grocery", "Snacks", _FOOD, ("flavor", "pack"), 5, 40),
    Kind("knife block", "Kitchen", "Tools", _KITCHEN, ("color", "size"), 20, 150),
)

BRANDS = (
    *("Aldora", "Berwin", "Calvera", "Dorvik", "Elmstead", "Farrow", "Galvin", "Hestia"),
    *("Ilvara", "Jorvik", "Kestrel", "Lumena", "Marlow", "Norvane", "Ostara", "Pellworth"),
    *("Quillan", "Rovena", "Sundale", "Tamsin", "Umbra", "Velmont", "Wexley", "Zephra"),
)

PLACES = ("home", "office", "school", "garden")
"""What a product is said to be for."""

OPINIONS = (
    (1, "bad", "it broke"),
    (3, "fine", "it does its job"),
    (4, "good", "my family likes it"),
    (5, "great", "i would buy it again"),
)
"""Reviews: stars, title and what they say."""
