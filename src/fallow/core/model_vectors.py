"""Models as flat vectors, and matrices of models with one row per site."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fallow.core.types import SiteId, State

Entry = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """Positions of the tensors of a module in the flat vectors ``w`` (d,) and ``stats`` (s,).

    ``w`` contains the parameters and ``stats`` the floating-point buffers (batch-norm statistics).
    Integer buffers, which count batches, are ignored.
    """

    params: tuple[Entry, ...]
    buffers: tuple[Entry, ...]

    @staticmethod
    def of(module: nn.Module) -> Layout:
        floating = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
        return Layout(
            tuple((n, tuple(p.shape)) for n, p in module.named_parameters()),
            tuple((n, tuple(b.shape)) for n, b in floating),
        )

    @cached_property
    def param_sizes(self) -> list[int]:
        return [torch.Size(shape).numel() for _, shape in self.params]

    @cached_property
    def buffer_sizes(self) -> list[int]:
        return [torch.Size(shape).numel() for _, shape in self.buffers]

    @property
    def d(self) -> int:
        return sum(self.param_sizes)

    def flatten(self, module: nn.Module, dtype: torch.dtype | None = None) -> State:
        """Copy the tensors of a module to ``{"w": (d,), "stats": (s,)}``."""
        params = dict(module.named_parameters())
        buffers = dict(module.named_buffers())
        w = [params[name].detach().reshape(-1) for name, _ in self.params]
        stats = [buffers[name].detach().reshape(-1) for name, _ in self.buffers]
        if dtype is None and w:
            dtype = w[0].dtype
        if dtype is None:
            dtype = torch.get_default_dtype()
        none = torch.zeros(0)
        if w:
            none = none.to(w[0].device)
        return {
            "w": torch.cat(w).to(dtype),
            "stats": torch.cat([none, *stats]).to(dtype),
        }

    def views(self, w: Tensor, stats: Tensor | None = None) -> dict[str, Tensor]:
        """Return named views of a flat vector, for ``functional_call``, without copies.

        Batch-norm statistics are views too: a forward pass in training changes ``stats`` in place.
        """
        parts = zip(self.params, torch.split(w, self.param_sizes), strict=True)
        named = {name: part.view(shape) for (name, shape), part in parts}
        if stats is not None and self.buffers:
            floats = zip(self.buffers, torch.split(stats, self.buffer_sizes), strict=True)
            named |= {name: part.view(shape) for (name, shape), part in floats}
        return named

    def part(self, name: str) -> Tensor | None:
        """Return a (d,) mask of ``"head"`` or ``"body"``; None for ``"all"``."""
        if name == "all":
            return None
        masks = []  # by parameter, (size,)
        for (entry, _), size in zip(self.params, self.param_sizes, strict=True):
            masks.append(torch.full((size,), entry.split(".")[0] == "head"))
        is_head = torch.cat(masks)
        if name == "head":
            return is_head
        return ~is_head

    def load(self, module: nn.Module, state: State) -> nn.Module:
        """Copy a flat state into ``module`` and return it."""
        targets = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, value in self.views(state["w"], state["stats"]).items():
                targets[name].copy_(value)
        return module


@dataclass(frozen=True)
class StackedModels:
    """Models of all sites: ``w`` (N, d) and ``stats`` (N, s), rows in the order of ``sites``.

    FedAvg, the mixtures of DPFL and pFedGraph are all a product ``stacked.mix(m)``.
    """

    sites: tuple[SiteId, ...]
    w: Tensor
    stats: Tensor

    @staticmethod
    def stack(states: dict[SiteId, State]) -> StackedModels:
        """Stack the models of all sites, in the order of their names."""
        sites = tuple(sorted(states))
        w = torch.stack([states[site]["w"] for site in sites])
        stats = torch.stack([states[site]["stats"] for site in sites])
        return StackedModels(sites, w, stats)

    def row(self, site: SiteId) -> State:
        """Return the model of one site."""
        i = self.sites.index(site)
        return {"w": self.w[i], "stats": self.stats[i]}

    def mix(self, m: Tensor) -> StackedModels:
        """Return ``sum_j m[i, j]`` times row j in each row i.  m: (N, N), rows on the simplex."""
        return StackedModels(
            self.sites, m.to(self.w) @ self.w, m.to(self.stats) @ self.stats
        )
