"""What this process was started as."""

import os

from dure.cluster.spec import resolve
from dure.strategy.base import Strategy
from dure.strategy.mirrored import SingleDevice
from dure.strategy.multi_worker import MultiWorkerMirrored


def strategy_from_env() -> Strategy:
    """The strategy that this process was started for; `SingleDevice` when it runs alone.

    `dure run`, DURE_CLUSTER and DURE_TASK, TF_CONFIG and Slurm say that it is one of several workers: then it is
    `MultiWorkerMirrored`.

    Raises:
        SpecError: what the environment says cannot be, as an index that the cluster does not have.

    Example:
        >>> strategy_from_env().num_replicas
        1
    """
    member = resolve(os.environ)
    if member is None or member.spec.num_tasks(member.task.job) == 1:
        return SingleDevice()
    return MultiWorkerMirrored()
