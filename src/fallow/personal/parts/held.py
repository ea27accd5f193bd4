"""What a site holds while it chooses collaborators: its model, others, and the choice so far."""

from __future__ import annotations

from fallow.core.view import View
from fallow.personal.parts.greedy import Greedy, Member


def own_model(view: View) -> Member:
    return Member(view.memory["local"]["w"], len(view.labels))


def brought(view: View) -> list[Member]:
    """The models that the last relay brought, in the order of their senders' names."""
    held = [view.memory[name] for name in sorted(view.memory) if name.startswith("model/")]
    return [Member(peer["w"], float(peer["labels"])) for peer in held]


def searched(view: View) -> Greedy:
    kept = view.memory["search"]
    return Greedy(**{name: kept[name] for name in Greedy._fields})
