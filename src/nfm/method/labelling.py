"""Labels on a graph by one minimum cut: the exact minimum of an energy whose neighbours attract each other.

    energy(l) = sum_i unary[i, l_i] - sum_(i,j) attraction_ij * (l_i / M) * (l_j / M),     l_i in 0 ... M

A label is written as M switches, one for each step (l_i >= t), with a wall of infinite capacity that keeps them in
order (Ishikawa 2003). As neighbours attract, every product of two switches can be cut, so one maximum flow finds the
minimum over all labellings; alpha-beta swaps would find one that no swap improves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfm.errors import UsageError, need

SCALE = 2**20  # capacities are whole numbers: energies are rounded to about a millionth
WALL = 2**30

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Neighbours:
    """Pairs of neighbouring places (first, second), both int64 [pairs]."""

    first: Ints
    second: Ints

    @classmethod
    def grid(cls, rows: int, columns: int) -> Neighbours:
        """Return the pairs of a grid: those above each other first, then those beside each other."""
        place = np.arange(rows * columns).reshape(rows, columns)
        first = np.concatenate([place[:-1].ravel(), place[:, :-1].ravel()])
        return cls(first, np.concatenate([place[1:].ravel(), place[:, 1:].ravel()]))


def minimise(unary: Floats, attraction: Floats, neighbours: Neighbours) -> Ints:
    """Return the labels [n, places] of least energy of n graphs alike, all by one flow.

    unary: [n, places, M + 1]; attraction: [n, pairs], 0 or greater.
    """
    if attraction.size and attraction.min() < 0:
        raise UsageError(f"expected neighbours that attract each other, got {attraction.min():g} at least")
    n, places, labels = unary.shape
    steps = labels - 1
    # A product of switches -c*b*b' is c/2 where they differ, less c/2 for each: that goes to the switches alone.
    share = attraction / (2 * steps**2)
    pull = np.zeros((n, places))
    for ends in (neighbours.first, neighbours.second):
        np.add.at(pull.T, ends, steps * share.T)
    cost = np.diff(unary, axis=2) - pull[:, :, None]
    return _cut(_whole(cost), _whole(share), neighbours).sum(axis=2)


def energy(labels: Ints, unary: Floats, attraction: Floats, neighbours: Neighbours) -> Floats:
    """Return the energy [n] of labels [n, places]."""
    share = labels / (unary.shape[2] - 1)
    own = np.take_along_axis(unary, labels[:, :, None], axis=2)[:, :, 0].sum(axis=1)
    return own - (attraction * share[:, neighbours.first] * share[:, neighbours.second]).sum(axis=1)


def _whole(values: Floats) -> Ints:
    return np.rint(SCALE * values).astype(np.int64)


def _cut(cost: Ints, share: Ints, neighbours: Neighbours) -> NDArray[np.bool_]:
    """Return which switches [n, places, steps] are on: those that the source still reaches after the flow."""
    matrix, graphs = _scipy()
    n, places, steps = cost.shape
    switch = np.arange(cost.size).reshape(cost.shape)
    source, sink = cost.size, cost.size + 1
    edges = [
        (np.full(cost.size, source), switch.ravel(), np.maximum(-cost, 0).ravel()),
        (switch.ravel(), np.full(cost.size, sink), np.maximum(cost, 0).ravel()),
        (switch[:, :, 1:].ravel(), switch[:, :, :-1].ravel(), np.full(n * places * (steps - 1), WALL)),
    ]
    for one in range(steps):
        for other in range(steps):
            ends = switch[:, neighbours.first, one].ravel(), switch[:, neighbours.second, other].ravel()
            edges += [(*ends, share.ravel()), (*ends[::-1], share.ravel())]
    start, end, capacity = (np.concatenate(column) for column in zip(*edges, strict=True))
    size = cost.size + 2
    graph = matrix((capacity.astype(np.int32), (start, end)), shape=(size, size))
    graph.eliminate_zeros()
    left = graph - graphs.maximum_flow(graph, source, sink).flow
    left.eliminate_zeros()  # what is left is never negative: a flow fits its edges
    on = np.zeros(size, dtype=bool)
    on[graphs.breadth_first_order(left, source, return_predecessors=False)] = True
    return on[: cost.size].reshape(cost.shape)


def _scipy() -> tuple[Any, Any]:
    try:
        from scipy.sparse import csgraph, csr_matrix
    except (ImportError, RuntimeError) as error:
        raise need("scipy", "data", "puzzlemix", error) from error
    return csr_matrix, csgraph
