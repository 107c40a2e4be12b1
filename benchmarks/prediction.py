"""The cost model against the trainer: what it predicts of a step before it runs, and what a step then takes.

Constants come from the calibration of the machine and from one device's step at three batch sizes, each measured in
fresh processes; nothing is fitted to the cases. Then a real `Trainer` trains every case, in processes of its own:
one for each number of devices, and two that `dure run` starts, with one thread each on two cores.

A pair counts for the order when both are of one network and batch and their measured steps differ by more than 20
percent: it is what a user has to decide. The bars: median error 20 percent, worst 50, order right in 90 percent.

Run: python benchmarks/prediction.py [--nets seed large conv] [--passes 2] [--json out.json]
"""

import argparse
import dataclasses
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np
from networks import CASES, data, jax_model

import dure
from dure.advise import child, single
from dure.advise.calibrate import calibrate
from dure.advise.cost import Plan, predict
from dure.advise.probe import lower_quartile

BATCHES = {"seed": (25, 100, 1024), "large": (64, 256, 1024), "conv": (25, 64, 256)}
STRATEGIES = ("single", "mirrored:1", "mirrored:2", "mirrored:4", "multi-worker:2")
EVERY = ("step", 10)
SMALLEST = 4
"""One device is measured from a batch's share on so many devices on."""

EPOCH_S, MEASURE_S = 0.25, 1.0
LEAST_STEPS, LEAST_EPOCHS = 10, 2
MOST_ROWS = 16384
BARS = {"median": 0.2, "worst": 0.5, "order": 0.9}


class Case(NamedTuple):
    """What is predicted and trained: a network, rows of a step, a strategy, and how often its replicas meet."""

    net: str
    batch: int
    strategy: str
    every: str | int

    @property
    def name(self):
        return f"{self.net} {self.batch}", f"{self.strategy}" + ("" if self.every == "step" else f" every {self.every}")


def seed_model():
    return jax_model("seed")


def large_model():
    return jax_model("large")


def conv_model():
    return jax_model("conv")


def seed_data():
    return rows_of("seed")


def large_data():
    return rows_of("large")


def conv_data():
    return rows_of("conv")


def rows_of(net):
    return data(CASES[net]._replace(rows=MOST_ROWS))


def cases_of(nets):
    found = [Case(n, b, s, e) for n in nets for b in BATCHES[n] for s in STRATEGIES for e in EVERY]
    return [case for case in found if case.every == "step" or case.strategy not in STRATEGIES[:2]]


def network_of(net):
    """One device, measured at three batch sizes: of the smallest share, a batch between, the largest."""
    batches = BATCHES[net]
    sizes = (-(-batches[0] // SMALLEST), batches[1], batches[-1])
    named = {"kind": "function", "module": "prediction"}
    request = {"model": {**named, "name": f"{net}_model"}, "data": {**named, "name": f"{net}_data"}}
    return single.measure({**request, "folder": "", "seed": 0}, sizes, log, counted=False)


def plan_of(case, network, machine):
    """So many steps an epoch that its ends weigh as little as they do in training, and an epoch is short."""
    step_s = predict(network, machine, "single", Plan(case.batch, MOST_ROWS, 1)).step_s
    most = MOST_ROWS // case.batch
    steps = int(min(most, max(LEAST_STEPS, EPOCH_S / step_s)))
    return Plan(case.batch, steps * case.batch, 1)


def train(jobs, into):
    """Trains the cases of one process, or of one of several; writes seconds a step, by case."""
    held = {}
    found = []
    for net, batch, strategy, every, rows, epochs in jobs:
        x, y = held.setdefault(net, rows_of(net))
        x, y = np.resize(x, (rows, *x.shape[1:])), np.resize(y, rows)
        with opened(strategy, every) as spread:
            history = dure.Trainer(jax_model(net), spread).fit(x, y, epochs=1 + epochs, batch_size=batch, verbose=0)
            steps = -(-rows // batch)
            found.append([seconds / steps for seconds in history.epoch_seconds[1:]])
            is_chief = spread.is_chief
    if is_chief:
        Path(into).write_text(json.dumps(found))


def opened(strategy, every):
    kind, _, number = strategy.partition(":")
    if kind == "single":
        return dure.SingleDevice()
    if kind == "mirrored":
        return dure.Mirrored(int(number), sync_every=every)
    return dure.MultiWorkerMirrored(sync_every=every)


def measured(strategy, jobs):
    """Trains the cases of a strategy in fresh processes; seconds a step of each epoch, by case."""
    number = int(strategy.partition(":")[2] or 1)
    program = [str(Path(__file__).resolve()), "--train"]
    with tempfile.TemporaryDirectory() as folder:
        asked, into = Path(folder) / "asked.json", Path(folder) / "found.json"
        asked.write_text(json.dumps(jobs))
        command = [sys.executable, *program, str(asked), str(into)]
        environment = child.environment_for(number)
        if strategy.startswith("multi-worker"):
            dure_command = str(Path(sys.executable).with_name("dure"))
            command = [dure_command, "run", "--workers", str(number), "--step-timeout", "300", *command[1:]]
            environment = child.environment_for(1)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{strategy}: ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return json.loads(into.read_text())


def log(line):
    print(f"  {line}", file=sys.stderr, flush=True)


def order_of(rows):
    """Pairs of one network and batch that differ by more than 20 percent: how many, and how many predicted right."""
    pairs = [(a, b) for a, b in itertools.combinations(rows, 2) if (a["net"], a["batch"]) == (b["net"], b["batch"])]
    apart = [(a, b) for a, b in pairs if abs(math.log(a["measured_s"] / b["measured_s"])) > math.log(1.2)]
    right = [(a["measured_s"] < b["measured_s"]) == (a["predicted_s"] < b["predicted_s"]) for a, b in apart]
    return sum(right), len(right)


def report(rows):
    """Prints the table and the three figures; returns them."""
    print(f"{'network, batch':14s} {'strategy':26s} {'predicted':>10s} {'measured':>10s} {'error':>7s}   ms a step")
    for row in rows:
        case = Case(row["net"], row["batch"], row["strategy"], row["sync_every"])
        times = f"{1e3 * row['predicted_s']:10.3f} {1e3 * row['measured_s']:10.3f}"
        print(f"{case.name[0]:14s} {case.name[1]:26s} {times} {row['error']:+7.0%}")
    errors = [abs(row["error"]) for row in rows]
    right, pairs = order_of(rows)
    found = {"median": statistics.median(errors), "worst": max(errors), "order": right / pairs if pairs else 1.0}
    within = sum(error <= BARS["worst"] for error in errors)
    print(f"{len(rows)} cases: median error {found['median']:.0%} (bar {BARS['median']:.0%}), ", end="")
    print(f"worst {found['worst']:.0%} (bar {BARS['worst']:.0%}, {within} within), ", end="")
    print(f"order right in {right} of {pairs} pairs, {found['order']:.0%} (bar {BARS['order']:.0%})")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--passes", type=int, default=2, help="processes that train each case")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--train", nargs=2, metavar=("ASKED", "INTO"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(json.loads(Path(args.train[0]).read_text()), args.train[1])
        return
    loads = [os.getloadavg()[0]]
    machine = calibrate(log, again=True)
    log(f"calibrated in {machine.took_s:.1f} s")
    networks = {net: network_of(net) for net in args.nets}
    cases = cases_of(args.nets)
    plans = {case: plan_of(case, networks[case.net], machine) for case in cases}
    said = {case: predict(networks[case.net], machine, case.strategy, plans[case], case.every) for case in cases}
    samples = {case: [] for case in cases}
    for number in range(args.passes):
        for strategy in STRATEGIES[::-1] if number % 2 else STRATEGIES:
            began = time.monotonic()
            ours = [case for case in cases if case.strategy == strategy]
            epochs = [int(min(12, max(LEAST_EPOCHS, MEASURE_S / plans[c].steps / said[c].step_s))) for c in ours]
            jobs = [[*case, plans[case].rows, n] for case, n in zip(ours, epochs, strict=True)]
            for case, times in zip(ours, measured(strategy, jobs), strict=True):
                samples[case] += times
            loads.append(os.getloadavg()[0])
            log(f"pass {number + 1}: {strategy}, {len(ours)} cases in {time.monotonic() - began:.0f} s")
            for case in ours:
                times = (
                    f"{1e3 * said[case].step_s:.3f} ms predicted, {1e3 * lower_quartile(samples[case]):.3f} measured"
                )
                log(f"    {' '.join(case.name)}: {times}")
    rows = [row_of(case, said[case], samples[case]) for case in cases]
    found = report(rows)
    print(f"load of this machine, over a minute, between the parts: {', '.join(f'{load:.1f}' for load in loads)}")
    if args.json:
        whole = {**found, "loads": loads, "rows": rows, "calibration": machine.to_dict()}
        whole["networks"] = {net: dataclasses.asdict(network) for net, network in networks.items()}
        args.json.write_text(json.dumps(whole, indent=1))


def row_of(case, prediction, samples):
    """A case as plain values: what was predicted, by cause, and what was measured."""
    # Whatever else the machine does only ever adds time.
    step_s, predicted_s = lower_quartile(samples), prediction.step_s
    parts = {part.cause.value: part.seconds for part in prediction.split.parts}
    named = {"net": case.net, "batch": case.batch, "strategy": case.strategy, "sync_every": case.every}
    times = {"predicted_s": predicted_s, "measured_s": step_s, "error": predicted_s / step_s - 1}
    return {**named, **times, "parts": parts, "samples_s": samples}


if __name__ == "__main__":
    main()
