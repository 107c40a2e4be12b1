"""The mesh engine: one compiled program a kind of step, over one device or a mesh of like devices.

A training step of n replicas is the single device's traced program split by rows (`split`); an operation that has no
rule is computed whole on every replica. Many steps run in one dispatch, counted on the device, so that one program
serves every count.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dure.models.pure import Batch, PureModel, PyTree, TrainState
from dure.strategy.base import UNWATCHED, Feed, Held, Metrics, Placed, Watch
from dure.strategy.exchange import Exchange
from dure.strategy.group import ALONE, Group, check_alike
from dure.strategy.layout import AXIS, NotSplit, Share
from dure.strategy.memory import aligned, is_taken
from dure.strategy.rules import Context
from dure.strategy.split import partial_all, rows_all, settle_all, split

Array = Any
Loop = Callable[..., Any]


MOST_IN_FLIGHT = 16
"""Dispatches sent to CPU devices before one is waited for. XLA's CPU client (jaxlib 0.10.2) takes 32 a device; the next
one blocks a thread of the pool that the devices share, and a collective may then wait for that thread for ever."""


class Step(NamedTuple):
    """What is computed of each step: one of the three methods of a model."""

    name: str
    """"train", "measure" or "predict"."""
    batch: int
    """Rows of the full batch."""
    is_indexed: bool
    """The feed has an order over held rows."""
    rows: Any
    """Structure of the batch, with the shape and dtype of each leaf's row: a program is traced for these alone."""


def step_of(name: str, feed: Feed) -> Step:
    """The kind of step that a method makes of a feed."""
    leaves, tree = jax.tree.flatten(feed.data)
    axes = 1 if feed.order is not None else 3
    rows = tuple((leaf.shape[axes:], str(leaf.dtype)) for leaf in leaves)
    return Step(name, feed.batch, feed.order is not None, (tree, rows))


def shape_of(tree: PyTree) -> PyTree:
    """Each leaf's shape and dtype."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), tree)


def spread(tree: PyTree, sharding: NamedSharding) -> PyTree:
    """Puts host arrays, equal on every process, on the devices of a mesh."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def mine(leaf: np.ndarray) -> Array:
        return jax.make_array_from_callback(leaf.shape, sharding, lambda part: leaf[part])

    return jax.tree.map(lambda leaf: mine(np.asarray(leaf)), tree)


def taken(leaf: np.ndarray) -> np.ndarray:
    """The array in memory that all CPU devices share; what lies otherwise each of them would copy for itself."""
    if is_taken(leaf):
        return leaf
    copy = aligned(leaf.shape, leaf.dtype)
    copy[...] = leaf
    return copy


def joined(metrics: Metrics) -> PyTree:
    """The replicas' accumulators `[replicas, ...]` added up, in their own dtypes."""
    return jax.tree.map(lambda leaf: leaf.sum(0, dtype=leaf.dtype), metrics)


def pick(data: Batch, order: Array | None, step: Array) -> Batch:
    """One step's rows of what a device has: `[rows, ...]` leaves."""
    if order is None:
        return Batch(*jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, step, keepdims=False), data))
    places = jax.lax.dynamic_index_in_dim(order, step, keepdims=False)
    return Batch(*jax.tree.map(lambda leaf: leaf.at[places].get(mode="promise_in_bounds"), data))


def repeat(body: Callable[[Array, Any], Any], start: Array, count: Array, carry: Any) -> Any:
    """Runs `body(step, carry)` for `count` steps from `start` on, inside the program."""
    return jax.lax.fori_loop(start, start + count, body, carry)


def check_program(group: Group, name: str, program: Any, arguments: tuple[Any, ...]) -> None:
    """Refuses to start programs that differ between the processes: their exchanges would not meet.

    Raises:
        SpecError: a process has another program than worker 0.
    """
    if group.size > 1:
        text = program.lower(*arguments).as_text()
        digest = hashlib.sha256(text.encode()).hexdigest()
        check_alike(group, f"the compiled step `{name}`", {"program": f"{len(text)} characters, SHA-256 {digest}"})


def chiefs(state: TrainState, group: Group, apart: NamedSharding) -> TrainState:
    """The chief's state on every process.

    Args:
        state: this process's own, host arrays.
        group: the processes.
        apart: shares the replicas out over them.
    """
    if group.size == 1:
        return state
    ours = apart.mesh.size // group.size
    # This may be their first exchange: Gloo gives up after 30 s (jaxlib 0.10.2) when one of them is busy elsewhere.
    group.each("weights", None)

    def part(leaf: np.ndarray) -> Array:
        # As bytes, which a sum with zeros leaves as they are.
        words = np.frombuffer(np.asarray(leaf).tobytes(), np.uint8)
        return jax.make_array_from_process_local_data(apart, np.stack([words] * ours))

    def firsts(tree: PyTree) -> PyTree:
        is_first = jax.lax.axis_index(AXIS) == 0
        return jax.tree.map(lambda leaf: jax.lax.psum(jnp.where(is_first, leaf[0], 0), AXIS), tree)

    def back(words: np.ndarray, own: np.ndarray) -> np.ndarray:
        return np.frombuffer(words.tobytes(), np.asarray(own).dtype).reshape(np.shape(own)).copy()

    sent = jax.jit(jax.shard_map(firsts, mesh=apart.mesh, in_specs=P(AXIS), out_specs=P(), check_vma=False))
    shared: TrainState = jax.tree.map(back, jax.device_get(sent(jax.tree.map(part, state))), state)
    return shared


@final
class MeshRunner:
    """Runs a model on one device, or the same on every device of a mesh with the batch shared out.

    Args:
        model: the network.
        devices: like devices; the first one alone where `is_mirrored` is False.
        is_mirrored: use the mesh engine, also with one device.
        resident_bytes: how many bytes of data may stay on each device.
        group: the processes that the devices belong to.
        watch: is told what this process waits for.
    """

    def __init__(
        self,
        model: PureModel,
        devices: Sequence[jax.Device],
        *,
        is_mirrored: bool,
        resident_bytes: int,
        group: Group = ALONE,
        watch: Watch = UNWATCHED,
    ) -> None:
        self.group = group
        self.watch = watch
        self._model = model
        self._replicas = len(devices) if is_mirrored else 1
        self._is_mirrored = is_mirrored
        self.mesh = Mesh(np.array(devices[: self._replicas]), (AXIS,), axis_types=(AxisType.Auto,))
        self._is_cpu = devices[0].platform == "cpu"
        self._everywhere = NamedSharding(self.mesh, P())
        self._apart = NamedSharding(self.mesh, P(AXIS))
        self._steps_apart = NamedSharding(self.mesh, P(None, AXIS))
        self._to_all = jax.jit(lambda tree: tree, out_shardings=self._everywhere)
        self._programs: dict[Step, Loop] = {}
        self._capacity: dict[Any, int] = {}
        self._dispatched = 0
        self.resident_bytes = resident_bytes
        self.forms: dict[str, str] = {}
        """By kind of step, how it is spread: "one device", "split by rows", "whole on every replica" and why."""

    def place(self, state: TrainState, *, from_chief: bool = False) -> TrainState:
        """Copies a state to every device."""
        if from_chief:
            state = chiefs(state, self.group, self._apart)
        copies = jax.tree.map(lambda leaf: np.array(leaf, copy=True), state)
        placed: TrainState = spread(copies, self._everywhere)
        return placed

    def gather(self, placed: Placed) -> TrainState:
        """A host copy of the state."""
        state: TrainState = jax.tree.map(lambda leaf: np.array(leaf.addressable_data(0)), placed)
        return state

    def sync(self, placed: Placed) -> Placed:
        """Gives back what it got: the replicas are always equal."""
        return placed

    def hold(self, rows: Batch) -> Held:
        """Sends a data set to every device."""
        if self._is_cpu and self._replicas > 1:
            rows = jax.tree.map(taken, rows)
        return Held(spread(rows, self._everywhere), len(jax.tree.leaves(rows)[0]))

    def feed(self, held: Held, order: np.ndarray) -> Feed:
        """Steps over held rows, int32 `[steps, batch]`."""
        steps, batch = order.shape
        places = Share(batch, self._replicas).places()
        return Feed(held.rows, spread(order[:, places], self._steps_apart), batch, steps)

    def stream(self, rows: Batch) -> Feed:
        """Sends the rows of some steps, `[steps, batch, ...]`, each replica's to it."""
        steps, batch = np.shape(jax.tree.leaves(rows)[0])[:2]
        places = Share(batch, self._replicas).places()
        # A shorter last chunk goes in the frame of a full one, so that it needs no program of its own.
        kind = tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in jax.tree.leaves(rows))
        capacity = self._capacity[kind] = max(steps, self._capacity.get(kind, 0))

        def lay(leaf: np.ndarray) -> np.ndarray:
            if self._replicas == 1:
                shared = leaf[:, None]
            elif batch == places.size:
                shared = leaf.reshape(steps, *places.shape, *leaf.shape[2:])
            else:
                shared = leaf[:, places]
            if steps == capacity:
                return shared
            framed = np.zeros((capacity, *shared.shape[1:]), shared.dtype)
            framed[:steps] = shared
            return framed

        return Feed(spread(jax.tree.map(lay, rows), self._steps_apart), None, batch, steps)

    def new_metrics(self, seen: Metrics | None = None) -> Metrics:
        """Accumulators: leaves `[replicas, ...]`, each device's part of a sum."""

        def part(leaf: np.ndarray) -> np.ndarray:
            leaf = np.asarray(leaf)
            return np.stack([leaf, *[np.zeros_like(leaf)] * (self._replicas - 1)])

        start = self._model.new_metrics() if seen is None else joined(seen)
        return spread(jax.tree.map(part, start), self._apart)

    def fetch(self, arrays: PyTree) -> PyTree:
        """A host copy of all of the arrays, of which other processes may hold a part."""
        return jax.device_get(arrays if self.group.size == 1 else self._to_all(arrays))

    def result(self, metrics: Metrics) -> dict[str, float]:
        """The values of the metrics, summed over the replicas in the accumulators' own dtypes."""
        return self._model.result(joined(metrics))

    def train(self, placed: Placed, metrics: Metrics, feed: Feed, start: int, count: int) -> tuple[Placed, Metrics]:
        """Runs `count` training steps in one dispatch."""
        return self._run("train", placed, metrics, feed, start, count)  # type: ignore[no-any-return]

    def measure(self, placed: Placed, metrics: Metrics, feed: Feed, start: int, count: int) -> Metrics:
        """Adds `count` evaluation steps to the metrics."""
        return self._run("measure", placed, metrics, feed, start, count)

    def predict(self, placed: Placed, feed: Feed, index: int) -> PyTree:
        """The outputs of one step."""
        outputs = self.fetch(self._run("predict", placed, None, feed, index, 1))
        return jax.tree.map(lambda leaf: leaf[: feed.batch], outputs)

    def _run(self, name: str, placed: Placed, metrics: Metrics, feed: Feed, start: int, count: int) -> Any:
        step = step_of(name, feed)
        arguments = (placed, metrics, feed.data, feed.order, np.int32(start), np.int32(count))
        if step not in self._programs:
            self._programs[step] = self._build(step, arguments)
            check_program(self.group, step.name, self._programs[step], arguments)
        results = self._programs[step](*arguments)
        self._dispatched += 1
        if self._is_cpu and self._dispatched % MOST_IN_FLIGHT == 0:
            jax.block_until_ready(results)
        return results

    def _build(self, step: Step, arguments: tuple[Any, ...]) -> Loop:
        """The compiled loop for a kind of step: split by rows, or with effects whole on every device."""
        donated = {"train": (0, 1), "measure": (1,), "predict": ()}[step.name]
        if not self._is_mirrored:
            self.forms[step.name] = "one device"
            return jax.jit(self._on_one(step), donate_argnums=donated)
        try:
            mapped, computed_whole = self._split(step, arguments)
            jax.eval_shape(mapped, *arguments)
        except NotSplit as why:
            self.forms[step.name] = f"whole on every replica: {why}"
            laid = {"train": (self._everywhere, self._apart), "measure": self._apart, "predict": self._everywhere}
            return jax.jit(self._whole(step), donate_argnums=donated, out_shardings=laid[step.name])
        apart = "; ".join(dict.fromkeys(computed_whole))
        self.forms[step.name] = f"split by rows, but whole on every replica: {apart}" if apart else "split by rows"
        return jax.jit(mapped, donate_argnums=donated)

    def _method(self, name: str) -> Callable[..., Any]:
        """The model's method of this name as a function of (state, metrics, batch)."""
        model = self._model
        return {
            "train": model.gradients,
            "measure": model.measure,
            "predict": lambda state, _, batch: model.predict(state, batch.x),
        }[name]

    def _on_full(self, step: Step, rows: Callable[[Batch, Array | None, Array], Batch]) -> Loop:
        """A loop that computes every step at the full batch, whose rows the function `rows` picks."""
        method, update = self._method(step.name), self._model.update

        def loop(state: Any, metrics: Any, data: Batch, order: Any, start: Array, count: Array) -> Any:
            if step.name == "predict":
                return method(state, None, rows(data, order, start))
            whole_metrics = joined(metrics)

            def body(index: Array, carry: Any) -> Any:
                state, metrics = carry
                if step.name == "measure":
                    return state, method(state, metrics, rows(data, order, index))
                grads, model_state, metrics = method(state, metrics, rows(data, order, index))
                return update(state, grads, model_state), metrics

            state, whole_metrics = repeat(body, start, count, (state, whole_metrics))
            metrics = jax.tree.map(lambda new, old: jnp.zeros_like(old).at[0].set(new), whole_metrics, metrics)
            return (state, metrics) if step.name == "train" else metrics

        return loop

    def _on_one(self, step: Step) -> Loop:
        """The single device's loop."""

        def rows(data: Batch, order: Array | None, index: Array) -> Batch:
            picked = pick(data, None if order is None else order[:, 0], index)
            return picked if order is not None else jax.tree.map(lambda leaf: leaf[0], picked)

        return self._on_full(step, rows)

    def _whole(self, step: Step) -> Loop:
        """The same loop on every device, each with all the rows."""

        def rows(data: Batch, order: Array | None, index: Array) -> Batch:
            if order is not None:
                order = order.reshape(order.shape[0], -1)
            picked = pick(data, order, index)
            if order is None:
                picked = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), picked)
            full: Batch = jax.tree.map(lambda leaf: leaf[: step.batch], picked)
            return full

        return jax.shard_map(self._on_full(step, rows), mesh=self.mesh, in_specs=P(), out_specs=P(), check_vma=False)

    def _split(self, step: Step, arguments: tuple[Any, ...]) -> tuple[Loop, list[str]]:
        """The loop that each replica runs on its own rows, meeting the others in the sums over rows.

        Returns:
            The loop; and what every replica computes whole, and why, filled when the loop is traced.
        """
        computed_whole: list[str] = []
        share = Share(step.batch, self._replicas)
        placed, metrics, data, _, _, _ = arguments
        axes = 1 if step.is_indexed else 3

        def full(leaf: Array) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((step.batch, *leaf.shape[axes:]), leaf.dtype)

        part = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), metrics)
        program, results = jax.make_jaxpr(self._method(step.name), return_shape=True)(
            shape_of(placed), part, jax.tree.map(full, data)
        )
        counts = [len(jax.tree.leaves(result)) for result in results] if step.name == "train" else []
        trees = jax.tree.structure(results)

        def one(state: Any, metrics: Any, batch: Batch) -> Any:
            context = Context(share, Exchange(is_flat=self.group.size > 1), computed_whole=computed_whole)
            pieces = split(context, program, whole_in=state, partial_in=metrics, rows_in=batch)
            if step.name == "predict":
                return jax.tree.unflatten(trees, rows_all(context, pieces))
            if step.name == "measure":
                return state, jax.tree.unflatten(trees, partial_all(context, pieces))
            kept = counts[0] + counts[1]
            leaves = [*settle_all(context, pieces[:kept]), *partial_all(context, pieces[kept:])]
            grads, model_state, metrics = jax.tree.unflatten(trees, leaves)
            return self._model.update(state, grads, model_state), metrics

        def local(state: Any, metrics: Any, data: Batch, order: Any, start: Array, count: Array) -> Any:
            order = None if order is None else order[:, 0]
            data = data if order is not None else jax.tree.map(lambda leaf: leaf[:, 0], data)
            mine = jax.tree.map(lambda leaf: leaf[0], metrics)
            if step.name == "predict":
                return one(state, mine, pick(data, order, start))

            def body(index: Array, carry: tuple[Any, Any]) -> Any:
                return one(carry[0], carry[1], pick(data, order, index))

            state, mine = repeat(body, start, count, (state, mine))
            stacked = jax.tree.map(lambda leaf: leaf[None], mine)
            return (state, stacked) if step.name == "train" else stacked

        rows = P() if step.is_indexed else P(None, AXIS)
        out = {"train": (P(), P(AXIS)), "measure": P(AXIS), "predict": P(AXIS)}[step.name]
        mapped = jax.shard_map(
            local,
            mesh=self.mesh,
            in_specs=(P(), P(AXIS), rows, P(None, AXIS), P(), P()),
            out_specs=out,
            check_vma=False,
        )
        return mapped, computed_whole
