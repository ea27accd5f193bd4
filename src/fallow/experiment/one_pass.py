"""One-pass protocol: an independent selection from scratch for each label budget (FALE)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fallow.core.contract import Contract
from fallow.experiment.methods import methods_of
from fallow.settings.config import ExperimentConfig
from fallow.storage.files import make_folder, write_whole


def is_one_pass(config: ExperimentConfig) -> bool:
    """Return whether a run consists of independent selections instead of cycles.

    Raises ValueError if the strategy cannot select without labels.
    """
    contract: Contract = methods_of(config)["query"].contract
    wanted = {"auto": contract.one_pass, "one_pass": True, "cycles": False}[config.protocol]
    if wanted and contract.needs:
        raise ValueError(
            f"{config.strategy} needs a model, and under protocol=one_pass nothing is "
            "trained before examples are selected; use protocol=cycles"
        )
    if config.cycles == 0 and wanted:
        raise ValueError(
            f"{config.strategy} selects the budget of each cycle from scratch, and cycles "
            "is 0; set cycles=1 or more, or protocol=cycles"
        )
    if config.evaluation_fraction and wanted:
        raise ValueError(
            f"{config.strategy} selects each budget from scratch, so there is no model "
            "whose errors can be estimated; set evaluation_fraction=0, or protocol=cycles"
        )
    if config.stop is not None and wanted:
        raise ValueError(
            f"{config.strategy} selects each budget from scratch, so there is no cycle to "
            "stop after; omit stop, or set protocol=cycles"
        )
    if config.initial_by == "query" and not wanted:
        raise ValueError(
            f"initial_by=query lets {config.strategy} select the initial labeled set, "
            "which requires protocol=one_pass; use initial_by=random"
        )
    return wanted


def each_budget(
    config: ExperimentConfig, folder: Path, run: Callable[[Path, int], None]
) -> None:
    """Call ``run(folder, cycle)`` for the budget of each cycle, in a separate folder.

    Records and the last model are written to ``folder``.  Finished budgets are skipped.
    """
    lines: list[bytes] = []
    for cycle in range(1, config.cycles + 1):
        path = folder / f"budget-{cycle}"
        if not all(
            (path / name).exists() for name in ("records.jsonl", "model.safetensors")
        ):
            make_folder(path)
            run(path, cycle)
        lines.append((path / "records.jsonl").read_bytes())
        write_whole(folder / "records.jsonl", b"".join(lines))
    write_whole(folder / "model.safetensors", (path / "model.safetensors").read_bytes())
