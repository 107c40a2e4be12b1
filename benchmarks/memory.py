"""Resident memory of Dure's training against that of a loop written by hand, and the time of `import dure`.

Each program trains two epochs in a fresh process that does nothing else, on the same rows read from the same file; its
peak of resident memory is what the operating system says at its end. Several devices: the loop by hand is the one of
`hand.py` that takes less. A ratio is Dure's peak over the loop's: at most 1.3 is wanted. The import: under 0.3 s.

Run: python benchmarks/memory.py [--nets seed large conv] [--devices 1 2] [--repeat 3] [--json out.json]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

NETS = ("seed", "large", "conv")
EPOCHS = 2
MOST = 1.3
MOST_IMPORT_S = 0.3
MB = 1e6
IMPORT = "import time; start = time.perf_counter(); import dure; print(time.perf_counter() - start)"


def peak_bytes():
    """The most memory that this process has had resident."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not `getrusage`: on Linux its peak is also the parent's, from before the program was started.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def train(form, net, devices, folder):
    """What a fresh process does: trains, and prints its peak."""
    import dure

    dure.configure(cpu_devices=devices)
    import hand
    from networks import CASES, jax_model

    case = CASES[net]
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    if form == "dure":
        strategy = dure.SingleDevice() if devices == 1 else dure.Mirrored(num_devices=devices)
        with strategy, dure.Trainer(jax_model(net), strategy) as trainer:
            trainer.fit(x, y, epochs=EPOCHS, batch_size=case.batch, verbose=0)
    else:
        forms = {"scan": hand.jax_scan, "shard_map": hand.jax_sharded, "automatic": hand.jax_automatic}
        epoch = forms[form](net, x, y, *(() if devices == 1 else (devices, case.batch)))
        rng = np.random.default_rng(0)
        steps = case.rows // case.batch
        for _ in range(EPOCHS):
            epoch(rng.permutation(case.rows)[: steps * case.batch].reshape(steps, case.batch).astype(np.int32))
    print(peak_bytes())


def write(net, folder):
    """What another fresh process does: the rows, so that no program has to hold more than one copy to make them."""
    from networks import CASES, data

    x, y = data(CASES[net])
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)


def child(*arguments):
    """Runs this file with arguments in a fresh process; what it printed."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def compare(net, devices, folder, repeat):
    """Measures a network on some devices and prints the ratio."""
    forms = ("scan",) if devices == 1 else ("shard_map", "automatic")
    peaks = {
        form: statistics.median(int(child("--train", form, net, devices, folder)) for _ in range(repeat))
        for form in ("dure", *forms)
    }
    form = min(forms, key=peaks.get)
    ratio = peaks["dure"] / peaks[form]
    name = f"{net}, {'single' if devices == 1 else f'mirrored:{devices}'}"
    verdict = "within" if ratio <= MOST else "OVER"
    print(
        f"{name:20s} {peaks['dure'] / MB:7.0f} MB against {peaks[form] / MB:7.0f} MB ({form}): {ratio:.2f}, "
        f"{verdict} {MOST}",
        flush=True,
    )
    return {"name": name, "ratio": ratio, "form": form, "peak_bytes": peaks}


def import_s(repeat=11):
    """How long `import dure` takes in a fresh process, each time."""
    command = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True) for _ in range(repeat + 1)]
    return [float(run.stdout) for run in runs[1:]]  # the first may have to read the files from the disk


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=NETS)
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", nargs=4, metavar=("FORM", "NET", "DEVICES", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, metavar=("NET", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        form, net, devices, folder = args.train
        train(form, net, int(devices), Path(folder))
        return
    if args.write:
        write(args.write[0], Path(args.write[1]))
        return
    seconds = import_s()
    median, most = statistics.median(seconds), max(seconds)
    verdict = "within" if most <= MOST_IMPORT_S else "OVER"
    print(f"import dure: median {median:.3f} s, most {most:.3f} s, {verdict} {MOST_IMPORT_S} s")
    found = []
    for net in args.nets:
        with tempfile.TemporaryDirectory(prefix="dure-memory-") as folder:
            child("--write", net, folder)
            found += [compare(net, devices, Path(folder), args.repeat) for devices in args.devices]
    if args.json:
        args.json.write_text(json.dumps({"import_s": seconds, "training": found}, indent=1))


if __name__ == "__main__":
    main()
