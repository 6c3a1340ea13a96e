"""Two nodes of Ray on this machine: `run_ray_cluster.py [HIDDEN]`; it ends with its input.

Prints its address and the process of the second node, which does not see the folder HIDDEN.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster


def start_head(attempts: int = 3) -> Cluster:
    """The first node. Ray gives it 30 seconds, which a machine that is busy may not have."""
    for attempt in range(attempts):
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
        except Exception:
            cluster.shutdown()
            if attempt + 1 == attempts:
                raise
        else:
            break
    return cluster


def main(hidden: str | None = None) -> None:
    cluster = start_head()
    start = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        f"--address={cluster.address}",
        "--num-cpus=1",
    ]
    command = [*start, "--block", "--disable-usage-stats"]
    if hidden is not None:
        inside = 'mount -t tmpfs none "$0" && exec "$@"'
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, hidden, *command]
    second = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    ray.init(address=cluster.address, logging_level="ERROR")
    while len([node for node in ray.nodes() if node["Alive"]]) < 2:
        if second.poll() is not None:
            raise RuntimeError(f"the second node ended with {second.returncode}")
        time.sleep(0.5)
    sys.stdout.write(f"{cluster.address} {second.pid}\n")
    sys.stdout.flush()
    sys.stdin.read()
    if second.poll() is None:
        second.send_signal(signal.SIGTERM)
        second.wait(60)
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
