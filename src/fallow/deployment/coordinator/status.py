"""Status of a coordinator, collected from its folder."""

from __future__ import annotations

from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.coordinator.live import LABELING, Control
from fallow.deployment.coordinator.program import is_running
from fallow.report.live import OPEN, read_live
from fallow.report.live_state import LiveState, Status

NOT_STARTED = "not started"
HIDDEN = (
    "Secure aggregation hides the values of each site, so unusual ones are not reported."
)


def collect_status(folder: CoordinatorFolder) -> Status:
    """Return the status of a coordinator, without forecasts and descriptions.

    The commands, the monitoring and the report page read the same state. A state that is "running"
    without a process is "stopped". Raises ValueError for an invalid ``live.json``.
    """
    is_alive = is_running(folder.path)
    state = read_live(folder.path) or _begin(is_alive)
    is_requested = (Control(folder.path / "control").folder / "advance").exists()
    is_labeling = is_alive and state.get("phase") == LABELING
    status: Status = {
        **state,
        "name": folder.agreement.name,
        "digest": folder.agreement.digest,
        "alive": is_alive,
        "closing": is_requested and is_labeling and state["state"] == OPEN,
        "missing": list(folder.missing),
        "description": [],
        "forecast": [],
        "headline": None,
        "measured": [],
        "hidden": HIDDEN if folder.agreement.config.privacy.secure_sum else None,
    }
    if status["state"] == OPEN and not is_alive:
        status["state"] = "stopped"
        status["reason"] = "the process has ended"
    return status


def _begin(is_alive: bool) -> LiveState:
    """Return the state of a run without any event."""
    state = OPEN if is_alive else NOT_STARTED
    return {"state": state, "sites": {}, "refusals": []}
