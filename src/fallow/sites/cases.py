"""Cases: rows of a site that are selected and annotated together, such as slices of a volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from fallow.sites.seen_rows import SeenRows

CHUNK = 4096
"""Number of rows whose features are in memory at once, if they are in a file."""


@final
@dataclass(frozen=True, eq=False)
class Cases:
    """The rows of each case of a site.

    Parameters
    ----------
    of_row : Tensor
        (n,) int64 case of each row, from 0 to m - 1; each case has a row.
    """

    of_row: Tensor

    @staticmethod
    def of_groups(groups: Tensor) -> Cases:
        """Return one case for each group, in the order of their first rows.

        groups: (n,) int64 group of each row.

        >>> Cases.of_groups(torch.tensor([7, 7, 3, 7])).of_row
        tensor([0, 0, 1, 0])
        """
        _, first, group_of = np.unique(
            groups.numpy(), return_index=True, return_inverse=True
        )
        case_of_group = np.empty(len(first), dtype=np.int64)
        case_of_group[first.argsort()] = np.arange(len(first))
        return Cases(torch.from_numpy(case_of_group[group_of]))

    def find_used(self, every: int, central: int | None) -> Tensor:
        """Return the positions of the rows in `choose_slices` of each case, ascending."""
        used: list[int] = []
        for case in range(len(self)):
            rows = (self.of_row == case).nonzero().squeeze(1).tolist()
            used += [rows[at] for at in choose_slices(len(rows), every, central)]
        return torch.tensor(sorted(used))

    def __len__(self) -> int:
        return int(self.of_row.max()) + 1

    @property
    def sizes(self) -> Tensor:
        """Return the number of rows of each case, (m,)."""
        return torch.bincount(self.of_row)

    def rows(self, cases: Tensor) -> Tensor:
        """Return the positions of the rows of some cases, ascending: (k,) -> (r,)."""
        return torch.isin(self.of_row, cases).nonzero().squeeze(1)

    def average(self, values: Tensor) -> Tensor:
        """Return the mean of the rows of each case: (n, k) -> (m, k) float64.

        >>> Cases(torch.tensor([0, 1, 1])).average(torch.tensor([[1.0], [2.0], [4.0]]))
        tensor([[1.],
                [3.]], dtype=torch.float64)
        """
        total = torch.zeros(len(self), values.shape[1], dtype=torch.float64)
        total.index_add_(0, self.of_row, values.double())
        return total / self.sizes[:, None]

    def join_features(self, z: Tensor | SeenRows) -> Tensor:
        """Return mean and maximum of the features of each case: (n, d) -> (m, 2d) float64.

        >>> Cases(torch.tensor([0, 1, 1])).join_features(
        ...     torch.tensor([[1.0], [2.0], [4.0]])
        ... )
        tensor([[1., 1.],
                [3., 4.]], dtype=torch.float64)
        """
        width = z[:1].shape[1]
        total = torch.zeros(len(self), width, dtype=torch.float64)
        largest = torch.full_like(total, -torch.inf)
        for at in torch.split(torch.arange(len(self.of_row)), CHUNK):
            case = self.of_row[at]
            rows = z[at].double()
            total.index_add_(0, case, rows)
            index = case[:, None].expand(-1, width)
            largest.scatter_reduce_(0, index, rows, "amax")
        return torch.cat([total / self.sizes[:, None], largest], dim=1)


def choose_slices(n: int, every: int, central: int | None) -> list[int]:
    """Return the positions of the slices of a case whose features are used, ascending.

    n: number of its slices.  every: distance of those used.  central: their number at most.

    >>> choose_slices(9, 2, None), choose_slices(9, 1, 4), choose_slices(2, 5, None)
    ([0, 2, 4, 6, 8], [2, 3, 4, 5], [0])
    """
    middle = (n - 1) // 2
    wanted = range(middle % every, n, every)
    nearest = sorted(wanted, key=lambda at: (abs(at - (n - 1) / 2), at))
    return sorted(nearest[:central])


JOINED = 2
"""Number of features of a case for each feature of its rows."""
