"""Workers on a Ray cluster (an extra): every run a task with its share of CPUs and GPUs.

The cohort, the results folder and this package must be readable by the same path on every node.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable
from typing import Any

from bridgemil.errors import BridgeMILError, BridgeMILWarning
from bridgemil.parallel import Answer, cores


class RayPool:
    """Tasks of one Ray cluster, used as a ``bridgemil.parallel.Pool``: what a node was doing is lost with it."""

    def __init__(self, threads: int, gpus: float = 1.0, address: str | None = None, jobs: int | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise BridgeMILError("the ray engine needs Ray: pip install '.[ray]', or use --engine local") from None
        self.ray, self.threads, self.jobs = ray, threads, jobs
        self.ours = not ray.is_initialized()
        if self.ours:
            _connect(ray, address or os.environ.get("RAY_ADDRESS"))
        self.gpus = gpus if ray.cluster_resources().get("GPU") else 0.0
        self.running: dict[Any, Any] = {}
        self.warned = False

    @property
    def size(self) -> int:
        """What the cluster has room for now, or was asked for; at least one, so that a run waits for a node."""
        need = {"CPU": self.threads} | ({"GPU": self.gpus} if self.gpus else {})
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        room = sum(int(min(has.get(kind, 0) / each for kind, each in need.items()) + 1e-6) for has in nodes)
        if not room and not self.warned:
            self.warned = True
            wanted = f"{self.threads} CPUs" + (f" and {self.gpus:g} of a GPU" if self.gpus else "")
            warnings.warn(f"no node of the Ray cluster has {wanted}; waiting for one", BridgeMILWarning, stacklevel=2)
        return max(1, min(room, self.jobs or room))

    def submit(self, task: Any, function: Callable[..., Any], *arguments: Any) -> None:
        """Start a call; a lost one is the scheduler's to start again, as with processes."""
        remote = self.ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_retries=0)(function)
        self.running[remote.remote(*arguments)] = task

    def wait(self, seconds: float) -> list[Answer]:
        """Calls that ended, and how."""
        ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=seconds)
        answers = []
        for reference in ready:
            task = self.running.pop(reference)
            try:
                answers.append(Answer(task, "done", self.ray.get(reference)))
            except self.ray.exceptions.RayTaskError as error:
                answers.append(Answer(task, "error", error))
            except self.ray.exceptions.RayError:  # the worker or its node is gone
                answers.append(Answer(task, "lost", "with its node"))
        return answers

    def close(self) -> None:
        """Cancel what is running, and leave the cluster as it was found."""
        for reference in self.running:
            self.ray.cancel(reference, force=True)
        self.running = {}
        if self.ours:
            self.ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Join the user's cluster, or start one on the cores this process owns."""
    own = {"num_cpus": cores(), "include_dashboard": False} if address is None else {}
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # Ray raises many kinds
        raise BridgeMILError(
            f"Ray: no cluster answers at {address or 'this machine'} ({error}). Start one with `ray start --head`, or "
            "leave --address out to use this machine"
        ) from None
