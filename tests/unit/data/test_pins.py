from __future__ import annotations

import re

import pytest

from dure.data.pins import FASHION_MNIST, MNIST, describe


@pytest.mark.parametrize("known", [FASHION_MNIST, MNIST], ids=lambda known: known.name)
def test_every_file_is_pinned_and_has_the_published_size(known):
    records = list(known.files)
    assert [record.size_bytes for record in records] == [47_040_016, 60_008, 7_840_016, 10_008]
    assert all(re.fullmatch("[0-9a-f]{64}", record.sha256) for record in records)
    assert len({record.sha256 for record in records}) == 4


def test_a_digest_tells_whose_file_it_is():
    assert describe(FASHION_MNIST.files.train_images.sha256) == "`train-images-idx3-ubyte` of `fashion_mnist`"
    assert describe(MNIST.files.train_images.sha256) == "`train-images-idx3-ubyte` of `mnist`"
    assert describe("no digest") is None
