"""Bad input of every kind against one trainer: what is raised, how soon, and that nothing was compiled before.

Each case calls the public door once in one process. A network of plain JAX and one of Keras, rows of Fashion-MNIST;
each trainer is new to the data, so that the first case also builds the model. Under 1 s is wanted for each.

Run: python benchmarks/bad_input.py [--json out.json]
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import dure

dure.configure(cpu_devices=2)

import jax
from networks import CASES, data, jax_model, keras_model

from dure.errors import DureError

MOST_S = 1.0


def calls(fit, x, y):
    """(what is wrong, the call) for data and options."""
    nan, infinite = x.copy(), x.copy()
    nan[7, 3], infinite[8, 2] = np.nan, np.inf
    high, low = y.copy(), y.copy()
    high[11], low[13] = 10, -1
    return [
        ("x of another width", lambda: fit(x[:, :700], y)),
        ("x with an axis more", lambda: fit(x[:, :, None, None], y)),
        ("y with an axis more", lambda: fit(x, np.zeros((len(x), 3, 2), np.float32))),
        ("y shorter than x", lambda: fit(x, y[:-1])),
        ("x shorter than y", lambda: fit(x[:-1], y)),
        ("a label too high", lambda: fit(x, high)),
        ("a label below 0", lambda: fit(x, low)),
        ("no rows", lambda: fit(x[:0], y[:0])),
        ("no batch", lambda: fit([])),
        ("batch_size=0", lambda: fit(x, y, batch_size=0)),
        ("batch_size=-25", lambda: fit(x, y, batch_size=-25)),
        ("batch_size=2.5", lambda: fit(x, y, batch_size=2.5)),
        ("NaN, check_finite", lambda: fit(nan, y, check_finite=True)),
        ("infinity, check_finite", lambda: fit(infinite, y, check_finite=True)),
    ]


def strategies(model):
    """(what is wrong, the call) for devices and strategies."""

    def compared(name):
        dure.compare(model, "digits", strategies=["single", name], epochs=1)

    return [
        ("more devices than there are", lambda: dure.Mirrored(num_devices=64)),
        ("a device that is not there", lambda: dure.Mirrored(devices=["cpu:0", "cpu:7"])),
        ("no devices", lambda: dure.Mirrored(num_devices=0)),
        ("an unknown strategy, compare", lambda: compared("miror:2")),
        ("an unknown strategy, Trainer", lambda: dure.Trainer(jax_model("seed"), "mirrored:2")),
    ]


def watch_compiling():
    """Names each program that XLA compiles from now on."""
    compiled = []

    def heard(event, seconds, **about):
        # With constants Keras fills its optimizer's variables, as it builds a model.
        if event == "/jax/core/compile/backend_compile_duration" and about["fun_name"] != "jit(broadcast_in_dim)":
            compiled.append(about["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(heard)
    return compiled


def trial(group, wrong, call, compiled):
    """Makes one call, prints what came of it and returns it."""
    before, start = len(compiled), time.perf_counter()
    try:
        call()
    except DureError as error:
        found, text = type(error).__name__, str(error).splitlines()[0]
    except Exception as error:  # noqa: BLE001 - what is no error of Dure's is what is looked for
        found, text = f"UNTYPED {type(error).__name__}", (str(error).splitlines() or [""])[0]
    else:
        found, text = "NO ERROR", ""
    seconds, programs = time.perf_counter() - start, len(compiled) - before
    marks = "".join(
        [" SLOW" if seconds >= MOST_S else "", f" COMPILED {programs}: {compiled[before:]}" if programs else ""]
    )
    print(f"{group:6s} {wrong:30s} {seconds:6.3f} s{marks}  {found}: {text}", flush=True)
    is_good = not found.startswith(("NO", "UNTYPED")) and not marks
    return {"group": group, "wrong": wrong, "error": found, "text": text, "seconds": seconds, "good": is_good}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    compiled = watch_compiling()
    x, y = data(CASES["seed"])
    print(f"Python {sys.version.split()[0]}, JAX {jax.__version__}, {jax.devices()[0]}, x {x.dtype}{list(x.shape)}")
    rows = []
    for group, make in (("JAX", jax_model), ("Keras", keras_model)):
        model = make("seed")
        with dure.Mirrored(num_devices=2) as strategy, dure.Trainer(model, strategy) as trainer:

            def fit(*given, trainer=trainer, **options):
                trainer.fit(*given, **{"batch_size": 25, "verbose": 0, **options})

            rows += [trial(group, wrong, call, compiled) for wrong, call in calls(fit, x, y)]
    rows += [trial("", wrong, call, compiled) for wrong, call in strategies("networks:keras_model")]
    good = sum(row["good"] for row in rows)
    slowest = max(row["seconds"] for row in rows)
    print(f"{good} of {len(rows)} typed, under {MOST_S:g} s, nothing compiled; the slowest took {slowest:.3f} s")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
