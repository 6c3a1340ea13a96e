"""The Ray Tune side of a run: a searcher that feeds it jobs, and workers that supervise them. Imports ray."""

from __future__ import annotations

import json
import logging
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from arena.job import Ending, Job
from arena.limits import Limits
from arena.supervisor import supervise

logger = logging.getLogger(__name__)

_NODES_ANSWER_WITHIN = 60.0


class Feed(Searcher):  # type: ignore[misc]
    """Gives Tune the next job whenever it asks for a trial, and passes on how jobs ended.

    take: the next job, None when there is none for now. is_finished: whether none will come any more.
    ended: told of a job and its ending, None when its worker was lost. All are called in Tune's thread.
    gave_up: why nothing can be run any more, None while that is not so.
    """

    def __init__(
        self,
        take: Callable[[], Job | None],
        is_finished: Callable[[], bool],
        ended: Callable[[Job, Ending | None], None],
    ) -> None:
        super().__init__()
        self._take, self._is_finished, self._ended = take, is_finished, ended
        self.gave_up: str | None = None
        self._jobs: dict[str, Job] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next job as a Tune trial's configuration."""
        job = self._take()
        if job is None:
            return Searcher.FINISHED if self._is_finished() else None
        self._jobs[trial_id] = job
        return {"job": asdict(job)}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass on an ending."""
        job = self._jobs.pop(trial_id, None)
        if job is None:
            return
        ending = None
        if not error and result and "ending" in result:
            content = json.loads(result["ending"])
            ending = Ending(**{**content, "log": tuple(content["log"])})
        elif not any(node["Alive"] for node in ray.nodes()):
            self.gave_up = "no machine of the Ray cluster is alive any more"
        self._ended(job, ending)

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher, to restore what we never restore; ours holds the driver's locks.
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Feed:
        return self

    def save(self, checkpoint_path: str) -> None:
        """Nothing: what is done is known from the trials' folders."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: every run is a new one over what is not done."""


class Worker(tune.Trainable):  # type: ignore[misc]
    """Supervises one job after another; it is kept from job to job, since starting one takes seconds."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take the first job."""
        self._job = _job(config["job"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next job."""
        self._job = _job(new_config["job"])
        return True

    def step(self) -> dict[str, Any]:
        """Run the job to its end."""
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        ending = supervise(self._job, gpus if self._job.gpus else ())
        return {"done": True, "ending": json.dumps(asdict(ending))}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """What the job is given."""
        bundle = {"CPU": float(config["job"]["cpus"])}
        if config["job"]["gpus"]:
            bundle["GPU"] = float(config["job"]["gpus"])
        return tune.PlacementGroupFactory([bundle])


class GivingUp(tune.Stopper):  # type: ignore[misc]
    """Ends Tune when its feed has given up: it would wait for a machine for ever."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No trial is ended for its results."""
        return False

    def stop_all(self) -> bool:
        """Whether everything is over."""
        return self._feed.gave_up is not None


def run_jobs(feed: Feed, storage: Path, name: str) -> None:
    """Run all jobs a feed gives. Raises RuntimeError when the feed gives up."""
    tuner = tune.Tuner(
        Worker,
        tune_config=tune.TuneConfig(search_alg=feed, num_samples=-1, reuse_actors=True),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(storage),
            verbose=0,
            stop=GivingUp(feed),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    tuner.fit()
    if feed.gave_up is not None:
        raise RuntimeError(feed.gave_up)


def unreachable_nodes(folder: Path) -> list[str]:
    """The nodes of the cluster that do not see a folder of this machine, or may not write there, with why.

    A folder of the same name is not enough: what is written here must be read there.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".shared.") as probe:
        token = secrets.token_bytes(16)
        probe.write(token)
        probe.flush()
        looks = [
            ray.remote(num_cpus=0, max_retries=0)(_problem_with)
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote(probe.name, token)
            for node in nodes
        ]
        ray.wait(looks, num_returns=len(looks), timeout=_NODES_ANSWER_WITHIN)
        problems = [_answer(look) for look in looks]
    return [
        f"{node['NodeManagerAddress']}: {problem}"
        for node, problem in zip(nodes, problems, strict=True)
        if problem is not None
    ]


def _answer(look: Any) -> str | None:
    try:
        answer: str | None = ray.get(look, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"did not answer within {_NODES_ANSWER_WITHIN:g} s"
    except ray.exceptions.RayError as error:
        return str(error).splitlines()[0]
    return answer


def _problem_with(name: str, token: bytes) -> str | None:
    """Why a file of the driver is not seen, or nothing can be written beside it; on a node."""
    import os

    try:
        with open(name, "rb") as file:
            found = file.read()
        os.close(os.open(f"{name}.{os.getpid()}", os.O_CREAT | os.O_EXCL))
        os.unlink(f"{name}.{os.getpid()}")
    except OSError as error:
        return error.strerror or str(error)
    return None if found == token else "another folder of that name"


def fits(cpus: float, gpus: float) -> bool:
    """Whether some node of the cluster has so much, when nothing else runs there."""
    return any(
        node["Resources"].get("CPU", 0) >= cpus and node["Resources"].get("GPU", 0) >= gpus
        for node in ray.nodes()
        if node["Alive"]
    )


def _job(content: dict[str, Any]) -> Job:
    return Job(**{**content, "limits": Limits(**content["limits"])})
