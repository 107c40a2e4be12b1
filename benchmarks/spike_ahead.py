"""Spike: how a program over several CPU devices comes to wait for itself.

Question: Keras's own data parallelism ends in an abort on two cores ("Expected 2 threads to join the rendezvous, but
only 1 of them arrived"). What does it take? Each dispatch here is one matrix product and one sum over the devices.
What came out is written down in docs/design/engine.md: not how many sums a program has decides, but how many
dispatches are on their way when nobody waits for their results.

Run: python benchmarks/spike_ahead.py [--devices 2] [--dispatches 100] [--wait-every 0] [--sums 1]
A run that does not end is the answer: XLA aborts it after 40 s.
"""

import argparse
import time

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

AXIS, SIZE = "replica", 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--dispatches", type=int, default=100)
    parser.add_argument("--wait-every", type=int, default=0, help="wait for results after so many; 0: at the end")
    parser.add_argument("--sums", type=int, default=1, help="sums over the devices in each dispatch")
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", args.devices)
    mesh = jax.make_mesh((args.devices,), (AXIS,), axis_types=(AxisType.Auto,))

    def local(w, x):
        for _ in range(args.sums):
            w = jax.lax.psum(x.T @ (x @ w), AXIS) * 1e-6
        return w

    mapped = jax.shard_map(local, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=P(), check_vma=False)
    step = jax.jit(mapped, donate_argnums=0)
    rng = np.random.default_rng(0)
    w = jax.device_put(rng.normal(size=(SIZE, SIZE)).astype("float32"), NamedSharding(mesh, P()))
    x = jax.device_put(rng.normal(size=(128 * args.devices, SIZE)).astype("float32"), NamedSharding(mesh, P(AXIS)))
    w = jax.block_until_ready(step(w, x))
    start = time.perf_counter()
    for number in range(1, args.dispatches + 1):
        w = step(w, x)
        if args.wait_every and number % args.wait_every == 0:
            jax.block_until_ready(w)
    jax.block_until_ready(w)
    print(f"{args.dispatches} dispatches of {args.sums} sums in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
