"""Ray Tune in a thread of its own, so that the driver's main thread can watch and take signals."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from arena.jobs import Jobs
from arena.study_files import RAY_STORAGE

logger = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 100 << 20
"""Jobs pass a few kilobytes through Ray, whose default is a third of the machine's memory."""
_MOST_PENDING = 64
_STARTS = 3

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    # The kernel kills the trial that takes too much memory; Ray would kill its supervisor, and say less.
    "RAY_memory_monitor_refresh_ms": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}


class CannotRunError(RuntimeError):
    """The cluster cannot run the study; the message says why and what to do."""


class TuneThread(threading.Thread):
    """Starts Ray or joins a cluster, runs all jobs, and shuts down. `error` is what went wrong, if anything.

    needs: the cores and GPUs that some trial asks for.
    """

    def __init__(
        self, jobs: Jobs, study: Path, needs: Sequence[tuple[float, float]], address: str | None
    ) -> None:
        super().__init__(name="tune", daemon=True)
        self._jobs, self._study, self._needs, self._address = jobs, study, needs, address
        self.error: Exception | None = None

    def run(self) -> None:
        """Run to the end of the jobs."""
        try:
            self._run()
        except Exception as error:
            logger.debug("the run of jobs ended", exc_info=True)
            self.error = error

    def _run(self) -> None:
        os.environ.update(_ENVIRONMENT)
        import ray

        if self._address:
            _join(self._address)
        else:
            _start()
        try:
            self._check()
            if not self._jobs.is_finished():
                self._run_jobs()
        finally:
            ray.shutdown()

    def _run_jobs(self) -> None:
        import ray

        from arena.tune_jobs import Feed, run_jobs

        cores = int(ray.cluster_resources().get("CPU", 1))
        # Workers are started for so many jobs at once.
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(1, min(cores, _MOST_PENDING)))
        storage = self._study.absolute() / RAY_STORAGE
        with suppress(FileNotFoundError):
            shutil.rmtree(storage)
        feed = Feed(self._jobs.take, self._jobs.is_finished, self._jobs.ended)
        run_jobs(feed, storage, datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))

    def _check(self) -> None:
        """Raises CannotRunError where a trial would wait for ever, or would not see its folder."""
        from arena.tune_jobs import fits, unreachable_nodes

        for cpus, gpus in self._needs:
            if not fits(cpus, gpus):
                raise CannotRunError(
                    f"a trial asks for {cpus:g} cores and {gpus:g} GPUs, which no machine here has;"
                    " `resources: {cpus: 1, gpus: 0}` in the grid asks for less"
                )
        if self._address and (nodes := unreachable_nodes(self._study.absolute() / "plan.json")):
            raise CannotRunError(
                f"the studies folder {self._study.parent} is not shared with {', '.join(nodes)};"
                " `--studies DIR` names one that is"
            )


def _join(address: str) -> None:
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise CannotRunError(f"there is no Ray cluster at {address}: {error}") from error


def _start() -> None:
    """Start Ray on this machine. It gives itself 30 seconds, which a machine that is busy may not have."""
    import ray

    for attempt in range(_STARTS):
        try:
            ray.init(
                address="local",
                log_to_driver=False,
                logging_level="ERROR",
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
            )
            return
        except Exception as error:
            if attempt + 1 == _STARTS:
                raise
            logger.warning("Ray did not start, trying again: %s", error, exc_info=True)
            ray.shutdown()
