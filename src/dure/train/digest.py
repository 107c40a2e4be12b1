"""Whether the replicas still have the same weights: a digest of each tensor as each replica has it, compared.

Synchronous replicas are equal bit for bit. One whose memory lost a bit, or that drew from something of its own, goes on
without an error and spoils what is averaged with it: nothing else tells.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dure.errors import StepError
from dure.models.pure import PyTree
from dure.strategy.base import Placed
from dure.strategy.group import Group
from dure.strategy.local import LocalState

__all__ = ["Divergence", "check_equal", "diverged", "message"]


class Divergence(NamedTuple):
    """A replica whose weights are not those of the others.

    Attributes:
        tensor: the first tensor that differs.
        others: how many more differ.
        replica: its number over all processes, from 0.
        worker: its process's.
        replicas: how many replicas there are.
        workers: how many processes.
    """

    tensor: str
    others: int
    replica: int
    worker: int
    replicas: int
    workers: int


def check_equal(placed: Placed, group: Group, *, step: int) -> None:
    """Compares the weights and the model's state on all replicas, when they are to be equal.

    Every process makes the call. It costs a pass over the bytes of each replica of this process, and one message.

    Args:
        placed: the state on the devices.
        group: the processes.
        step: updates of the weights so far.

    Raises:
        StepError: a replica has other bits; the first tensor that differs is its node.
    """
    # Of the optimizer's state replicas may each have their own; what differs there soon shows in the weights.
    state = placed.state if isinstance(placed, LocalState) else placed
    leaves = jax.tree.leaves_with_path({"params": state.params, "model_state": state.model_state})
    mine = list(zip(*(_digests(leaf) for _, leaf in leaves), strict=True))
    if len(mine) * group.size < 2:
        return
    whole = group.each("digest of replicas", [_joined(tensors) for tensors in mine])
    if len({digest for digests in whole for digest in digests}) == 1:
        return
    names = [_name(path) for path, _ in leaves]
    found = diverged(names, group.each("digests of tensors", mine))
    raise StepError(
        message(found, step), node=found.tensor, task=f"worker:{found.worker}" if group.size > 1 else None, step=step
    )


def diverged(names: Sequence[str], told: Sequence[Sequence[Sequence[str]]]) -> Divergence:
    """Finds the replica that differs: from most of the others, or from the first where there is no majority.

    Args:
        names: of the tensors.
        told: digests `[workers][replicas of it][tensors]`, not all the same.

    Example:
        >>> diverged(["a", "b"], [[["1", "7"], ["1", "7"]], [["1", "8"], ["1", "7"]]])
        Divergence(tensor='b', others=0, replica=2, worker=1, replicas=4, workers=2)
    """
    replicas = [(worker, tuple(tensors)) for worker, own in enumerate(told) for tensors in own]
    # `most_common` keeps the order of what is equally common: then the first replica counts as right.
    usual = Counter(tensors for _, tensors in replicas).most_common(1)[0][0]
    number, (worker, tensors) = next((n, one) for n, one in enumerate(replicas) if one[1] != usual)
    differ = [name for name, own, right in zip(names, tensors, usual, strict=True) if own != right]
    return Divergence(differ[0], len(differ) - 1, number, worker, len(replicas), len(told))


def message(found: Divergence, step: int) -> str:
    """The error in words.

    Example:
        >>> message(Divergence("params['w']", 2, 1, 1, 2, 2), 40)[:99]
        "all 2 replicas are to be equal after step 40, and `params['w']` (and 2 more) of replica 1 on worker"
    """
    more = f" (and {found.others} more)" if found.others else ""
    where = f"replica {found.replica}" + (f" on worker:{found.worker}" if found.workers > 1 else "")
    return (
        f"all {found.replicas} replicas are to be equal after step {step}, and `{found.tensor}`{more} of {where} has "
        "other bits than the others have. Either the memory there is faulty, or the model or a callback does something "
        "that differs between replicas. Go back to an earlier checkpoint with `trainer.restore(path)`, and leave that "
        "device out"
    )


def _digests(leaf: Any) -> list[str]:
    """A digest for each device of this process, of the bytes that it has of a leaf."""
    return [hashlib.sha256(_bytes(np.asarray(shard.data))).hexdigest() for shard in leaf.addressable_shards]


def _bytes(array: np.ndarray) -> memoryview:
    # As bytes: NumPy lends no memory of the short floats that JAX brings.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _joined(digests: Sequence[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _name(path: PyTree) -> str:
    """As a checkpoint names it: `params['dense']['kernel']`."""
    root, *rest = path
    return f"{root.key}{jax.tree_util.keystr(tuple(rest))}"
