"""Programs over a batch, a group for each kind of rule, and how each result lies on the replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dure.strategy.layout import Layout, Rows, Spread

Array = Any
OWN, WHOLE, PARTIAL = Rows(0), Spread.WHOLE, Spread.PARTIAL
IMAGES = ("NHWC", "HWIO", "NHWC")


class Group(NamedTuple):
    """Some programs of one kind.

    Attributes:
        compute: from whole and row values to results by name.
        layouts: how each result lies.
        is_differentiable: gradients of the results' sum are compared too.
    """

    compute: Callable[[dict[str, Array], dict[str, Array]], dict[str, Array]]
    layouts: dict[str, Layout]
    is_differentiable: bool = True


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


def elementwise(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    a, b, rows = r["a"], r["b"], len(r["a"])
    return {
        "arithmetic": (a * b + 1) / (jnp.abs(b) + 2) - jnp.exp(-a * a),
        "choice": jnp.where(a > b, a, w["s"]),
        "clip": jnp.clip(a, -0.5, w["s"] + 1),
        "with a weight of the row's shape": a + w["m"],
        "with a traced scalar": a * w["s"],
        "with a number a row": a * jnp.arange(rows, dtype=jnp.float32)[:, None, None],
        "with a whole value a row": a + jnp.linspace(0.0, 1.0, rows)[:, None, None] * w["m"],
        "broadcast over a new axis": jnp.broadcast_to(r["x"][:, None, :], a.shape) * a,
        "whole numbers": r["label"] * 3 % 4 + 1,
        "relu and softmax": jax.nn.softmax(jax.nn.relu(a), axis=-1),
        "gelu": jax.nn.gelu(a),
    }


def sums(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    total, other, count = r["a"].sum(0), r["b"].sum(0), r["label"].sum()
    apart = (r["a"] - r["b"]).sum(0)
    return {
        "sum": total,
        "mean": r["a"].mean(0),
        "scaled": total * w["s"] / 3 * w["m"],
        "sum of sums": total - other + w["m"],
        "sum of a sum": jnp.squeeze(total[None].sum(1), 0),
        "moved sum": total.T.reshape(2, 6)[:, 1:],
        "square of a sum": total * other,
        "rounded count": count // 3,
        "count as a number": count.astype(jnp.float32),
        "sum over rows and more": r["a"].sum((0, 2)),
        "centred rows": r["a"] - r["a"].mean(0),
        "chosen alike": jnp.where(w["s"] > 0, apart, w["m"]) * jnp.where(w["m"] > 0, 1.0, 2.0),
        "chosen by the sum": jnp.where(total > 0, total, 0.0),
        "scalar spread over weights": jnp.broadcast_to(r["a"].sum(), (3, 4)) * w["m"],
    }


def reductions(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    a = r["a"]
    number = jnp.arange(len(a), dtype=jnp.float32)[:, None, None]
    return {
        "sum in a row": a.sum(1),
        "largest in a row": a.max((1, 2)),
        "largest of all rows": a.max(0),
        "smallest of all rows": (a * a).min((0, 1)),
        "largest with the row's number": (a * 0.1 + number).max(0),
        "place in a row": a.argmax(-1),
        "place among rows": a.argmax(0),
        "product of rows": jnp.prod(a * 0.5 + 1, axis=0),
        "any row": (a > 0.5).any(0),
        "all rows": (a > -9).all((0, 1)),
        "log-sum-exp over rows": jax.nn.logsumexp(a, axis=0),
    }


def moves(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    a, rows = r["a"], len(r["a"])
    return {
        "transposed": a.transpose(2, 0, 1),
        "rows and time joined": a.reshape(rows * 3, 4),
        "joined and parted": jax.nn.tanh(a.reshape(rows * 3, 4)).reshape(rows, 12),
        "time first, then joined": a.transpose(1, 0, 2).reshape(3, rows * 4),
        "new axis in front": a[None],
        "axis dropped": jnp.squeeze(a[None, :, :1], (0, 2)),
        "part of a row": a[:, 1:, ::2],
        "padded rows' insides": jnp.pad(a, ((0, 0), (1, 2), (0, 0)), constant_values=2.0),
        "turned around inside": a[:, ::-1],
        "joined inside": jnp.concatenate([a, r["b"], jnp.broadcast_to(w["m"], a.shape)], axis=1),
        "parts": jnp.split(a, [1, 3], axis=2)[1],
        "stacked in front": jnp.stack([a, r["b"]], axis=0),
        "stacked behind": jnp.stack([a, jnp.broadcast_to(w["m"], a.shape)], axis=-1),
        "apart": jnp.unstack(a, axis=1)[1],
        "rows apart": jnp.unstack(a, axis=0)[0],
        "repeated inside": jnp.tile(a, (1, 2, 1)),
        "repeated in front": jnp.tile(a, (2, 1, 1, 1)),
        "rows repeated": jnp.tile(a, (2, 1, 1)),
        "part at a place": jax.lax.dynamic_slice_in_dim(a, w["s"].astype(jnp.int32) + 1, 2, 1),
        "written inside": jax.lax.dynamic_update_slice_in_dim(a, r["x"][:, None], 1, 1),
        "one after another": jnp.concatenate([a, r["b"]], axis=0),
        "rows divided": a.reshape(3, rows * 4),
        "first rows": a[:1],
        "rows turned around": a[::-1],
        "rows shifted": jnp.roll(a, 1, axis=0),
        "a row at a place": jax.lax.dynamic_index_in_dim(a, 0, keepdims=False),
    }


def products(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    x, a = r["x"], r["a"]
    return {
        "rows by a weight": x @ w["square"],
        "a weight by rows": w["square"] @ x.T,
        "in the middle": jnp.einsum("bti,ij->btj", a, w["square"]),
        "contracted rows": x.T @ jnp.tanh(x),
        "contracted rows and time": jnp.einsum("bti,btj->ij", a, r["b"]),
        "contracted with a whole": jnp.einsum("bti,b->ti", a, jnp.linspace(1.0, 2.0, len(a))),
        "row by row": jnp.einsum("bti,bsi->bts", a, r["b"]),
        "row by row of a whole": jnp.einsum("bti,bij->btj", a, jnp.broadcast_to(w["square"], (len(a), 4, 4))),
        "every row with every row": x @ x.T,
        "and back": jax.nn.softmax(x @ x.T) @ x,
        "and back, turned": (x @ x.T).T @ x,
        "truth": (x > 0).T @ (x > 0.5),
        "truth, used": jnp.where((x > 0).T @ (x > 0.5), w["square"], 0.0),
    }


def convolutions(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    image = r["image"]

    def convolve(image: Array, kernel: Array, **options: Any) -> Array:
        settings = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": IMAGES} | options
        return jax.lax.conv_general_dilated(image, kernel, **settings)

    plain = convolve(image, w["kernel"])
    return {
        "same": plain,
        "strided": convolve(image, w["kernel"], window_strides=(2, 2), padding="VALID"),
        "dilated": convolve(image, w["kernel"], rhs_dilation=(2, 2)),
        "depthwise": convolve(image, w["deep"], feature_group_count=2),
        "transposed": jax.lax.conv_transpose(plain, w["up"], (2, 2), "SAME", dimension_numbers=IMAGES),
        "along a line": jax.lax.conv_general_dilated(
            r["a"], w["line"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        ),
        "rows as kernels": convolve(jnp.ones((1, 6, 6, 2)), image[:, :3, :3].transpose(1, 2, 3, 0)),
    }


def windows(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    image, pool = r["image"], (1, 2, 2, 1)
    return {
        "largest": jax.lax.reduce_window(image, -jnp.inf, jax.lax.max, pool, pool, "VALID"),
        "mean": jax.lax.reduce_window(image, 0.0, jax.lax.add, pool, (1, 1, 1, 1), "SAME") / 4,
        "running sum": jnp.cumsum(r["a"], axis=1),
        "running largest": jax.lax.cummax(r["a"], axis=2),
        "sorted": jnp.sort(r["a"], axis=-1),
        "largest three": jax.lax.top_k(r["a"], 3)[0],
        "running sum of rows": jnp.cumsum(r["x"], axis=0),
        "sorted rows": jnp.sort(r["x"], axis=0),
        "median of rows": jnp.median(r["x"], axis=0),
        "window over rows": jax.lax.reduce_window(r["x"], 0.0, jax.lax.add, (2, 1), (1, 1), "SAME"),
    }


def forward_only(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    pool = (1, 2, 2, 1)
    return {
        "product in a window": jax.lax.reduce_window(r["image"], 1.0, jax.lax.mul, pool, pool, "VALID"),
        "order": jnp.argsort(r["a"], axis=1),
        "order of rows": jnp.argsort(r["x"][:, 0]),
        "loop a row": jax.lax.while_loop(lambda c: (c > 0.1).any(), lambda c: c * 0.5, jnp.abs(r["x"])),
    }


def lookups(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    label, x, a, rows = r["label"], r["x"], r["a"], len(r["x"])
    order = jnp.argsort(label)
    return {
        "in a table": w["table"][label],
        "several in a table": w["table"][jnp.stack([label, label + 1], 1)],
        "in the row": jnp.take_along_axis(x, label[:, None], axis=1),
        "the same place of every row": a[:, jnp.array([2, 0])],
        "class of the row": jax.nn.one_hot(label, 4),
        "row and place": x[jnp.arange(rows), label],
        "rows in another order": a[order],
        "mixed with another row": 0.7 * a + 0.3 * a[order],
        "counted": jnp.zeros(4).at[label].add(x[:, 0]),
        "counted on top": w["table"].at[label].add(x),
        "each its own place": jnp.zeros((rows + 2, 4)).at[jnp.arange(rows)].add(x, unique_indices=True),
        "in segments": jax.ops.segment_sum(a, label, 4),
        "added inside": a.at[:, 1].add(x),
        "added to a table a row": jnp.zeros((rows, 5)).at[jnp.arange(rows), label].add(x[:, 0]),
        "added to some rows": a.at[:1].add(w["m"]),
        "added in a longer one": jnp.zeros((2 * rows, 4)).at[:rows].add(x),
        "added to a row": a.at[0].add(w["m"]),
        "set inside": a.at[:, 1].set(2.0),
        "largest inside": a.at[:, 1].max(x),
        "taken away inside": a.at[:, jnp.array([0, 2])].subtract(x[:, None]),
        "set in a table": jnp.zeros((rows + 2, 4)).at[jnp.arange(rows)].set(x),
    }


def matrices(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    a = r["a"]
    square = a @ a.swapaxes(1, 2) + jnp.eye(3)
    root = jnp.linalg.cholesky(square)
    return {
        "root": root,
        "solved": jax.lax.linalg.triangular_solve(root, a, left_side=True, lower=True),
        "frequencies": jnp.abs(jnp.fft.rfft(a, axis=-1)),
        "phase": jnp.real(jnp.exp(1j * a)),
        "gamma": jax.scipy.special.gammainc(2.0, jnp.abs(a) + 0.1),
        "root of sums": jnp.linalg.cholesky(r["x"].T @ r["x"] + jnp.eye(4)),
        "frequencies of rows": jnp.abs(jnp.fft.fft(r["x"], axis=0)),
    }


def loops(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
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
        "last state": last,
        "all states": states,
        "sum in a loop": total,
        "rows in a loop": centred,
        "largest in a loop": largest,
        "chain of layouts": sums[1],
        "end of the chain": sums[2],
        "mapped": jax.lax.map(lambda scale: (x * scale).mean(0), jnp.array([1.0, 2.0])),
        "over the rows": jax.lax.scan(lambda c, row: (c * 0.5 + row, c), jnp.zeros(4), x)[1],
        "chosen": jax.lax.cond(is_big, lambda x: x * 2, lambda x: x - x.mean(0), x),
        "chosen sum": jax.lax.cond(is_big, lambda x: x.sum(0), lambda x: jnp.ones(4), x),
        "chosen for a row": jnp.where(x[:, :1] > 0, x, x * w["s"]),
        "a row's own choice": jax.vmap(lambda row: jax.lax.cond(row[0] > 0, jnp.sin, jnp.cos, row))(x),
        "checkpointed": jax.checkpoint(lambda x: jnp.sin(x @ w["square"]) - x.mean(0))(x),
    }


def draws(w: dict[str, Array], r: dict[str, Array]) -> dict[str, Array]:
    x, rows = r["x"], len(r["x"])
    keys = [jax.random.key(number) for number in range(6)]

    def own(key: Array, row: Array) -> Array:
        return row * jax.random.bernoulli(key, 0.5, row.shape)

    return {
        "mask": jnp.where(jax.random.bernoulli(keys[0], 0.5, x.shape), x, 0.0),
        "mask of time": r["a"] * jax.random.bernoulli(keys[1], 0.5, (rows, 1, 4)),
        "noise of joined rows": r["a"].reshape(rows * 3, 4) + jax.random.normal(keys[2], (rows * 3, 4)),
        "largest noise": (x + 3 * jax.random.normal(keys[3], x.shape)).max(0),
        "a key a row": jax.vmap(own)(jax.random.split(keys[4], rows), x),
        "rows on axis 1": x.T + jax.random.normal(keys[5], (4, rows)),
    }


GROUPS: dict[str, Group] = {
    "elementwise": Group(elementwise, dict.fromkeys(elementwise(whole_values(), row_values(2)), OWN)),
    "sums": Group(
        sums,
        {
            "sum": PARTIAL,
            "mean": PARTIAL,
            "scaled": PARTIAL,
            "sum of sums": PARTIAL,
            "sum of a sum": PARTIAL,
            "moved sum": PARTIAL,
            "square of a sum": WHOLE,
            "rounded count": WHOLE,
            "count as a number": WHOLE,
            "sum over rows and more": PARTIAL,
            "centred rows": OWN,
            "chosen alike": PARTIAL,
            "chosen by the sum": WHOLE,
            "scalar spread over weights": WHOLE,
        },
    ),
    "reductions": Group(
        reductions,
        {
            "sum in a row": OWN,
            "largest in a row": OWN,
            "largest of all rows": WHOLE,
            "smallest of all rows": WHOLE,
            "largest with the row's number": WHOLE,
            "place in a row": OWN,
            "place among rows": WHOLE,
            "product of rows": WHOLE,
            "any row": WHOLE,
            "all rows": WHOLE,
            "log-sum-exp over rows": WHOLE,
        },
    ),
    "moves": Group(
        moves,
        {
            "transposed": Rows(1),
            "rows and time joined": Rows(0, 3),
            "joined and parted": OWN,
            "time first, then joined": Rows(1, 4),
            "new axis in front": Rows(1),
            "axis dropped": OWN,
            "part of a row": OWN,
            "padded rows' insides": OWN,
            "turned around inside": OWN,
            "joined inside": OWN,
            "parts": OWN,
            "stacked in front": Rows(1),
            "stacked behind": OWN,
            "apart": OWN,
            "rows apart": WHOLE,
            "repeated inside": OWN,
            "repeated in front": Rows(1),
            "rows repeated": WHOLE,
            "part at a place": OWN,
            "written inside": OWN,
            "one after another": WHOLE,
            "rows divided": WHOLE,
            "first rows": WHOLE,
            "rows turned around": WHOLE,
            "rows shifted": WHOLE,
            "a row at a place": WHOLE,
        },
    ),
    "products": Group(
        products,
        {
            "rows by a weight": OWN,
            "a weight by rows": Rows(1),
            "in the middle": OWN,
            "contracted rows": PARTIAL,
            "contracted rows and time": PARTIAL,
            "contracted with a whole": PARTIAL,
            "row by row": OWN,
            "row by row of a whole": OWN,
            "every row with every row": OWN,
            "and back": OWN,
            "and back, turned": PARTIAL,
            "truth": PARTIAL,
            "truth, used": WHOLE,
        },
    ),
    "convolutions": Group(
        convolutions,
        {
            "same": OWN,
            "strided": OWN,
            "dilated": OWN,
            "depthwise": OWN,
            "transposed": OWN,
            "along a line": OWN,
            "rows as kernels": WHOLE,
        },
    ),
    "windows": Group(
        windows,
        {
            "largest": OWN,
            "mean": OWN,
            "running sum": OWN,
            "running largest": OWN,
            "sorted": OWN,
            "largest three": OWN,
            "running sum of rows": WHOLE,
            "sorted rows": WHOLE,
            "median of rows": WHOLE,
            "window over rows": WHOLE,
        },
    ),
    "forward only": Group(
        forward_only,
        {"product in a window": OWN, "order": OWN, "order of rows": WHOLE, "loop a row": WHOLE},
        is_differentiable=False,
    ),
    "lookups": Group(
        lookups,
        {
            "in a table": OWN,
            "several in a table": OWN,
            "in the row": OWN,
            "the same place of every row": OWN,
            "class of the row": OWN,
            "row and place": OWN,
            "rows in another order": WHOLE,
            "mixed with another row": OWN,
            "counted": PARTIAL,
            "counted on top": PARTIAL,
            "each its own place": PARTIAL,
            "in segments": PARTIAL,
            "added inside": OWN,
            "added to a table a row": PARTIAL,
            "added to some rows": WHOLE,
            "added in a longer one": WHOLE,
            "added to a row": WHOLE,
            "set inside": OWN,
            "largest inside": OWN,
            "taken away inside": OWN,
            "set in a table": WHOLE,
        },
    ),
    "matrices": Group(
        matrices,
        {
            "root": OWN,
            "solved": OWN,
            "frequencies": OWN,
            "phase": OWN,
            "gamma": OWN,
            "root of sums": WHOLE,
            "frequencies of rows": WHOLE,
        },
        is_differentiable=False,
    ),
    "loops": Group(
        loops,
        {
            "last state": OWN,
            "all states": Rows(1),
            "sum in a loop": PARTIAL,
            "rows in a loop": OWN,
            "largest in a loop": WHOLE,
            "chain of layouts": PARTIAL,
            "end of the chain": OWN,
            "mapped": PARTIAL,
            "over the rows": WHOLE,
            "chosen": OWN,
            "chosen sum": PARTIAL,
            "chosen for a row": OWN,
            "a row's own choice": OWN,
            "checkpointed": OWN,
        },
    ),
    "draws": Group(
        draws,
        {
            "mask": OWN,
            "mask of time": OWN,
            "noise of joined rows": Rows(0, 3),
            "largest noise": WHOLE,
            "a key a row": OWN,
            "rows on axis 1": Rows(1),
        },
    ),
}
