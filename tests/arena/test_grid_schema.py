"""The JSON Schema: it accepts the grids we accept and refuses names that we refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena.grid import Grid
from arena.grid_schema import grid_schema
from arena.options import Catalogue
from arena.yaml_source import read

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = grid_schema(Catalogue())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GRIDS = Path(__file__).parents[2] / "grids"


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_key_of_a_grid_is_in_it_and_described() -> None:
    assert set(SCHEMA["properties"]) == set(Grid.model_fields)
    assert all(value["description"] for value in SCHEMA["properties"].values())


@pytest.mark.parametrize("path", sorted(GRIDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_grids_that_come_with_it_are_right(path: Path) -> None:
    VALIDATOR.validate(read(path).value)


@pytest.mark.parametrize(
    "part",
    [
        {"axes": {"is_clipping": ["token", {"cispo": {"hi": 4}}]}},
        {"axes": {"is_clipping": [{"mine": {"function": "a.b.c", "eps": 3}}]}},
        {"envs": ["sokoban", {"webshop": {"max_turns": 5}}]},
        {"envs": [{"lake": {"environment": "package.module.NAME", "id": "Lake-v0", "max_turns": 9}}]},
        {"methods": ["SAMPO", {"CISPO": {"is_clipping.hi": 4}}]},
        {"points": [{"advantage": "rloo"}]},
        {"seeds": [1, 2]},
        {"overrides": {"trainer.steps": 3, "model": "tiny", "env.size": 5, "trainer": {"epochs": 2}}},
        {"sweep": {"trainer.learning_rate": [1e-3]}},
        {"sweep": {"is_clipping.hi": {"values": [0.2, 0.4], "when": {"is_clipping": "cispo"}}}},
        {
            "sweep": {
                "pace": {"slow": {"trainer.steps": 9, "trainer.epochs": 1}, "fast": {"trainer.epochs": 4}}
            }
        },
        {"exclude": [{"trainer.epochs": "> 3", "env": ["sokoban"]}]},
        {"require": [{"trainer.epochs": 1, "when": {"env": "sokoban"}}]},
        {"collapse": {"stop": True}},
        {"profile": "laptop"},
        {"design": "pairwise"},
        {"design": {"fraction": 0.25}},
        {"design": {"d_optimal": 12}},
        {"design": {"d_optimal": {"runs": 12, "interactions": True}}},
    ],
)
def test_what_we_accept_it_accepts(part: dict[str, Any]) -> None:
    VALIDATOR.validate({"name": "a", **part})


@pytest.mark.parametrize(
    "part",
    [
        {"axes": {"is_clipping": ["cipso"]}},
        {"axes": {"clipping": ["token"]}},
        {"axes": {"is_clipping": [{"cispo": {"hi": -1}}]}},
        {"axes": {"is_clipping": [{"mine": {"eps": 3}}]}},
        {"axes": {"is_clipping": [{"cispo": {}, "token": {}}]}},
        {"methods": ["SAMPPO"]},
        {"envs": ["sokobann"]},
        {"overrides": {"trainer.steps": -3}},
        {"sweep": {"trainer.steps": [0]}},
        {"sweep": {"trainer.steps": []}},
        {"sweep": {"trainer.steps": {"values": [0]}}},
        {"sweep": {"pace": {"slow": {}}}},
        {"sweep": {"pace": {"slow": {"trainer.steps": -1}}}},
        {"require": [{}]},
        {"collapse": {"stop": "yes"}},
        {"profile": "labtop"},
        {"design": "ful"},
        {"design": "d_optimal"},
        {"design": {"fraction": 0}},
        {"design": {"d_optimal": {"interactions": True}}},
        {"sedes": 3},
        {"seeds": 0},
    ],
)
def test_what_we_refuse_it_refuses(part: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({"name": "a", **part})
