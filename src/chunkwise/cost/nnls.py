"""Non-negative least squares from sums of products, with numpy alone.

Costs do not fall when work is added, so every coefficient is held at zero or
above. Working on the sums (`rows.T @ rows`) instead of the rows keeps memory
bounded however many steps were recorded. SciPy has the same on rows, but is not
part of a vLLM installation; a test compares the two.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def nnls(products: Floats, targets: Floats, ridge: float = 1e-12) -> Floats:
    """Return x >= 0 that minimises x'Px - 2t'x. Usage: `nnls(rows.T @ rows, rows.T @ y)`.

    The active-set method of Lawson and Hanson on the normal equations. A feature
    that never varied gets 0: `ridge` keeps the system solvable.
    """
    size = len(targets)
    scale = np.sqrt(np.diag(products))
    scale[scale <= 0] = 1.0
    scaled = products / np.outer(scale, scale) + ridge * np.eye(size)
    wanted = targets / scale
    found = np.zeros(size)
    free = np.zeros(size, dtype=bool)
    for _ in range(3 * size + 10):
        slope = wanted - scaled @ found
        slope[free] = -np.inf
        best = int(np.argmax(slope))
        if slope[best] <= 1e-10:
            break
        free[best] = True
        while True:
            trial = np.zeros(size)
            trial[free] = np.linalg.solve(scaled[np.ix_(free, free)], wanted[free])
            below = free & (trial <= 0)
            if not below.any():
                break
            # Walk towards the trial until the first of them reaches zero, and fix it there.
            step = np.min(found[below] / np.maximum(found[below] - trial[below], 1e-300))
            found += step * (trial - found)
            free &= found > 1e-14
            found[~free] = 0.0
        found = trial
    return np.asarray(found / scale)
