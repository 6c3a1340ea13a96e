"""Which environments there are, what each needs and has: for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arena.environments import choose_environment
from arena.mistakes import MistakesError
from arena.options import Catalogue
from envs.text_env import Inventory, Need


@dataclass(frozen=True)
class Listed:
    """An environment as its file configures it: what it is, what it is made of, why it cannot run here."""

    name: str
    about: str
    inventory: Inventory
    problems: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "name": self.name,
            "about": self.about,
            "ready": not self.problems,
            "problems": list(self.problems),
            "data": self.inventory.data,
            "needs": [asdict(need) for need in self.inventory.needs],
        }


def list_environments(catalogue: Catalogue | None = None) -> list[Listed]:
    """Every environment that has a file in `conf/env`."""
    catalogue = catalogue or Catalogue()
    return [_look_at(catalogue, name) for name in catalogue.names("env")]


def _look_at(catalogue: Catalogue, name: str) -> Listed:
    about = _first_sentence((catalogue.folder / "env" / f"{name}.yaml").read_text(encoding="utf-8"))
    try:
        chosen = choose_environment(name, catalogue=catalogue)
    except MistakesError as error:
        return Listed(name, about, Inventory("unknown"), tuple(map(str, error.mistakes)))
    look = getattr(chosen.environment, "inventory", None)
    inventory = Inventory(chosen.environment.data_id(chosen.config)) if look is None else look(chosen.config)
    return Listed(name, about, inventory, chosen.problems)


def _first_sentence(text: str) -> str:
    """The first sentence of the comment that a file begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines).split(". ")[0].rstrip(".")


def environments_view(listed: Iterable[Listed]) -> RenderableType:
    """A table, and below it what has to be done for those that cannot run."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("env")
    table.add_column("ready")
    table.add_column("what it is", overflow="fold", max_width=44)
    table.add_column("data", overflow="fold", max_width=40)
    table.add_column("needs", overflow="fold", max_width=36)
    notes: list[Text] = []
    for each in listed:
        ready = Text("no", style="red") if each.problems else Text("yes", style="green")
        needs = "\n".join(map(_told, each.inventory.needs)) or "nothing more"
        table.add_row(each.name, ready, Text(each.about), Text(each.inventory.data), Text(needs))
        notes += [Text(f"{each.name} cannot run here: {problem}") for problem in each.problems]
        notes += [
            Text(f"{each.name} can use {need.name}: {need.remedy}")
            for need in each.inventory.needs
            if need.optional and need.found is None
        ]
    return Group(table, *notes)


def _told(need: Need) -> str:
    if need.found is not None:
        return f"{need.name} ({need.found})"
    return f"{need.name}: not there{', optional' if need.optional else ''}"
