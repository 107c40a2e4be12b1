"""Trains a network of JAX from a torch `DataLoader`, as it is.

Run: python loaders_torch.py   (needs torch; the loader's worker processes are started by torch, before JAX)
"""

from __future__ import annotations

import sys

try:
    import torch
    from torch.utils.data import DataLoader, TensorDataset
except ImportError:
    sys.exit("this example needs torch: pip install torch")

from loaders_model import make_model

import dure


def main() -> None:
    """Trains on shuffled batches of tensors and prints the accuracy."""
    (x, y), (x_test, y_test) = dure.data.load("digits")
    data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = DataLoader(data, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))
    with dure.SingleDevice() as strategy:
        trainer = dure.Trainer(make_model(), strategy)
        trainer.fit(loader, epochs=10, verbose=0)
        accuracy = trainer.evaluate(x_test, y_test, verbose=0)["accuracy"]
    print(f"torch: accuracy {accuracy:.3f}")
    assert accuracy > 0.85, accuracy


if __name__ == "__main__":
    main()
