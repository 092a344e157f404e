"""Medians, their intervals, and marks on odd values: one definition for every table, figure and record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

SEED = 20_250_131
"""Seed of every bootstrap unless a caller names its own; it is part of the record of a result."""

_BLOCK = 2_000_000
"""Most values drawn at once, so that a long sample needs no more than 16 MB."""


def percentile(values: npt.ArrayLike, q: float) -> float:
    """The `q`-th percentile (0 to 100), linear between the values at rank q/100 (n - 1).

    NaN if there is no value. Missing values (NaN) are left out.
    """
    known = _known(values)
    return float(np.percentile(known, q)) if known.size else float("nan")


def median_ci(values: npt.ArrayLike, n_resamples: int = 10_000, seed: int = SEED) -> tuple[float, float]:
    """95 % percentile-bootstrap interval (low, high) of the median, in the unit of `values`.

    Missing values are left out. Both ends are NaN below two values: one request says nothing of its spread.
    """
    known = _known(values)
    if known.size < 2:
        return float("nan"), float("nan")
    return _interval(_medians(known, n_resamples, np.random.default_rng(seed)))


def ratio_ci(
    a: npt.ArrayLike, b: npt.ArrayLike, n_resamples: int = 10_000, seed: int = SEED
) -> tuple[float, float]:
    """95 % bootstrap interval (low, high) of median(a) / median(b), the samples drawn independently.

    Missing values are left out. Both ends are NaN if either sample has fewer than two values or if a
    resampled median of `b` is zero.
    """
    return _two_samples(a, b, n_resamples, seed, _ratio)


def difference_ci(
    a: npt.ArrayLike, b: npt.ArrayLike, n_resamples: int = 10_000, seed: int = SEED
) -> tuple[float, float]:
    """95 % bootstrap interval (low, high) of median(a) - median(b); missing values as in `ratio_ci`."""
    return _two_samples(a, b, n_resamples, seed, np.subtract)


def p99_is_max(n: int) -> bool:
    """True if a 99th percentile of `n` values says no more than their maximum (n < 100)."""
    return n < 100


def outliers(values: npt.ArrayLike, threshold: float = 3.5) -> npt.NDArray[np.bool_]:
    """Mask, as long as `values`: where the modified z-score 0.6745 |x - median| / MAD is above `threshold`.

    Iglewicz and Hoaglin (1993). A missing value is no outlier. If more than half of the values are equal
    the MAD is zero; then the mean absolute deviation takes its place, as they advise (factor 0.7979), and
    nothing is marked if that is zero too.
    """
    x = np.asarray(values, dtype=float)
    known = x[~np.isnan(x)]
    if not known.size:
        return np.zeros(x.shape, dtype=bool)
    distance = np.abs(x - np.median(known))
    spread = np.nanmedian(distance) / 0.6745 or np.nanmean(distance) / 0.7979
    return distance > threshold * spread if spread else np.zeros(x.shape, dtype=bool)


def _known(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    x = np.asarray(values, dtype=float).ravel()
    return x[~np.isnan(x)]


def _medians(x: npt.NDArray[np.float64], n: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Medians of `n` samples drawn from `x` with replacement."""
    return np.concatenate([np.median(x[rows], axis=1) for rows in _draws(x.size, n, rng)])


def _draws(size: int, n: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    per_block = max(1, _BLOCK // size)
    for first in range(0, n, per_block):
        yield rng.integers(0, size, (min(per_block, n - first), size))


def _two_samples(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    n_resamples: int,
    seed: int,
    combine: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[float, float]:
    known_a, known_b = _known(a), _known(b)
    if min(known_a.size, known_b.size) < 2:
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    return _interval(combine(_medians(known_a, n_resamples, rng), _medians(known_b, n_resamples, rng)))


def _ratio(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(a, b, out=np.full_like(a, np.nan), where=b != 0)


def _interval(medians: npt.NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)
