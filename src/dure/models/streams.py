"""Random streams as plain uint32 arrays, which is what a state, a checkpoint and a wire can carry."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from dure.errors import SpecError
from dure.models.pure import Array, PyTree

__all__ = ["KeyData", "decode", "encode", "next_key", "seed_key", "split_key", "wrap"]

# Named, since a user may choose another default implementation, whose keys have another shape.
_IMPLEMENTATION = "threefry2x32"


def seed_key(seed: int) -> np.ndarray:
    """The key data of a seed, uint32 `[2]`: the same numbers as `jax.random.key(seed)`, on the host.

    Args:
        seed: Any whole number; 64 bits of it count.

    Raises:
        SpecError: The seed is no whole number.

    Example:
        >>> seed_key(7).tolist()
        [0, 7]
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise SpecError(f"seed is {seed!r} (a {type(seed).__name__}); give a whole number, for example `seed=0`.")
    bits = int(seed) % 2**64
    return np.array([bits >> 32, bits % 2**32], np.uint32)


def wrap(data: Array) -> Array:
    """Key data, uint32 `[2]`, as the typed key that `jax.random` takes."""
    return jax.random.wrap_key_data(jnp.asarray(data), impl=_IMPLEMENTATION)


def split_key(data: Array) -> tuple[Array, Array]:
    """Two independent keys' data, uint32 `[2]` each: one for `init`, one for the steps."""
    pair = jax.random.key_data(jax.random.split(wrap(data)))
    return pair[0], pair[1]


def next_key(data: Array) -> Array:
    """The key data of the next step.

    Threefry gives an independent stream for every key, so the next key need only differ, and adding one costs
    less in the middle of a training loop than splitting does. Keras's seed generators step in the same way.
    Streams of two seeds do not meet, since the steps start at a hash of the seed.

    Args:
        data: Key data, uint32 `[2]`.
    """
    return data + np.array([0, 1], np.uint32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KeyData:
    """A typed random key as its data, for states that hold keys: Flax NNX's streams, optax's noise.

    Attributes:
        data: The raw data, uint32 `[..., words]`.
        impl: The name of the implementation.
    """

    data: Array
    impl: str = field(default=_IMPLEMENTATION, metadata={"static": True})


def encode(tree: PyTree) -> PyTree:
    """The tree with its typed keys replaced by `KeyData`."""

    def convert(leaf: object) -> object:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return KeyData(jax.random.key_data(leaf), str(jax.random.key_impl(leaf)))
        return leaf

    return jax.tree.map(convert, tree)


def decode(tree: PyTree) -> PyTree:
    """The tree with its `KeyData` made typed keys again."""
    return jax.tree.map(
        lambda node: jax.random.wrap_key_data(node.data, impl=node.impl) if isinstance(node, KeyData) else node,
        tree,
        is_leaf=lambda node: isinstance(node, KeyData),
    )
