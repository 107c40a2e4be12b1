"""The mesh engine: where data lies, which program serves which data, and how each step is spread."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dure.models.pure import Batch, PureModel
from dure.strategy.memory import is_taken
from dure.strategy.spmd import MeshRunner
from unit.strategy.engine import CLASSES, WIDTH, forward, in_order, network, rows, steps


def runner(model: PureModel, replicas: int = 3, *, is_mirrored: bool = True) -> MeshRunner:
    """A runner on the first few devices."""
    return MeshRunner(model, jax.devices()[:replicas], is_mirrored=is_mirrored, resident_bytes=1000)


def leaves_equal(one: Any, other: Any) -> None:
    """Asserts that trees are equal bit for bit."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("replicas", [1, 3])
def test_streamed_rows_train_as_held_ones(replicas: int) -> None:
    model, data = network(), rows(21)
    engine = runner(model, replicas)
    held = engine.feed(engine.hold(data), in_order(21, 7))
    streamed = engine.stream(steps(data, 7))
    one = engine.train(engine.place(model.init(0)), engine.new_metrics(), held, 0, 3)
    other = engine.train(engine.place(model.init(0)), engine.new_metrics(), streamed, 0, 3)
    leaves_equal(engine.gather(one[0]), engine.gather(other[0]))
    assert engine.result(one[1]) == engine.result(other[1])
    np.testing.assert_array_equal(engine.predict(one[0], held, 1), engine.predict(one[0], streamed, 1))


def test_a_shorter_chunk_goes_in_the_frame_of_a_full_one() -> None:
    model = network()
    engine = runner(model)
    full, short = engine.stream(steps(rows(21), 7)), engine.stream(steps(rows(14), 7))
    assert jax.tree.map(jnp.shape, full.data) == jax.tree.map(jnp.shape, short.data)
    assert short.steps == 2
    state = engine.place(model.init(0))
    found = engine.result(engine.measure(state, engine.new_metrics(), short, 0, 2))
    single = runner(model, is_mirrored=False)
    feed = single.stream(steps(rows(14), 7))
    expected = single.result(single.measure(single.place(model.init(0)), single.new_metrics(), feed, 0, 2))
    assert found == pytest.approx(expected, rel=1e-6)


def test_steps_are_counted_on_the_device_so_that_one_program_serves_all() -> None:
    model, data = network(), rows(28)
    engine = runner(model)
    feed = engine.feed(engine.hold(data), in_order(28, 7))
    at_once = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 4)
    state, metrics = engine.place(model.init(0)), engine.new_metrics()
    for start, count in ((0, 1), (1, 0), (1, 2), (3, 1)):
        state, metrics = engine.train(state, metrics, feed, start, count)
    leaves_equal(engine.gather(at_once[0]), engine.gather(state))
    assert int(engine.gather(state).step) == 4
    (program,) = engine._programs.values()
    assert program._cache_size() == 1


def test_data_of_another_kind_gets_a_program_of_its_own() -> None:
    model = network()
    engine = runner(model)
    state = engine.place(model.init(0))
    kinds = [rows(7), rows(7, np.uint8), rows(7, weighted=True), rows(7)]
    found = []
    for data in kinds:
        feed = engine.feed(engine.hold(data), in_order(7, 7))
        found.append(engine.result(engine.measure(state, engine.new_metrics(), feed, 0, 1)))
        expected = model.predict(model.init(0), data.x)
        np.testing.assert_allclose(engine.predict(state, feed, 0), expected, rtol=1e-5, atol=1e-5)
    assert found[0] == found[3]
    assert len({result["loss"] for result in found}) == 3


@pytest.mark.parametrize("is_mirrored", [True, False])
def test_a_placed_state_shares_no_memory_with_the_callers(is_mirrored: bool) -> None:
    model, data = network(), rows(8)
    engine = runner(model, 2, is_mirrored=is_mirrored)
    # On a 64-byte boundary a CPU device would take the array as it is.
    memory = np.empty(WIDTH * CLASSES * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 64
    weights = memory[start : start + WIDTH * CLASSES * 4].view(np.float32).reshape(WIDTH, CLASSES)
    weights[...] = 1
    state = engine.place(model.init(0)._replace(params={"w": weights}))
    feed = engine.feed(engine.hold(data), in_order(8, 8))
    weights[...] = 0
    before = engine.predict(state, feed, 0)
    engine.train(state, engine.new_metrics(), feed, 0, 1)
    assert (before != 0).all()
    assert (weights == 0).all()


def test_the_forms_say_how_each_step_is_spread() -> None:
    def ranked(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        outputs = forward(params, x, key=key, training=training)
        return outputs + jnp.sort(outputs, axis=0) if training else outputs

    data = rows(7)
    for is_mirrored, expected in (
        (False, {"train": "one device", "measure": "one device"}),
        (
            True,
            {
                "train": "split by rows, but whole on every replica: "
                "operation `sort` (float32[7,4], uint32[7,4]) mixes the rows",
                "measure": "split by rows",
            },
        ),
    ):
        model = network(ranked)
        engine = runner(model, is_mirrored=is_mirrored)
        feed = engine.feed(engine.hold(data), in_order(7, 7))
        state, _ = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 1)
        engine.measure(state, engine.new_metrics(), feed, 0, 1)
        assert engine.forms == expected


def test_a_network_that_prints_is_computed_whole_on_every_replica(capfd: pytest.CaptureFixture[str]) -> None:
    def telling(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        outputs = forward(params, x, key=key, training=training)
        if training:
            jax.debug.print("mean {}", jnp.round(outputs.mean() * 0, 1))
        return outputs

    data, results = rows(8), []
    for is_mirrored in (True, False):
        model = network(telling)
        engine = runner(model, 2, is_mirrored=is_mirrored)
        feed = engine.feed(engine.hold(data), in_order(8, 8))
        state, metrics = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 1)
        results.append((engine.gather(state).params["w"], engine.result(metrics)["loss"]))
        if is_mirrored:
            assert engine.forms["train"].startswith("whole on every replica: operation `debug_")
            assert {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(state)} == {2}
    jax.effects_barrier()
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=0, atol=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-6)
    assert capfd.readouterr().out.count("mean") == 3  # of each of two replicas, and of the one device


def test_cpu_devices_share_one_copy_of_the_rows() -> None:
    engine = runner(network(), 3)
    whole = np.zeros(4 * 1001 + 1, np.uint8)[1:].view(np.float32).reshape(1001, 1)
    assert not is_taken(whole)
    held = engine.hold(Batch(whole, whole))
    parts = {shard.data.unsafe_buffer_pointer() for shard in held.rows.x.addressable_shards}
    assert len(parts) == 1
    assert held.num_rows == 1001


def test_accumulators_are_each_devices_part_of_a_sum() -> None:
    model = network()
    engine = runner(model)
    feed = engine.feed(engine.hold(rows(7)), in_order(7, 7))
    metrics = engine.measure(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 1)
    assert np.asarray(metrics["examples"]).tolist() == [7, 0, 0]
    parts = np.asarray(metrics["sums"]["loss"].high)
    assert (parts > 0).all()  # three, three and one row
    # Reading does not use them up.
    assert engine.result(metrics) == engine.result(metrics)
