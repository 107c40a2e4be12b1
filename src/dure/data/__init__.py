"""Data for training: named data sets, streams of elements, and whatever else yields batches.

Needs NumPy alone; scikit-learn only for `load("digits")`.
"""

from __future__ import annotations

from dure.data.catalog import load
from dure.data.dataset import Dataset

__all__ = ["Dataset", "load"]
