"""Spike: automatic partitioning against `shard_map` on two virtual devices, hand-written.

Question: which form of the mirrored step gives the single device's numbers, how fast is each, and why is the automatic
one slower on a large network. What came out is written down in docs/design/engine.md; this program stays so that
the answer can be asked again of another JAX.

Run: python benchmarks/spike_partition.py [--devices 2] [--net seed|large] [--hlo]
"""

import argparse
import itertools
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

AXIS = "replica"


@jax.custom_vjp
def straight(x, w):
    """`x @ w` whose gradient for `w` is written as `x.T @ dz`; JAX's own rule writes `(dz.T @ x).T`."""
    return x @ w


straight.defvjp(
    lambda x, w: (x @ w, (x, w)),
    lambda saved, dz: (dz @ saved[1].T, jax.lax.dot_general(saved[0], dz, (((0,), (0,)), ((), ())))),
)


def dense_net(sizes, product=jnp.matmul):
    """Returns (params, loss): a relu network with softmax loss; loss gives one value an example."""

    def init(key):
        keys = jax.random.split(key, len(sizes) - 1)
        return [
            {"w": jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]

    def losses(params, x, y):
        for layer in params[:-1]:
            x = jax.nn.relu(product(x, layer["w"]) + layer["b"])
        logits = product(x, params[-1]["w"]) + params[-1]["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y)

    return init(jax.random.key(0)), losses


def chain(tree):
    """One psum after another: each waits for the one before, so that one reduction at most is in flight."""
    leaves, treedef = jax.tree.flatten(tree)
    done = []
    for leaf in leaves:
        if done:
            waiting, done[-1] = jax.lax.optimization_barrier((leaf, done[-1]))
        done.append(jax.lax.psum(waiting if done else leaf, AXIS))
    return jax.tree.unflatten(treedef, done)


def tree_psum(tree):
    return jax.lax.psum(tree, AXIS)


def none(tree):
    return tree


def make_runs(params, losses, optimizer, data, steps, batch, devices):
    """Returns name -> function that trains `steps` steps from fresh weights and gives the last params."""
    x_all, y_all = data
    order = np.random.default_rng(0).permutation(len(x_all))[: steps * batch].reshape(steps, batch).astype(np.int32)
    mesh = jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    everywhere = NamedSharding(mesh, P())

    def update(params, opt, grads):
        updates, opt = optimizer.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt

    def single_step(carry, rows, constrain=lambda v: v):
        params, opt = carry
        x, y = constrain(x_dev[rows]), constrain(y_dev[rows])
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(losses(p, x, y)))(params)
        return update(params, opt, grads), loss

    runs = {}
    x_dev = y_dev = None

    def single(carry, xs, data_, body=single_step):
        nonlocal x_dev, y_dev
        x_dev, y_dev = data_
        return jax.lax.scan(body, carry, xs)

    one = jax.devices()[0]
    runs["single"] = (jax.jit(single, donate_argnums=0), one, one, order)

    def auto(carry, xs, data_):
        def constrain(v):
            return jax.lax.with_sharding_constraint(v, NamedSharding(mesh, P(AXIS)))

        return single(carry, xs, data_, lambda c, r: single_step(c, r, constrain))

    runs["auto"] = (jax.jit(auto, donate_argnums=0), everywhere, everywhere, order)

    share = -(-batch // devices)
    padded = np.minimum(np.arange(devices * share), batch - 1)
    valid = (np.arange(devices * share) < batch).reshape(devices, share)
    split = order[:, padded].reshape(steps, devices, share)

    for name, reduce in {"shard_map tree": tree_psum, "shard_map chain": chain, "shard_map no exchange": none}.items():

        def local(carry, xs, data_, reduce=reduce):
            mine = jnp.asarray(valid)[jax.lax.axis_index(AXIS)]

            def body(carry, rows):
                params, opt = carry
                x, y = data_[0][rows[0]], data_[1][rows[0]]
                loss, grads = jax.value_and_grad(lambda p: jnp.sum(jnp.where(mine, losses(p, x, y), 0)) / batch)(params)
                return update(params, opt, reduce(grads)), loss

            return jax.lax.scan(body, carry, xs)

        mapped = jax.shard_map(
            local, mesh=mesh, in_specs=(P(), P(None, AXIS), P()), out_specs=(P(), P()), check_vma=False
        )
        runs[name] = (jax.jit(mapped, donate_argnums=0), everywhere, everywhere, split)

    def start(name):
        function, where, data_where, rows = runs[name]
        held = jax.device_put((x_all, y_all), data_where)
        fresh = jax.tree.map(np.asarray, (params, optimizer.init(params)))
        rows = jax.device_put(rows, where)

        def go():
            carry = jax.block_until_ready(jax.device_put(fresh, where))
            begin = time.perf_counter()
            carry, _ = jax.block_until_ready(function(carry, rows, held))
            return time.perf_counter() - begin, jax.tree.map(np.asarray, carry[0])

        return go, lambda: function.lower(jax.device_put(fresh, where), rows, held).compile().as_text()

    return {name: start(name) for name in runs}


def measure(runs, steps, pairs):
    seconds = {name: [] for name in runs}
    weights = {}
    for repeat in range(pairs + 1):
        names = list(runs) if repeat % 2 else list(runs)[::-1]
        for name in names:
            took, weights[name] = runs[name][0]()
            if repeat:
                seconds[name].append(took)
    for name, values in seconds.items():
        off = max(
            float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
            for a, b in zip(jax.tree.leaves(weights[name]), jax.tree.leaves(weights["single"]), strict=True)
        )
        rate = steps / statistics.median(values)
        print(f"  {name:24s} {rate:9.1f} steps/s   weights off by {off:.1e} after {steps} steps", flush=True)


def update_cost(sizes):
    """Prints what Adam costs for each matrix, its gradient read straight and through a transpose, in ms of CPU time."""
    optimizer = optax.adam(1e-3)

    def update(carry, grad):
        updates, opt = optimizer.update(grad, carry[1], carry[0])
        return optax.apply_updates(carry[0], updates), opt

    for shape in itertools.pairwise(sizes):
        took = {}
        for name, read in {"straight": lambda g: g, "transposed": jnp.transpose}.items():
            step = jax.jit(lambda carry, g, read=read: update(carry, read(g)), donate_argnums=0)
            weights, grad = jnp.ones(shape), read(jnp.ones(shape))
            carry = jax.block_until_ready(step((weights, optimizer.init(weights)), grad))
            seconds = []
            for _ in range(15):
                begin = time.process_time()
                carry = jax.block_until_ready(step(carry, grad))
                seconds.append(time.process_time() - begin)
            took[name] = 1000 * min(seconds)
        print(f"  Adam on {shape}: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in took.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--net", default="seed")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--hlo", action="store_true", help="print the automatic form's all-reduces and dots")
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", args.devices)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(10_000, 784)).astype("float32"), rng.integers(0, 10, 10_000).astype("int32")
    sizes, batch, steps = {
        "seed": ((784, 128, 10), 25, 400),
        "large": ((784, 2048, 2048, 10), 256, 10),
    }[args.net]
    params, losses = dense_net(sizes)
    runs = make_runs(params, losses, optax.adam(1e-3), data, steps, batch, args.devices)
    mended = make_runs(params, dense_net(sizes, straight)[1], optax.adam(1e-3), data, steps, batch, args.devices)
    runs["auto, gradient straight"] = mended["auto"]
    print(f"{args.net}: {sizes}, batch {batch}, {args.devices} virtual devices")
    measure(runs, steps, args.pairs)
    update_cost(sizes)
    if args.hlo:
        for line in runs["auto"][1]().splitlines():
            if any(word in line for word in ("all-reduce", " dot(", "all-gather", "all-to-all", "transpose(")):
                print(line.strip()[:200])


if __name__ == "__main__":
    main()
