"""Tensors inside structures: found in order, changed in a copy, everything else kept."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict

import pytest
import torch

from nets import Pair, Record
from nfm.core.mixing import Pairing, partners_of
from nfm.core.structure import map_tensors, parts, replace, tensors_in

A, B = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
STRUCTURES = {
    "tensor": A,
    "tuple": (A, B, "note"),
    "list": [A, [B], 3],
    "dict": {"a": A, "b": {"c": B}, "n": None},
    "ordered": OrderedDict(a=A, b=B),
    "user": UserDict(a=A, b=B),
    "namedtuple": Pair(A, B),
    "dataclass": Record(A, B),
}


@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_every_tensor_is_found_and_mapped(structure) -> None:
    before = [tensor.clone() for tensor in tensors_in(structure)]
    assert before
    doubled = map_tensors(lambda t: 2 * t, structure)
    assert type(doubled) is type(structure)
    for found, old in zip(tensors_in(doubled), before, strict=True):
        assert torch.equal(found, 2 * old)
    for now, old in zip(tensors_in(structure), before, strict=True):
        assert torch.equal(now, old), "the structure itself was changed"


def test_what_is_no_tensor_is_kept() -> None:
    changed = map_tensors(lambda t: t + 1, {"x": A, "names": ["cat", "dog"], "n": 3, "none": None})
    assert changed["names"] == ["cat", "dog"]
    assert changed["n"] == 3
    assert changed["none"] is None
    assert map_tensors(lambda t: t + 1, "text") == "text"
    assert map_tensors(lambda t: t + 1, ()) == ()


def test_one_element_is_replaced() -> None:
    assert torch.equal(replace((A, A), {1: B})[1], B)
    assert torch.equal(replace(Pair(A, A), {1: B}).extra, B)
    record = replace(Record(A, A, "mine"), {"extra": B})
    assert torch.equal(record.extra, B)
    assert record.note == "mine"
    assert list(replace(OrderedDict(a=A, b=A), {"a": B})) == ["a", "b"]


def test_a_defaultdict_stays_one() -> None:
    original = defaultdict(list, a=A)
    changed = map_tensors(lambda t: t + 1, original)
    assert type(changed) is defaultdict
    assert changed.default_factory is list
    assert torch.equal(changed["a"], A + 1)


def test_a_class_is_no_container() -> None:
    assert list(parts(Record)) == []
    assert list(parts(3)) == []


def test_partners_reach_every_label() -> None:
    pairing = Pairing(torch.tensor([1, 0]), torch.tensor(0.5))
    swapped = partners_of({"label": A, "more": (B,)}, pairing)
    assert torch.equal(swapped["label"], A.flip(0))
    assert torch.equal(swapped["more"][0], B.flip(0))
