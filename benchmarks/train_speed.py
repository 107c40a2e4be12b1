"""Dure's trainer against loops written by hand: whole epochs, after compilation, in alternation.

Each row is a pair of programs that train the same network on the same rows. They take turns, in turned order each time;
a ratio is hand-written seconds over Dure's, so 1 is as fast and more is faster. A hand-written form for several devices
is the fastest of those in `hand.py` that give the single device's numbers, found in the same run.

Run: python benchmarks/train_speed.py [--nets seed large conv] [--pairs 9] [--only mirrored] [--json out.json]
"""

import argparse
import json
import sys
import time
from pathlib import Path

import dure

dure.configure(cpu_devices=4)

import hand
import jax
from alternate import by_dure, by_hand, compare
from networks import CASES, data, jax_model, keras_model


def by_keras(model, case, x, y):
    def run():
        start = time.perf_counter()
        model.fit(x, y, epochs=1, batch_size=case.batch, verbose=0)
        return time.perf_counter() - start

    return run


def fastest(runs):
    """The fastest of several programs by two epochs each after the first; its name and the program."""
    for run in runs.values():
        run()
    seconds = {name: min(run(), run()) for name, run in runs.items()}
    best = min(seconds, key=seconds.get)
    return best, runs[best]


def rows_of(case, only):
    """(name, ours, theirs) for each comparison of a network; made one after another to bound memory."""
    x, y = data(case)
    single = dure.SingleDevice(device="cpu:0")

    def mirrored(n):
        return dure.Mirrored(devices=[f"cpu:{i}" for i in range(n)])

    def jax_hand(n):
        forms = {"shard_map": hand.jax_sharded, "automatic": hand.jax_automatic}
        return fastest({k: by_hand(f(case.name, x, y, n, case.batch), case) for k, f in forms.items()})

    if "single" in only:
        ours = by_dure(jax_model(case.name), single, case, x, y)
        yield "JAX, single / lax.scan", ours, by_hand(hand.jax_scan(case.name, x, y), case)
    if "mirrored" in only:
        for n in (2, 4):
            form, theirs = jax_hand(n)
            yield (
                f"JAX, mirrored:{n} / sharded scan ({form})",
                by_dure(jax_model(case.name), mirrored(n), case, x, y),
                theirs,
            )
    if "keras" in only:
        ours = by_dure(keras_model(case.name), single, case, x, y)
        yield (
            "Keras, single / scan of stateless calls",
            ours,
            by_hand(hand.keras_scan(keras_model(case.name), x, y), case),
        )
        yield "Keras, single / Keras fit", ours, by_keras(keras_model(case.name), case, x, y)
        many = keras_model(case.name, steps_per_execution=100)
        yield "Keras, single / Keras fit, steps_per_execution=100", ours, by_keras(many, case, x, y)
        yield (
            "Keras, mirrored:2 / sharded scan of stateless calls",
            by_dure(keras_model(case.name), mirrored(2), case, x, y),
            by_hand(hand.keras_scan(keras_model(case.name), x, y, 2), case),
        )
    if "stream" in only:
        ours = by_dure(jax_model(case.name), single, case, x, y, resident_bytes=0)
        yield "JAX, streamed / resident", ours, by_dure(jax_model(case.name), single, case, x, y)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--only", nargs="+", default=["single", "mirrored", "keras", "stream"])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    print(f"Python {sys.version.split()[0]}, JAX {jax.__version__}, {jax.devices()[0]}")
    for net in args.nets:
        case = CASES[net]
        print(f"{net}: batch {case.batch}, {case.rows // case.batch} steps an epoch")
        for name, ours, theirs in rows_of(case, args.only):
            found.append({"net": net, **compare(name, ours, theirs, case, args.pairs)})
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
