"""Programs over a batch, a group for each kind of rule, and how each result lies on the replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dure.strategy.layout import Layout, Rows, Spread

Array = Any
OWN, WHOLE, PARTIAL = Rows(0), Spread.WHOLE, Spread.PARTIAL
IMAGES = ("NHWC", "HWIO", "NHWC")


Results = dict[str, tuple[Layout, Array]]
"""By name, how a result lies on the replicas, and its value."""


def whole_values() -> dict[str, np.ndarray]:
    """What every replica has: weights, tables, a key."""
    rng = np.random.default_rng(1)
    shapes = {"s": (), "v": (4,), "m": (3, 4), "square": (4, 4), "table": (6, 4)}
    shapes |= {"kernel": (3, 3, 2, 4), "deep": (3, 3, 1, 4), "up": (2, 2, 4, 2), "line": (3, 4, 2)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def row_values(batch: int) -> dict[str, np.ndarray]:
    """What has a leading axis of rows."""
    rng = np.random.default_rng(2)
    shapes = {"a": (3, 4), "b": (3, 4), "x": (4,), "image": (6, 6, 2)}
    values = {name: rng.normal(size=(batch, *shape)).astype(np.float32) for name, shape in shapes.items()}
    return values | {"label": rng.integers(0, 4, batch).astype(np.int32)}


def elementwise(w: dict[str, Array], r: dict[str, Array]) -> Results:
    a, b, rows = r["a"], r["b"], len(r["a"])
    return {
        "arithmetic": (OWN, (a * b + 1) / (jnp.abs(b) + 2) - jnp.exp(-a * a)),
        "choice": (OWN, jnp.where(a > b, a, w["s"])),
        "clip": (OWN, jnp.clip(a, -0.5, w["s"] + 1)),
        "with a weight of the row's shape": (OWN, a + w["m"]),
        "with a traced scalar": (OWN, a * w["s"]),
        "with a number a row": (OWN, a * jnp.arange(rows, dtype=jnp.float32)[:, None, None]),
        "with a whole value a row": (OWN, a + jnp.linspace(0.0, 1.0, rows)[:, None, None] * w["m"]),
        "broadcast over a new axis": (OWN, jnp.broadcast_to(r["x"][:, None, :], a.shape) * a),
        "whole numbers": (OWN, r["label"] * 3 % 4 + 1),
        "relu and softmax": (OWN, jax.nn.softmax(jax.nn.relu(a), axis=-1)),
        "gelu": (OWN, jax.nn.gelu(a)),
    }


def sums(w: dict[str, Array], r: dict[str, Array]) -> Results:
    total, other, count = r["a"].sum(0), r["b"].sum(0), r["label"].sum()
    apart = (r["a"] - r["b"]).sum(0)
    return {
        "sum": (PARTIAL, total),
        "mean": (PARTIAL, r["a"].mean(0)),
        "scaled": (PARTIAL, total * w["s"] / 3 * w["m"]),
        "sum of sums": (PARTIAL, total - other + w["m"]),
        "sum of a sum": (PARTIAL, jnp.squeeze(total[None].sum(1), 0)),
        "moved sum": (PARTIAL, total.T.reshape(2, 6)[:, 1:]),
        "square of a sum": (WHOLE, total * other),
        "rounded count": (WHOLE, count // 3),
        "count as a number": (WHOLE, count.astype(jnp.float32)),
        "sum over rows and more": (PARTIAL, r["a"].sum((0, 2))),
        "centred rows": (OWN, r["a"] - r["a"].mean(0)),
        "chosen alike": (PARTIAL, jnp.where(w["s"] > 0, apart, w["m"]) * jnp.where(w["m"] > 0, 1.0, 2.0)),
        "chosen by the sum": (WHOLE, jnp.where(total > 0, total, 0.0)),
        "scalar spread over weights": (WHOLE, jnp.broadcast_to(r["a"].sum(), (3, 4)) * w["m"]),
    }


def reductions(w: dict[str, Array], r: dict[str, Array]) -> Results:
    a = r["a"]
    number = jnp.arange(len(a), dtype=jnp.float32)[:, None, None]
    return {
        "sum in a row": (OWN, a.sum(1)),
        "largest in a row": (OWN, a.max((1, 2))),
        "largest of all rows": (WHOLE, a.max(0)),
        "smallest of all rows": (WHOLE, (a * a).min((0, 1))),
        "largest with the row's number": (WHOLE, (a * 0.1 + number).max(0)),
        "place in a row": (OWN, a.argmax(-1)),
        "place among rows": (WHOLE, a.argmax(0)),
        "product of rows": (WHOLE, jnp.prod(a * 0.5 + 1, axis=0)),
        "any row": (WHOLE, (a > 0.5).any(0)),
        "all rows": (WHOLE, (a > -9).all((0, 1))),
        "log-sum-exp over rows": (WHOLE, jax.nn.logsumexp(a, axis=0)),
    }


def moves(w: dict[str, Array], r: dict[str, Array]) -> Results:
    a, rows = r["a"], len(r["a"])
    return {
        "transposed": (Rows(1), a.transpose(2, 0, 1)),
        "rows and time joined": (Rows(0, 3), a.reshape(rows * 3, 4)),
        "joined and parted": (OWN, jax.nn.tanh(a.reshape(rows * 3, 4)).reshape(rows, 12)),
        "time first, then joined": (Rows(1, 4), a.transpose(1, 0, 2).reshape(3, rows * 4)),
        "new axis in front": (Rows(1), a[None]),
        "axis dropped": (OWN, jnp.squeeze(a[None, :, :1], (0, 2))),
        "part of a row": (OWN, a[:, 1:, ::2]),
        "padded rows' insides": (OWN, jnp.pad(a, ((0, 0), (1, 2), (0, 0)), constant_values=2.0)),
        "turned around inside": (OWN, a[:, ::-1]),
        "joined inside": (OWN, jnp.concatenate([a, r["b"], jnp.broadcast_to(w["m"], a.shape)], axis=1)),
        "parts": (OWN, jnp.split(a, [1, 3], axis=2)[1]),
        "stacked in front": (Rows(1), jnp.stack([a, r["b"]], axis=0)),
        "stacked behind": (OWN, jnp.stack([a, jnp.broadcast_to(w["m"], a.shape)], axis=-1)),
        "apart": (OWN, jnp.unstack(a, axis=1)[1]),
        "rows apart": (WHOLE, jnp.unstack(a, axis=0)[0]),
        "repeated inside": (OWN, jnp.tile(a, (1, 2, 1))),
        "repeated in front": (Rows(1), jnp.tile(a, (2, 1, 1, 1))),
        "rows repeated": (WHOLE, jnp.tile(a, (2, 1, 1))),
        "part at a place": (OWN, jax.lax.dynamic_slice_in_dim(a, w["s"].astype(jnp.int32) + 1, 2, 1)),
        "written inside": (OWN, jax.lax.dynamic_update_slice_in_dim(a, r["x"][:, None], 1, 1)),
        "one after another": (WHOLE, jnp.concatenate([a, r["b"]], axis=0)),
        "rows divided": (WHOLE, a.reshape(3, rows * 4)),
        "first rows": (WHOLE, a[:1]),
        "rows turned around": (WHOLE, a[::-1]),
        "rows shifted": (WHOLE, jnp.roll(a, 1, axis=0)),
        "a row at a place": (WHOLE, jax.lax.dynamic_index_in_dim(a, 0, keepdims=False)),
    }


def products(w: dict[str, Array], r: dict[str, Array]) -> Results:
    x, a = r["x"], r["a"]
    return {
        "rows by a weight": (OWN, x @ w["square"]),
        "a weight by rows": (Rows(1), w["square"] @ x.T),
        "in the middle": (OWN, jnp.einsum("bti,ij->btj", a, w["square"])),
        "contracted rows": (PARTIAL, x.T @ jnp.tanh(x)),
        "contracted rows and time": (PARTIAL, jnp.einsum("bti,btj->ij", a, r["b"])),
        "contracted with a whole": (PARTIAL, jnp.einsum("bti,b->ti", a, jnp.linspace(1.0, 2.0, len(a)))),
        "row by row": (OWN, jnp.einsum("bti,bsi->bts", a, r["b"])),
        "row by row of a whole": (OWN, jnp.einsum("bti,bij->btj", a, jnp.broadcast_to(w["square"], (len(a), 4, 4)))),
        "every row with every row": (OWN, x @ x.T),
        "and back": (OWN, jax.nn.softmax(x @ x.T) @ x),
        "and back, turned": (PARTIAL, (x @ x.T).T @ x),
        "truth": (PARTIAL, (x > 0).T @ (x > 0.5)),
        "truth, used": (WHOLE, jnp.where((x > 0).T @ (x > 0.5), w["square"], 0.0)),
    }


def convolutions(w: dict[str, Array], r: dict[str, Array]) -> Results:
    image = r["image"]

    def convolve(image: Array, kernel: Array, **options: Any) -> Array:
        settings = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": IMAGES} | options
        return jax.lax.conv_general_dilated(image, kernel, **settings)

    plain = convolve(image, w["kernel"])
    return {
        "same": (OWN, plain),
        "strided": (OWN, convolve(image, w["kernel"], window_strides=(2, 2), padding="VALID")),
        "dilated": (OWN, convolve(image, w["kernel"], rhs_dilation=(2, 2))),
        "depthwise": (OWN, convolve(image, w["deep"], feature_group_count=2)),
        "transposed": (OWN, jax.lax.conv_transpose(plain, w["up"], (2, 2), "SAME", dimension_numbers=IMAGES)),
        "along a line": (
            OWN,
            jax.lax.conv_general_dilated(r["a"], w["line"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        ),
        "rows as kernels": (WHOLE, convolve(jnp.ones((1, 6, 6, 2)), image[:, :3, :3].transpose(1, 2, 3, 0))),
    }


def windows(w: dict[str, Array], r: dict[str, Array]) -> Results:
    image, pool = r["image"], (1, 2, 2, 1)
    return {
        "largest": (OWN, jax.lax.reduce_window(image, -jnp.inf, jax.lax.max, pool, pool, "VALID")),
        "mean": (OWN, jax.lax.reduce_window(image, 0.0, jax.lax.add, pool, (1, 1, 1, 1), "SAME") / 4),
        "running sum": (OWN, jnp.cumsum(r["a"], axis=1)),
        "running largest": (OWN, jax.lax.cummax(r["a"], axis=2)),
        "sorted": (OWN, jnp.sort(r["a"], axis=-1)),
        "largest three": (OWN, jax.lax.top_k(r["a"], 3)[0]),
        "running sum of rows": (WHOLE, jnp.cumsum(r["x"], axis=0)),
        "sorted rows": (WHOLE, jnp.sort(r["x"], axis=0)),
        "median of rows": (WHOLE, jnp.median(r["x"], axis=0)),
        "window over rows": (WHOLE, jax.lax.reduce_window(r["x"], 0.0, jax.lax.add, (2, 1), (1, 1), "SAME")),
    }


def forward_only(w: dict[str, Array], r: dict[str, Array]) -> Results:
    pool = (1, 2, 2, 1)
    return {
        "product in a window": (OWN, jax.lax.reduce_window(r["image"], 1.0, jax.lax.mul, pool, pool, "VALID")),
        "order": (OWN, jnp.argsort(r["a"], axis=1)),
        "order of rows": (WHOLE, jnp.argsort(r["x"][:, 0])),
        "loop a row": (WHOLE, jax.lax.while_loop(lambda c: (c > 0.1).any(), lambda c: c * 0.5, jnp.abs(r["x"]))),
    }


def lookups(w: dict[str, Array], r: dict[str, Array]) -> Results:
    label, x, a, rows = r["label"], r["x"], r["a"], len(r["x"])
    order = jnp.argsort(label)
    return {
        "in a table": (OWN, w["table"][label]),
        "several in a table": (OWN, w["table"][jnp.stack([label, label + 1], 1)]),
        "in the row": (OWN, jnp.take_along_axis(x, label[:, None], axis=1)),
        "the same place of every row": (OWN, a[:, jnp.array([2, 0])]),
        "class of the row": (OWN, jax.nn.one_hot(label, 4)),
        "row and place": (OWN, x[jnp.arange(rows), label]),
        "rows in another order": (WHOLE, a[order]),
        "mixed with another row": (OWN, 0.7 * a + 0.3 * a[order]),
        "counted": (PARTIAL, jnp.zeros(4).at[label].add(x[:, 0])),
        "counted on top": (PARTIAL, w["table"].at[label].add(x)),
        "each its own place": (PARTIAL, jnp.zeros((rows + 2, 4)).at[jnp.arange(rows)].add(x, unique_indices=True)),
        "in segments": (PARTIAL, jax.ops.segment_sum(a, label, 4)),
        "added inside": (OWN, a.at[:, 1].add(x)),
        "added to a table a row": (PARTIAL, jnp.zeros((rows, 5)).at[jnp.arange(rows), label].add(x[:, 0])),
        "added to some rows": (WHOLE, a.at[:1].add(w["m"])),
        "added in a longer one": (WHOLE, jnp.zeros((2 * rows, 4)).at[:rows].add(x)),
        "added to a row": (WHOLE, a.at[0].add(w["m"])),
        "set inside": (OWN, a.at[:, 1].set(2.0)),
        "largest inside": (OWN, a.at[:, 1].max(x)),
        "taken away inside": (OWN, a.at[:, jnp.array([0, 2])].subtract(x[:, None])),
        "set in a table": (WHOLE, jnp.zeros((rows + 2, 4)).at[jnp.arange(rows)].set(x)),
    }


def matrices(w: dict[str, Array], r: dict[str, Array]) -> Results:
    a = r["a"]
    square = a @ a.swapaxes(1, 2) + jnp.eye(3)
    root = jnp.linalg.cholesky(square)
    return {
        "root": (OWN, root),
        "solved": (OWN, jax.lax.linalg.triangular_solve(root, a, left_side=True, lower=True)),
        "frequencies": (OWN, jnp.abs(jnp.fft.rfft(a, axis=-1))),
        "phase": (OWN, jnp.real(jnp.exp(1j * a))),
        "gamma": (OWN, jax.scipy.special.gammainc(2.0, jnp.abs(a) + 0.1)),
        "root of sums": (WHOLE, jnp.linalg.cholesky(r["x"].T @ r["x"] + jnp.eye(4))),
        "frequencies of rows": (WHOLE, jnp.abs(jnp.fft.fft(r["x"], axis=0))),
    }


def loops(w: dict[str, Array], r: dict[str, Array]) -> Results:
    a, x = r["a"], r["x"]

    def recur(state: Array, element: Array) -> tuple[Array, Array]:
        state = jnp.tanh(state @ w["square"] + element)
        return state, state[:, :2]

    def statistics(carry: tuple[Array, Array], scale: Array) -> tuple[tuple[Array, Array], Array]:
        total, rows = carry
        rows = rows - rows.mean(0) * scale
        return (total + rows.sum(0), rows), rows.max(0)

    def chain(carry: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        first, second, third = carry
        return (first + x.sum(0), second + first * 0.5, third + second[0] * x[:, 0]), None

    last, states = jax.lax.scan(recur, jnp.zeros_like(x), a.swapaxes(0, 1))
    (total, centred), largest = jax.lax.scan(statistics, (jnp.zeros(4), x), jnp.array([0.5, 0.1]))
    sums, _ = jax.lax.scan(chain, (jnp.zeros(4), jnp.zeros(4), jnp.zeros(len(x))), None, length=4)
    is_big = w["s"] > 0
    return {
        "last state": (OWN, last),
        "all states": (Rows(1), states),
        "sum in a loop": (PARTIAL, total),
        "rows in a loop": (OWN, centred),
        "largest in a loop": (WHOLE, largest),
        "chain of layouts": (PARTIAL, sums[1]),
        "end of the chain": (OWN, sums[2]),
        "mapped": (PARTIAL, jax.lax.map(lambda scale: (x * scale).mean(0), jnp.array([1.0, 2.0]))),
        "over the rows": (WHOLE, jax.lax.scan(lambda c, row: (c * 0.5 + row, c), jnp.zeros(4), x)[1]),
        "chosen": (OWN, jax.lax.cond(is_big, lambda x: x * 2, lambda x: x - x.mean(0), x)),
        "chosen sum": (PARTIAL, jax.lax.cond(is_big, lambda x: x.sum(0), lambda x: jnp.ones(4), x)),
        "chosen for a row": (OWN, jnp.where(x[:, :1] > 0, x, x * w["s"])),
        "a row's own choice": (OWN, jax.vmap(lambda row: jax.lax.cond(row[0] > 0, jnp.sin, jnp.cos, row))(x)),
        "checkpointed": (OWN, jax.checkpoint(lambda x: jnp.sin(x @ w["square"]) - x.mean(0))(x)),
    }


def draws(w: dict[str, Array], r: dict[str, Array]) -> Results:
    x, rows = r["x"], len(r["x"])
    keys = [jax.random.key(number) for number in range(6)]

    def own(key: Array, row: Array) -> Array:
        return row * jax.random.bernoulli(key, 0.5, row.shape)

    return {
        "mask": (OWN, jnp.where(jax.random.bernoulli(keys[0], 0.5, x.shape), x, 0.0)),
        "mask of time": (OWN, r["a"] * jax.random.bernoulli(keys[1], 0.5, (rows, 1, 4))),
        "noise of joined rows": (Rows(0, 3), r["a"].reshape(rows * 3, 4) + jax.random.normal(keys[2], (rows * 3, 4))),
        "largest noise": (WHOLE, (x + 3 * jax.random.normal(keys[3], x.shape)).max(0)),
        "a key a row": (OWN, jax.vmap(own)(jax.random.split(keys[4], rows), x)),
        "rows on axis 1": (Rows(1), x.T + jax.random.normal(keys[5], (4, rows))),
    }


GROUPS: dict[str, Callable[[dict[str, Array], dict[str, Array]], Results]] = {
    "elementwise": elementwise,
    "sums": sums,
    "reductions": reductions,
    "moves": moves,
    "products": products,
    "convolutions": convolutions,
    "windows": windows,
    "forward only": forward_only,
    "lookups": lookups,
    "matrices": matrices,
    "loops": loops,
    "draws": draws,
}
"""From whole and row values to results."""

FORWARD_ONLY = {"forward only", "matrices"}
"""Of these no gradients are taken."""
