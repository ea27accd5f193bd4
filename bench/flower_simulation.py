"""A training phase of FedAvg by Flower's simulation, for `python -m bench fedavg-flower`.

Flower runs in another process, which starts before anything is timed: the start of Ray takes about
ten seconds.  It has one core for its clients, which train by the plain loop of `bench.federated`
on the same batches.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.federated import COMPARED, Phase, Task, draw_batches, train_by_autograd
from bench.timing import WALL, Entry, Race, SkippedError

DATA = "task.npz"
RESULT = "w.npy"


@dataclass
class FlowerProcesses:
    """A simulation in a process of its own for each task, which trains when it is called."""

    tasks: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __call__(self, task: Task) -> Tensor:
        """Train the sites of a task for all rounds, and return the average model."""
        process = self.tasks.get(str(task.folder))
        if process is None:
            process = self.tasks[str(task.folder)] = _start(task)
        assert process.stdin is not None and process.stdout is not None
        print("train", file=process.stdin, flush=True)
        _wait_for(process, "done")
        return torch.from_numpy(np.load(task.folder / RESULT))

    def close(self) -> None:
        for process in self.tasks.values():
            process.communicate()  # without another line it ends
        self.tasks.clear()


def _start(task: Task) -> subprocess.Popen[str]:
    task.folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        task.folder / DATA,
        x=torch.stack(task.x).numpy(),
        y=torch.stack(task.y).numpy(),
        names=np.array(task.names),
        start=task.start.numpy(),
        rounds=task.rounds,
    )
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])  # also of Ray's workers
    serving = f"from {__name__} import serve; serve({str(task.folder)!r})"
    command = [sys.executable, "-c", serving]
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    _wait_for(process, "ready")
    return process


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    raise RuntimeError(f"Flower's simulation ended with status {process.wait()}")


# -- in the process of the simulation -----------------------------------------------------


@cache
def _read(folder: str) -> dict[str, Any]:
    with np.load(Path(folder) / DATA) as stored:
        return dict(stored)


@cache
def _build_model(dtype: torch.dtype) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)).to(
        dtype
    )


def train_client(folder: str, message: Any, context: Any) -> Any:
    """Train one site: the client function of the simulation."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    torch.set_num_threads(1)
    stored = _read(folder)
    site = int(context.node_config["partition-id"])
    round_ = int(message.content["config"]["server-round"]) - 1
    (sent,) = message.content["arrays"].to_numpy_ndarrays()
    w = torch.from_numpy(sent.copy())
    x = torch.from_numpy(stored["x"][site])
    y = torch.from_numpy(stored["y"][site])
    batches = draw_batches(str(stored["names"][site]), len(y), round_)
    trained = train_by_autograd(_build_model(w.dtype), w, x, y, batches)
    reply = RecordDict(
        {
            "arrays": ArrayRecord(numpy_ndarrays=[trained.numpy()]),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
    )
    return Message(content=reply, reply_to=message)


def serve(folder: str) -> None:
    """Run the simulation, and train for each line of standard input."""
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    stored = _read(folder)
    client = ClientApp()
    server = ServerApp()
    client.train()(partial(train_client, folder))

    @server.main()
    def train(grid: Any, context: Any) -> None:
        sites = len(stored["y"])
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=sites, min_available_nodes=sites
        )
        start = ArrayRecord(numpy_ndarrays=[stored["start"]])
        strategy.start(grid, start, num_rounds=1)  # the first round starts the workers
        print("ready", flush=True)
        for _ in sys.stdin:
            result = strategy.start(grid, start, num_rounds=int(stored["rounds"]))
            (w,) = result.arrays.to_numpy_ndarrays()
            np.save(Path(folder) / RESULT, w)
            print("done", flush=True)

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=len(stored["y"]),
        backend_config={
            "init_args": {"num_cpus": 1},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


def prepare(is_quick: bool) -> Race:
    """Race a phase against Flower, if its simulation is installed."""
    if find_spec("ray") is None:
        raise SkippedError("pip install 'flwr[simulation]'")
    flower = FlowerProcesses()
    race = Phase("mlp", flower).race(is_quick)

    def close() -> None:
        flower.close()
        race.close()

    return replace(race, close=close)


ENTRIES = (
    Entry(
        "fedavg-flower",
        "Flower's simulation on Ray, whose clients are a plain PyTorch loop; without its start",
        bar=1,
        compared=COMPARED,
        prepare=prepare,
        clock=WALL,
    ),
)
