"""Pages as text: the official modes `text` and `text_rich`, and `compact` for tiny policies."""

from __future__ import annotations

from dataclasses import dataclass

from envs.webshop.browsing import Link, Visit, links
from envs.webshop.config import Mode
from envs.webshop.products import Product
from envs.webshop.shop import Shop
from envs.webshop.wording import plain, price_word, short_instruction

SEPARATOR = " [SEP] "
BAR = "|"
TRIED, PAGE, SEEN, NOTHING, CHOSEN, THANKS = "tried", "page", "seen", "nothing", "chosen", "thanks"
"""Words of the compact pages."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a page: a text, what a click on it does, and whether it was clicked before."""

    text: str
    link: Link | None = None
    clicked: bool = False


def parts(shop: Shop, visit: Visit, page_size: int) -> list[Part]:
    """The current page, from top to bottom."""
    head = [Part("Instruction:"), Part(visit.goal.instruction)]
    if visit.page == "search":
        return [Part("WebShop"), *head, Part("Search")]
    if visit.page == "done":
        total = visit.score.total if visit.score else 0.0
        return [
            Part("Thank you for shopping with us!"),
            Part("Your score (min 0.0, max 1.0)"),
            Part(str(total)),
        ]
    every = links(shop, visit, page_size)
    if visit.page == "results":
        return [*head, *_results(shop, visit, every)]
    product = shop.products[visit.product]
    if visit.page == "item":
        return [*head, *_item(product, visit, every)]
    return [*head, *(Part(link.text, link) for link in every), *map(Part, page_texts(product, visit.page))]


def page_texts(product: Product, page: str) -> list[str]:
    """The texts of a description, features or reviews page."""
    if page == "description":
        return [product.description]
    if page == "features":
        return list(product.bullets)
    if not product.reviews:
        return ["No reviews found"]
    return [text for review in product.reviews for text in (f'"{review.title}"', review.stars, review.body)]


def _results(shop: Shop, visit: Visit, every: list[Link]) -> list[Part]:
    buttons = [Part(link.text, link) for link in every if link.leads != "product"]
    found = [buttons[0], Part(f"Page {visit.number} (Total results: {len(visit.hits)})"), *buttons[1:]]
    for link in every:
        if link.leads == "product":
            product = shop.products[link.product]
            found.append(Part(link.text, link, link.product in visit.seen))
            found += [Part(product.title), Part(product.price_tag)]
    return found


def _item(product: Product, visit: Visit, every: list[Link]) -> list[Part]:
    buttons = iter(Part(link.text, link) for link in every if link.leads != "option")
    values = {link.text: link for link in every if link.leads == "option"}
    found = [next(buttons), next(buttons)]
    for name, group in product.options.items():
        found.append(Part(name))
        found += [Part(value, values[value], visit.chosen.get(name) == value) for value in group]
    found += [Part(product.title), Part(f"Price: {product.price_tag}"), Part(f"Rating: {product.rating}")]
    return [*found, *buttons]


def click_name(link: Link, mode: Mode) -> str:
    """What `click[...]` calls a link: its text in lower case; in the compact mode plain words, and products
    by their place on the page.
    """
    if mode != "compact":
        return link.text.lower()
    return f"#{link.place}" if link.leads == "product" else plain(link.text)


def write_action(verb: str, argument: str, mode: Mode) -> str:
    """The text of an action; in the compact mode, its words stand apart."""
    return f"{verb}[ {argument} ]" if mode == "compact" else f"{verb}[{argument}]"


def observe(shop: Shop, visit: Visit, mode: Mode, *, page_size: int, page_words: int) -> str:
    """What the policy reads. page_words: the limit of a description, features or reviews page (compact)."""
    if mode == "compact":
        return compact(shop, visit, page_size=page_size, page_words=page_words)
    page = parts(shop, visit, page_size)
    if mode == "text":
        return SEPARATOR.join(part.text.strip() for part in page)
    return _rich(page)


def _rich(page: list[Part]) -> str:
    lines = [
        f"You have clicked {part.text}." for part in page if part.clicked and part.link and _is_option(part)
    ]
    for part in page:
        if part.link is None:
            lines.append(part.text)
        elif part.clicked:
            lines.append(f"[clicked button] {part.text} [clicked button_]")
        else:
            lines.append(f"[button] {part.text} [button_]")
    return "\n".join(lines)


def _is_option(part: Part) -> bool:
    return part.link is not None and part.link.leads == "option"


def compact(shop: Shop, visit: Visit, *, page_size: int, page_words: int) -> str:
    """The page in few plain words: the instruction, then the page's sections, separated by bars."""
    sections = [short_instruction(visit.goal.instruction)]
    if visit.page == "search":
        sections.append("search")
        if visit.query:
            sections.append(f"{TRIED} {plain(visit.query)}")
    elif visit.page == "results":
        sections.append(f"{PAGE} {visit.number} {visit.pages(page_size)}")
        for place, index in enumerate(visit.shown(page_size), start=1):
            seen = f" {SEEN}" if index in visit.seen else ""
            sections.append(f"#{place} {headline(shop.products[index])}{seen}")
        if not visit.hits:
            sections.append(NOTHING)
    elif visit.page == "done":
        sections.append(THANKS)
    else:
        product = shop.products[visit.product]
        if visit.page == "item":
            sections.append(headline(product))
            for name, values in product.options.items():
                sections.append(" ".join(map(plain, (name, *values))))
            sections.append(" ".join([CHOSEN, *map(plain, visit.chosen.values())]))
        else:
            text = " ".join(map(plain, page_texts(product, visit.page)))
            sections.append(f"{visit.page} {' '.join(text.split()[:page_words])}")
    return f" {BAR} ".join(sections)


def headline(product: Product) -> str:
    """Title and price in plain words."""
    return f"{plain(product.title)} {price_word(product.price)}"
