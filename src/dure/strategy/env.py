"""What this process was started as."""

import json
import os
from collections.abc import Mapping

from dure.errors import SpecError
from dure.strategy.base import Strategy
from dure.strategy.mirrored import SingleDevice


def strategy_from_env() -> Strategy:
    """The strategy that this process was started for; `SingleDevice` when it runs alone.

    Raises:
        SpecError: the environment says that this is one of several processes, which this version cannot train in.

    Example:
        >>> strategy_from_env().num_replicas
        1
    """
    told = started_among(os.environ)
    if told is not None:
        raise SpecError(
            f"{told} says that this is one of several processes, and this version of Dure trains in one; each would "
            "train the whole by itself. Start the script once, by itself"
        )
    return SingleDevice()


def started_among(environment: Mapping[str, str]) -> str | None:
    """Which variable says that this process is one of several, if one does.

    Args:
        environment: the process's variables: Dure's own, TensorFlow's and Slurm's are read.
    """
    if environment.get("DURE_CLUSTER"):
        return "DURE_CLUSTER"
    if environment.get("TF_CONFIG"):
        try:
            cluster = json.loads(environment["TF_CONFIG"])["cluster"]
            count = sum(len(addresses) for addresses in cluster.values())
        except (ValueError, KeyError, TypeError, AttributeError):
            count = 0
        if count > 1:
            return "TF_CONFIG"
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "")
    if tasks.isdigit() and int(tasks) > 1:
        return "SLURM_STEP_NUM_TASKS"
    return None
