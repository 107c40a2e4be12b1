"""The loops that a good engineer writes by hand in JAX: what Dure's speed is compared with.

Each function returns `epoch(order)`, which trains one epoch over rows that lie on the devices already and waits for its
end; `order` is int32 `[steps, batch]`. All of one case give the same numbers, but for rounding.
"""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from networks import functions, losses

AXIS = "data"


def _optimizer():
    return optax.adam(1e-3)


def _looping(run, carry, data, place_order):
    """An `epoch(order)` around a compiled `run(carry, order, data) -> (carry, losses)`."""
    box = [carry]

    def epoch(order):
        box[0], loss = run(box[0], place_order(order), data)
        jax.block_until_ready((box[0], loss))
        return float(jnp.mean(loss))

    return epoch


def jax_scan(name, x, y):
    """One device: `lax.scan` over the steps, state donated."""
    init, apply = functions(name)
    optimizer = _optimizer()

    def step(carry, rows, x, y):
        params, opt = carry

        def loss(params):
            return jnp.mean(losses(apply(params, x[rows], key=None, training=True), y[rows]))

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt = optimizer.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), value

    def run(carry, order, data):
        return jax.lax.scan(lambda c, r: step(c, r, *data), carry, order)

    params = init(jax.random.key(0))
    one = jax.devices()[0]
    return _looping(
        jax.jit(run, donate_argnums=0),
        jax.device_put((params, optimizer.init(params)), one),
        jax.device_put((x, y), one),
        lambda order: jax.device_put(order, one),
    )


def _mesh(devices):
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])


def jax_sharded(name, x, y, devices, batch):
    """Several devices: `lax.scan` inside `shard_map`, the gradients in one psum over the tree.

    The mean is over the full batch, and a replica's padding counts nothing, so that the numbers are one device's.
    """
    init, apply = functions(name)
    optimizer, mesh = _optimizer(), _mesh(devices)
    share = -(-batch // devices)
    padded = np.minimum(np.arange(devices * share), batch - 1)
    real = (np.arange(devices * share) < batch).reshape(devices, share)
    is_even = share * devices == batch

    def local(carry, order, data):
        mine = jnp.asarray(real)[jax.lax.axis_index(AXIS)]

        def step(carry, rows):
            params, opt = carry
            x, y = data[0][rows[0]], data[1][rows[0]]

            def loss(params):
                values = losses(apply(params, x, key=None, training=True), y)
                return jnp.sum(values if is_even else jnp.where(mine, values, 0)) / batch

            value, grads = jax.value_and_grad(loss)(params)
            updates, opt = optimizer.update(jax.lax.psum(grads, AXIS), opt, params)
            return (optax.apply_updates(params, updates), opt), value[None]

        return jax.lax.scan(step, carry, order)

    run = jax.shard_map(
        local, mesh=mesh, in_specs=(P(), P(None, AXIS), P()), out_specs=(P(), P(None, AXIS)), check_vma=False
    )
    params = init(jax.random.key(0))
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, AXIS))
    return _looping(
        jax.jit(run, donate_argnums=0),
        jax.device_put((params, optimizer.init(params)), everywhere),
        jax.device_put((x, y), everywhere),
        lambda order: jax.device_put(order[:, padded].reshape(len(order), devices, share), split),
    )


def jax_automatic(name, x, y, devices, batch):
    """Several devices: the single device's `lax.scan`, the batch marked as split; XLA's partitioner does the rest."""
    init, apply = functions(name)
    optimizer, mesh = _optimizer(), _mesh(devices)
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P(AXIS))

    def run(carry, order, data):
        def step(carry, rows):
            params, opt = carry
            x, y = (jax.lax.with_sharding_constraint(part[rows], split) for part in data)

            def loss(params):
                return jnp.mean(losses(apply(params, x, key=None, training=True), y))

            value, grads = jax.value_and_grad(loss)(params)
            updates, opt = optimizer.update(grads, opt, params)
            return (optax.apply_updates(params, updates), opt), value

        return jax.lax.scan(step, carry, order)

    params = init(jax.random.key(0))
    return _looping(
        jax.jit(run, donate_argnums=0),
        jax.device_put((params, optimizer.init(params)), everywhere),
        jax.device_put((x, y), everywhere),
        lambda order: jax.device_put(order, everywhere),
    )


def keras_scan(model, x, y, devices=None):
    """`lax.scan` over Keras's stateless calls: one device, or split by XLA's partitioner over several.

    Loss only, no metrics: the least that a loop by hand has to do.
    """
    mesh = _mesh(devices or 1)
    split, everywhere = NamedSharding(mesh, P(AXIS)), NamedSharding(mesh, P())

    def run(carry, order, data):
        def step(carry, rows):
            weights, others, slots = carry
            x, y = data[0][rows], data[1][rows]
            if devices:
                x, y = (jax.lax.with_sharding_constraint(part, split) for part in (x, y))

            def loss(weights):
                outputs, after = model.stateless_call(weights, others, x, training=True)
                return model.compute_loss(x, y, outputs), after

            (value, others), grads = jax.value_and_grad(loss, has_aux=True)(weights)
            weights, slots = model.optimizer.stateless_apply(slots, grads, weights)
            return (weights, others, slots), value

        return jax.lax.scan(step, carry, order)

    model.optimizer.build(model.trainable_variables)
    parts = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    carry = [[jnp.array(np.asarray(variable.value)) for variable in part] for part in parts]
    where = everywhere if devices else jax.devices()[0]
    return _looping(
        jax.jit(run, donate_argnums=0),
        jax.device_put(tuple(carry), where),
        jax.device_put((x, y), where),
        lambda order: jax.device_put(order, where),
    )


def jax_processes(name, x, y, batch):
    """One device of every process that `jax.distributed` has joined: the gradients in one flat vector, one psum."""
    init, apply = functions(name)
    optimizer, devices = _optimizer(), jax.devices()
    mesh = jax.make_mesh((len(devices),), (AXIS,), axis_types=(AxisType.Auto,), devices=devices)
    share = -(-batch // len(devices))
    padded = np.minimum(np.arange(len(devices) * share), batch - 1)
    real = (np.arange(len(devices) * share) < batch).reshape(len(devices), share)

    def local(carry, order, data):
        mine = jnp.asarray(real)[jax.lax.axis_index(AXIS)]

        def step(carry, rows):
            params, opt = carry
            x, y = data[0][rows[0]], data[1][rows[0]]

            def loss(params):
                values = losses(apply(params, x, key=None, training=True), y)
                return jnp.sum(jnp.where(mine, values, 0)) / batch

            value, grads = jax.value_and_grad(loss)(params)
            flat, back = jax.flatten_util.ravel_pytree(grads)
            updates, opt = optimizer.update(back(jax.lax.psum(flat, AXIS)), opt, params)
            return (optax.apply_updates(params, updates), opt), value[None]

        return jax.lax.scan(step, carry, order)

    run = jax.shard_map(
        local, mesh=mesh, in_specs=(P(), P(None, AXIS), P()), out_specs=(P(), P(None, AXIS)), check_vma=False
    )

    def put(tree, spec):
        where = NamedSharding(mesh, spec)
        return jax.tree.map(
            lambda leaf: jax.make_array_from_callback(np.shape(leaf), where, lambda at: np.asarray(leaf)[at]), tree
        )

    compiled = jax.jit(run, donate_argnums=0)
    params = init(jax.random.key(0))
    box, data = [put((params, optimizer.init(params)), P())], put((x, y), P())

    def epoch(order):
        order = put(order[:, padded].reshape(len(order), len(devices), share), P(None, AXIS))
        box[0], loss = compiled(box[0], order, data)
        jax.block_until_ready((box[0], loss))

    return epoch
