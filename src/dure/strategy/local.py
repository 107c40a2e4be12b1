"""Local SGD: every replica trains by itself on its share, and the weights are averaged now and then.

The first of the two texts that Dure follows describes mirrored training so. TensorFlow's MirroredStrategy, PyTorch's
DDP and Horovod exchange gradients at every step instead, as `sync_every="step"` does.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from dure.errors import SpecError
from dure.models.pure import Batch, PureModel, PyTree, TrainState
from dure.strategy.base import UNWATCHED, Feed, Metrics, Watch
from dure.strategy.exchange import Exchange
from dure.strategy.group import ALONE, Group
from dure.strategy.layout import AXIS, Share, whole
from dure.strategy.roles import own_draws
from dure.strategy.rules import Context
from dure.strategy.split import walk
from dure.strategy.spmd import MeshRunner, Step, check_program, chiefs, pick, shape_of, spread, step_of

Array = Any


class LocalState(NamedTuple):
    """The replicas' own states, and what they have done since they were last equal."""

    state: TrainState
    """Leaves `[replicas, ...]`."""
    seen: Array
    """float32 `[replicas]`: examples each replica has trained on since."""
    steps: Array
    """int32 `[replicas]`: steps since, the same on all."""


@final
class LocalRunner:
    """Runs a model on every device of a mesh by itself, averaging every `sync_every` steps or only when asked.

    A replica that had no row of a step does not move in it. The average weighs each replica by the examples that it
    has seen, so that averaging plain SGD at every step is the synchronous step, also with a short last batch.

    Args:
        model: the network.
        devices: like devices.
        sync_every: steps from one average to the next; None averages only in `sync`.
        keeps_optimizer: each replica keeps its own optimizer state through an average.
        resident_bytes: how many bytes of data may stay on each device.
        group: the processes that the devices belong to.
        watch: is told what this process waits for.

    Source:
        McDonald, Mohri, Silberman, Walker and Mann, "Efficient large-scale distributed training of conditional maximum
        entropy models", 2009 (weights averaged once); Stich, "Local SGD converges fast and communicates little", 2019;
        Yu, Jin and Yang, "On the linear speedup analysis of communication efficient momentum SGD", 2019 (momentum
        averaged with the weights).
    """

    def __init__(
        self,
        model: PureModel,
        devices: Sequence[jax.Device],
        *,
        sync_every: int | None,
        keeps_optimizer: bool,
        resident_bytes: int,
        group: Group = ALONE,
        watch: Watch = UNWATCHED,
    ) -> None:
        self.group = group
        self.watch = watch
        self._model = model
        self._mirror = MeshRunner(
            model, devices, is_mirrored=True, resident_bytes=resident_bytes, group=group, watch=watch
        )
        self._mesh = self._mirror.mesh
        self._replicas = len(devices)
        self._sync_every = sync_every
        self._keeps_optimizer = keeps_optimizer
        self._apart = NamedSharding(self._mesh, P(AXIS))
        self._programs: dict[Step, Callable[..., Any]] = {}
        self._averaged = jax.jit(self._mapped(self._sync_local, P(AXIS), P(AXIS)), donate_argnums=0)
        self._first = jax.jit(self._mapped(lambda local: _own(local.state), P(AXIS), P()))
        # With each replica's optimizer state kept, a checkpoint holds their average all the same.
        self._joined = jax.jit(self._mapped(self._join_local, P(AXIS), P()))
        self.resident_bytes = resident_bytes
        self.hold, self.feed, self.stream = self._mirror.hold, self._mirror.feed, self._mirror.stream
        self.new_metrics, self.result = self._mirror.new_metrics, self._mirror.result
        self.fetch = self._mirror.fetch

    def _mapped(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        return jax.shard_map(function, mesh=self._mesh, in_specs=(in_specs,), out_specs=out_specs, check_vma=False)

    def place(self, state: TrainState, *, from_chief: bool = False) -> LocalState:
        """Copies a state to every device."""
        if from_chief:
            state = chiefs(state, self.group, self._apart)

        def copies(leaf: np.ndarray) -> np.ndarray:
            return np.stack([np.asarray(leaf)] * self._replicas)

        local = LocalState(
            jax.tree.map(copies, state),
            np.zeros(self._replicas, np.float32),
            np.zeros(self._replicas, np.int32),
        )
        placed: LocalState = spread(local, self._apart)
        return placed

    def gather(self, placed: LocalState) -> TrainState:
        """A host copy of the state that the replicas share after `sync`."""
        return self._mirror.gather(self._joined(placed))

    def sync(self, placed: LocalState) -> LocalState:
        """Averages the replicas now."""
        return self._averaged(placed)  # type: ignore[no-any-return]

    def train(
        self, placed: LocalState, metrics: Metrics, feed: Feed, start: int, count: int
    ) -> tuple[LocalState, Metrics]:
        """Runs `count` steps, each replica on its own rows."""
        step = step_of("train", feed)
        arguments = (placed, metrics, feed.data, feed.order, np.int32(start), np.int32(count))
        if step not in self._programs:
            self._programs[step] = self._build(step, placed, metrics, feed)
            check_program(self.group, step.name, self._programs[step], arguments)
        return self._programs[step](*arguments)  # type: ignore[no-any-return]

    def measure(self, placed: LocalState, metrics: Metrics, feed: Feed, start: int, count: int) -> Metrics:
        """Evaluates the first replica's weights, the rows shared out; call `sync` before."""
        return self._mirror.measure(self._first(placed), metrics, feed, start, count)

    def predict(self, placed: LocalState, feed: Feed, index: int) -> PyTree:
        """The outputs of the first replica's weights, the rows shared out; call `sync` before."""
        return self._mirror.predict(self._first(placed), feed, index)

    def _build(self, step: Step, placed: LocalState, metrics: Metrics, feed: Feed) -> Callable[..., Any]:
        if self._model.unmerged and self._replicas > 1:
            names = ", ".join(f"`{name}`" for name in self._model.unmerged)
            raise SpecError(
                f"local SGD adds up what each of {self._replicas} replicas has measured, and the accumulators of "
                f"{names} do more than add. Build the metric of sums, with `variable.assign_add`, leave it out, "
                f'or train with `sync_every="step"`.'
            )
        share = Share(step.batch, self._replicas)
        counts = [min(share.size, max(0, step.batch - r * share.size)) for r in range(self._replicas)]
        kinds = sorted(set(counts))
        axes = 1 if step.is_indexed else 3
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (placed.state, metrics))
        branches = [self._branch(share, rows, one[0], one[1], shape_of(feed.data), axes) for rows in kinds]
        which = np.array([kinds.index(count) for count in counts], np.int32)

        def alone(branch: Callable[..., Any]) -> Callable[..., Any]:
            """The steps of one replica from one meeting to the next."""

            def run(first: Array, last: Array, carry: Any, data: Batch, order: Any) -> Any:
                return jax.lax.fori_loop(first, last, lambda n, kept: branch(*kept, pick(data, order, n)), carry)

            return run

        loops = [alone(branch) for branch in branches]

        def turn(data: Batch, order: Any, last: Array, carry: Any) -> Any:
            """Steps until the replicas meet, or the dispatch ends: a choice copies what goes through, once a turn."""
            index, (state, seen, steps), metrics = carry
            me = jax.lax.axis_index(AXIS)
            until = last if self._sync_every is None else jnp.minimum(last, index + self._sync_every - steps)
            state, metrics = jax.lax.switch(jnp.asarray(which)[me], loops, index, until, (state, metrics), data, order)
            done = until - index
            seen = seen + done.astype(jnp.float32) * jnp.asarray(counts, jnp.float32)[me]
            local = LocalState(state, seen, steps + done)
            if self._sync_every == 1:
                local = self._average(local)
            elif self._sync_every is not None:
                is_due = local.steps >= self._sync_every
                local = jax.lax.cond(is_due, self._average, lambda same: same, local)
            return until, local, metrics

        def mapped(local: Any, metrics: Any, data: Batch, order: Any, start: Array, count: Array) -> Any:
            order = None if order is None else order[:, 0]
            data = data if order is not None else jax.tree.map(lambda leaf: leaf[:, 0], data)
            last = start + count
            carry = (start, _own(local), _own(metrics))
            _, *found = jax.lax.while_loop(lambda c: c[0] < last, lambda c: turn(data, order, last, c), carry)
            return jax.tree.map(lambda leaf: leaf[None], tuple(found))

        rows = P() if step.is_indexed else P(None, AXIS)
        program = jax.shard_map(
            mapped,
            mesh=self._mesh,
            in_specs=(P(AXIS), P(AXIS), rows, P(None, AXIS), P(), P()),
            out_specs=(P(AXIS), P(AXIS)),
            check_vma=False,
        )
        return jax.jit(program, donate_argnums=(0, 1))

    def _branch(
        self, share: Share, rows: int, state: TrainState, metrics: Any, data: Batch, axes: int
    ) -> Callable[..., Any]:
        """One step on `rows` rows, traced at that size; its draws are those rows of the full batch's draws."""
        if rows == 0:
            return lambda state, metrics, _: (state, metrics)

        def trace(count: int) -> Any:
            shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[axes:]), leaf.dtype), data)
            return jax.make_jaxpr(self._model.gradients, return_shape=True)(state, metrics, shapes)

        program, results = trace(rows)
        draws = own_draws(program, rows, share.batch, lambda: trace(share.batch)[0])
        trees = jax.tree.structure(results)

        def step(state: TrainState, metrics: Any, batch: Batch) -> Any:
            context = Context(share, Exchange(), own_draws=draws)
            operands = jax.tree.leaves((state, metrics, jax.tree.map(lambda leaf: leaf[:rows], batch)))
            leaves = [piece.value() for piece in walk(context, program, [whole(leaf) for leaf in operands])]
            grads, model_state, metrics = jax.tree.unflatten(trees, leaves)
            return self._model.update(state, grads, model_state), metrics

        return step

    def _sync_local(self, local: LocalState) -> LocalState:
        averaged: LocalState = jax.tree.map(lambda leaf: leaf[None], self._average(_own(local)))
        return averaged

    def _join_local(self, local: LocalState) -> TrainState:
        mine: LocalState = _own(local)
        if not self._keeps_optimizer:
            return mine.state
        exchange = Exchange(is_flat=self.group.size > 1)
        share = (jnp.int32(1), jnp.int32(self._replicas))
        return mine.state._replace(opt_state=_mean(mine.state.opt_state, share, exchange))

    def _average(self, local: LocalState) -> LocalState:
        """The replicas' states weighed by the examples each has seen since they were equal."""
        exchange = Exchange(is_flat=self.group.size > 1)
        seen = exchange.sum(local.seen)
        # Nobody has seen anything: the replicas are equal still.
        is_new = seen == 0
        share = (jnp.where(is_new, 1, local.seen), jnp.where(is_new, self._replicas, seen))
        kept = local.state.opt_state
        averaged = _mean(local.state._replace(opt_state=() if self._keeps_optimizer else kept), share, exchange)
        if self._keeps_optimizer:
            averaged = averaged._replace(opt_state=kept)
        return LocalState(averaged, jnp.zeros_like(local.seen), jnp.zeros_like(local.steps))


def _own(tree: PyTree) -> PyTree:
    """A replica's own part of leaves `[1, ...]`."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _mean(tree: PyTree, share: tuple[Array, Array], exchange: Exchange) -> PyTree:
    """The weighted mean of floating leaves; of counters and keys the first replica's, which always has rows."""
    is_first = jax.lax.axis_index(AXIS) == 0
    leaves, structure = jax.tree.flatten(tree)

    def first(leaf: Array) -> Array:
        return jnp.where(is_first, leaf, jnp.zeros_like(leaf))

    def weighed(leaf: Array) -> Array:
        # Wide enough that the replicas' shares add up to 1 also where the leaf is a narrow one.
        wide = jnp.promote_types(leaf.dtype, jnp.float32)
        mine, total = (count.astype(wide) for count in share)
        return mine / total * leaf.astype(wide)

    # A learning rate is equal everywhere and must come out bit for bit: a mean of differences is 0.
    scalars = [index for index, leaf in enumerate(leaves) if leaf.ndim == 0 and _is_floating(leaf)]
    starts = dict(zip(scalars, exchange.sum_all([first(leaves[index]) for index in scalars]), strict=True))
    brought = [
        weighed(leaf - starts[index] if index in starts else leaf) if _is_floating(leaf) else first(leaf)
        for index, leaf in enumerate(leaves)
    ]
    means = [total.astype(leaf.dtype) for total, leaf in zip(exchange.sum_all(brought), leaves, strict=True)]
    return jax.tree.unflatten(structure, [starts[i] + mean if i in starts else mean for i, mean in enumerate(means)])


def _is_floating(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))
