"""A model's state on a strategy's devices, from fresh weights to the end of the last fit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, final

import jax
import numpy as np

from dure.errors import StateError
from dure.models.pure import PureModel, TrainState
from dure.strategy.base import Placed, Runner

__all__ = ["LiveState"]


@final
class LiveState:
    """The state that training changes; made when it is first asked for.

    Args:
        model: whose state.
        runner: the model on the strategy's devices.
        seed: of fresh weights and of the random streams.

    Attributes:
        step: updates of the weights so far.
        is_lost: a dispatch failed and took the state with it.
    """

    def __init__(self, model: PureModel, runner: Runner, seed: int) -> None:
        self._model = model
        self._runner = runner
        self._seed = seed
        self._placed: Placed | None = None
        self._is_fresh = True
        self.step = 0
        self.is_lost = False

    def start(self) -> Placed:
        """The state on the devices, fresh if there was none.

        Raises:
            StateError: a dispatch failed and took the state with it.
        """
        if self.is_lost:
            raise StateError(
                f"the weights went with a dispatch that failed after step {self.step}: it had used them up "
                f"and gave none back. Go back to a checkpoint with `trainer.restore(path)`, or make a new "
                f"Trainer."
            )
        if self._placed is None:
            state = self._model.init(self._seed)
            self._placed, self.step = self._runner.place(state, from_chief=True), int(np.asarray(state.step))
        return self._placed

    def take(self, placed: Placed, steps: int) -> None:
        """Notes what a dispatch of some steps gave in place of the state that it used up."""
        self._placed = placed
        self._is_fresh = False
        self.step += steps

    def forget(self, *, only_fresh: bool = False) -> None:
        """Lets go of what lies on the devices.

        Args:
            only_fresh: only of a state that nothing has changed yet; it is made anew when it is asked for.
        """
        if self._is_fresh or not only_fresh:
            self._placed = None

    def gather(self) -> TrainState:
        """A host copy of the state, the replicas made equal before."""
        return self._runner.gather(self.sync())

    def form(self) -> TrainState:
        """A state of the right names, shapes and dtypes; no other process is asked."""
        return self._model.init(self._seed)

    def sync(self) -> Placed:
        """Makes the replicas equal, as at the end of each epoch; returns the state on the devices."""
        self._placed = self._runner.sync(self.start())
        return self._placed

    def load(self, state: TrainState, *, from_chief: bool = False) -> None:
        """Puts a state on the devices in place of the one there.

        Args:
            state: host arrays.
            from_chief: of several processes the first one's counts.
        """
        self._placed = self._runner.place(state, from_chief=from_chief)
        self.step = int(np.asarray(state.step))
        self.is_lost = self._is_fresh = False

    def refresh(self) -> None:
        """Takes over what the user, or a callback, changed in the model object."""
        if self._placed is not None:
            self._replace(self._model.refresh)

    def finish(self) -> None:
        """Does what the model wants done at the end of a fit."""
        self._replace(self._model.finish)

    def reseed(self, seed: int) -> None:
        """Restarts the model's random streams."""
        self.load(self._model.reseed(self.gather(), seed))

    def absorb(self) -> None:
        """Writes the state into the user's model object."""
        self._model.absorb(self.gather())

    def _replace(self, change: Any) -> None:
        state = self.gather()
        changed = change(state)
        if changed is not state:
            self.load(changed)

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """After a dispatch that failed inside: its state may be used up, its results may be an error."""
        try:
            yield
        except BaseException:
            leaves: list[Any] = jax.tree.leaves(self._placed)
            used_up = any(getattr(leaf, "is_deleted", lambda: False)() for leaf in leaves)
            try:
                jax.block_until_ready([] if used_up else leaves)
            except Exception:  # noqa: BLE001 - whatever it is, it is being raised already
                used_up = True
            if used_up:
                self._placed, self.is_lost = None, True
            raise
