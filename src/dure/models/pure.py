"""What every strategy trains: a network as pure functions of arrays, and the records they pass."""

from typing import Any, NamedTuple, Protocol

PyTree = Any
"""A nest of dicts, lists, tuples and registered classes whose leaves are arrays."""

Array = Any
"""A JAX array; on the host a NumPy array of the same shape and dtype is as good."""


class Batch(NamedTuple):
    """Some rows of a data set; every leaf has a leading axis `[rows, ...]`.

    Attributes:
        x: Inputs, a pytree of arrays `[rows, ...]`.
        y: Targets, a pytree of arrays `[rows, ...]`, or None.
        weight: Sample weights, float32 `[rows]`, or None. A Keras model also takes `[rows, time]`,
            and a pytree where it has several outputs.
    """

    x: PyTree
    y: PyTree = None
    weight: PyTree = None


class TrainState(NamedTuple):
    """Everything training changes; arrays only.

    Attributes:
        params: Trainable leaves.
        model_state: Leaves the forward pass changes: moving averages, Keras's seed generators.
        opt_state: The optimizer's leaves; for Keras the learning rate and the iteration too.
        key: The model's random stream: raw threefry key data, uint32 `[2]`. A Keras model does not use it.
        step: Updates so far, an int32 scalar.
    """

    params: PyTree
    model_state: PyTree
    opt_state: PyTree
    key: Array
    step: Array


class Outline(NamedTuple):
    """What is known of a model on a kind of batch before anything is compiled.

    Attributes:
        outputs: The outputs as `jax.ShapeDtypeStruct` leaves `[rows, ...]`.
        classes: One entry a leaf of `y`, in `jax.tree.leaves` order: how many classes this leaf's labels
            number (they lie in `0 .. classes - 1`), or None where the targets are no class labels.
    """

    outputs: PyTree
    classes: tuple[int | None, ...]


class PureModel(Protocol):
    """A network as pure functions; found by `dure.models.adapt.pure(model)`.

    `gradients`, `update`, `measure` and `predict` are traced, at the full batch of one device: a strategy
    partitions the traced program by rows. The other methods run on the host.

    Attributes:
        unmerged: Names of metrics whose accumulators of several replicas cannot be merged by adding: replicas that
            train apart from one another cannot measure them. Known when `prepare` has seen targets.
    """

    unmerged: tuple[str, ...]

    def prepare(self, batch: Batch, *, predicting: bool = False) -> Outline:
        """Builds what depends on the data's shapes and refuses what does not fit, before any is compiled.

        Called once before `init`, and again for data of another kind. Traces the steps; compiles none.

        Args:
            batch: Leaves with `.shape` `[rows, ...]` and `.dtype`: arrays or `jax.ShapeDtypeStruct`.
            predicting: Only `predict` is to follow: targets and weights are not looked at.

        Raises:
            SpecError: The network cannot take `x`, or the loss or a metric does not fit outputs and targets.
        """
        ...

    def init(self, seed: int) -> TrainState:
        """A fresh state (`dure.Model`) or copies of the model's current values (Keras), as NumPy leaves."""
        ...

    def reseed(self, state: TrainState, seed: int) -> TrainState:
        """The state with its random streams (dropout, noise) restarted from `seed`; nothing else changes."""
        ...

    def gradients(self, state: TrainState, metrics: PyTree, batch: Batch) -> tuple[PyTree, PyTree, PyTree]:
        """One training batch: the objective's gradients, the new model state, the metrics with it added."""
        ...

    def update(self, state: TrainState, grads: PyTree, model_state: PyTree) -> TrainState:
        """One optimizer step: new params, opt_state, `model_state` as given, the next key, step + 1."""
        ...

    def new_metrics(self) -> PyTree:
        """Empty accumulators, as NumPy leaves; adding two of them leaf by leaf merges all but those of `unmerged`."""
        ...

    def measure(self, state: TrainState, metrics: PyTree, batch: Batch) -> PyTree:
        """One evaluation batch: the metrics with it added."""
        ...

    def result(self, metrics: PyTree) -> dict[str, float]:
        """The metrics' values, "loss" first; on the host."""
        ...

    def predict(self, state: TrainState, x: PyTree) -> PyTree:
        """The outputs `[rows, ...]` without training behaviour."""
        ...

    def absorb(self, state: TrainState) -> None:
        """Writes the state into the user's own model object (Keras); nothing to do for `dure.Model`.

        Takes host or device leaves; keeps no reference to them. Called before callbacks run and when `fit`
        ends.
        """
        ...

    def refresh(self, state: TrainState) -> TrainState:
        """The state with what a callback changed in the user's model since the last `absorb` or `init`.

        That is a learning rate, a weight, any optimizer variable. Returns `state` itself when nothing
        changed, so that the caller sees by identity that it need not place it again; changed leaves are NumPy
        copies.

        Args:
            state: The state that `absorb` took or `init` gave: between that and this call no step runs.
        """
        ...

    def finish(self, state: TrainState) -> TrainState:
        """The state to keep when a `fit` ends: with Keras's `use_ema`, the averaged weights as the weights.

        Called once at the end of each `fit`, after the last epoch's callbacks. Returns `state` itself where
        there is nothing to do.
        """
        ...
