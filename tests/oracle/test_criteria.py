"""Any criterion: the loss is mixed, not the labels. Against losses written out example by example."""

from __future__ import annotations

import functools
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comparing import assert_close
from nfm.core.draw import Draw
from nfm.core.mixing import Pairing, mixed_loss
from nfm.errors import ShapeError, UsageError

EXACT = 1e-6  # float32 sums in another order
SIZE = 6


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def classes(*shape: int, count: int = 5, seed: int = 1) -> Tensor:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed))


PARTNER = torch.tensor([2, 0, 5, 3, 1, 4])
PER_BATCH = Pairing(PARTNER, torch.tensor(0.3, dtype=torch.float64))
PER_SAMPLE = Pairing(PARTNER, torch.tensor([0.0, 0.1, 0.3, 0.5, 0.9, 1.0], dtype=torch.float64))
PAIRINGS = pytest.mark.parametrize("pairing", [PER_BATCH, PER_SAMPLE], ids=["batch", "sample"])


def log_softmax(scores: Tensor) -> Tensor:
    return scores - torch.log(torch.exp(scores).sum())


def weight_of(pairing: Pairing, example: int) -> float:
    return float(pairing.weight.expand(SIZE)[example])


def mixed(pairing: Pairing, single, normaliser: float = SIZE) -> Tensor:
    """Return the sum over examples of weight * single(i, i) + (1 - weight) * single(i, j), normalised."""
    total = torch.zeros(())
    for i, j in enumerate(PARTNER.tolist()):
        total = total + weight_of(pairing, i) * single(i, i) + (1 - weight_of(pairing, i)) * single(i, j)
    return total / normaliser


def check(loss: Tensor, expected: Tensor, output: Tensor) -> None:
    """Compare two losses and their gradients."""
    ours, theirs = (torch.autograd.grad(value, output)[0] for value in (loss, expected))
    assert_close([loss, ours], [expected, theirs], relative=EXACT)


@PAIRINGS
@pytest.mark.parametrize("criterion", [F.cross_entropy, nn.CrossEntropyLoss()], ids=["function", "module"])
def test_cross_entropy(pairing: Pairing, criterion) -> None:
    output, y = values(SIZE, 5).requires_grad_(), classes(SIZE)
    expected = mixed(pairing, lambda i, j: -log_softmax(output[i])[y[j]])
    check(mixed_loss(criterion, output, y, pairing), expected, output)
    assert not torch.isclose(mixed_loss(criterion, output, y.flip(0), pairing), expected)


def log_softmaxes(loss: torch.Tensor) -> int:
    """Return how many of them the backward pass of `loss` goes through."""
    nodes = {loss.grad_fn}
    for _ in range(8):
        nodes |= {before for node in nodes for before, _ in node.next_functions if before is not None}
    return sum(node.name() == "LogSoftmaxBackward0" for node in nodes)


def test_two_cross_entropies_share_their_log_softmax() -> None:
    output, y = values(SIZE, 5, 3).requires_grad_(), classes(SIZE)[:, None].repeat(1, 3)
    y[1, 2] = -100  # ignored
    ours = mixed_loss(F.cross_entropy, output, y, PER_BATCH)
    apart = mixed_loss(lambda output, y: F.cross_entropy(output, y), output, y, PER_BATCH)
    check(ours, apart, output)
    assert (log_softmaxes(ours), log_softmaxes(apart)) == (1, 2)
    soft = F.one_hot(classes(SIZE), 5).float()  # probabilities, which are no indices
    flat = values(SIZE, 5).requires_grad_()
    check(
        mixed_loss(F.cross_entropy, flat, soft, PER_BATCH),
        mixed_loss(F.cross_entropy, flat, classes(SIZE), PER_BATCH),
        flat,
    )


def looks_up(loss: Tensor) -> bool:
    """Tell whether the scores of both labels were looked up at once."""
    return "Gather" in str([node for node, _ in loss.grad_fn.next_functions[0][0].next_functions])


@pytest.mark.parametrize("kind", ["usual", "ignored", "of 8 bits", "in double precision", "of pixels"])
def test_scores_of_the_usual_labels_are_looked_up_at_once(kind: str) -> None:
    output, y = values(SIZE, 5), classes(SIZE)
    if kind == "ignored":
        y[2] = -100
    if kind == "of 8 bits":
        y = y.to(torch.uint8)
    if kind == "in double precision":
        output = output.double()
    if kind == "of pixels":
        output, y = values(SIZE, 5, 3), y[:, None].repeat(1, 3)
    output = output.requires_grad_()
    ours = mixed_loss(F.cross_entropy, output, y, PER_BATCH)
    assert looks_up(ours) == (kind == "usual")
    weight, scores = float(PER_BATCH.weight), output.log_softmax(1)
    apart = weight * F.nll_loss(scores, y) + (1 - weight) * F.nll_loss(scores, y[PARTNER])
    assert torch.allclose(ours, apart, rtol=1e-6)
    found, expected = (torch.autograd.grad(loss, output)[0] for loss in (ours, apart))
    assert torch.equal(found, expected)
    assert not torch.isclose(mixed_loss(F.cross_entropy, output, y.roll(1, 0), PER_BATCH), apart)


def test_a_label_that_is_no_class_is_refused_as_cross_entropy_does() -> None:
    output, y = values(SIZE, 5), classes(SIZE)
    y[1] = 5
    with pytest.raises(IndexError, match="Target 5 is out of bounds"):
        mixed_loss(F.cross_entropy, output, y, PER_BATCH)


def test_labels_for_some_of_the_rows_are_refused_as_cross_entropy_does() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        mixed_loss(F.cross_entropy, values(SIZE + 2, 5), classes(SIZE), PER_BATCH)


def test_a_transform_leaves_nothing_of_its_own_with_the_pairing() -> None:
    pairing, y = Pairing(PARTNER, 0.3), classes(SIZE)

    def loss(output: Tensor) -> Tensor:
        return mixed_loss(F.cross_entropy, output, y, pairing)

    found = torch.func.grad(loss)(values(SIZE, 5))
    output = values(SIZE, 5).requires_grad_()
    (expected,) = torch.autograd.grad(loss(output), output)
    assert torch.allclose(found, expected, atol=1e-7)
    assert len(pickle.dumps(pairing)) == len(pickle.dumps(Pairing(PARTNER, 0.3)))
    assert torch.equal(pickle.loads(pickle.dumps(pairing)).both, pairing.both)


def test_a_class_without_a_chance_leaves_the_loss_finite() -> None:
    """As a masked one: its score is minus infinity, and no label asks for it."""
    output = values(SIZE, 6)
    output[:, 5] = -math.inf
    loss = mixed_loss(F.cross_entropy, output, classes(SIZE), PER_BATCH)
    assert loss.isfinite()
    assert torch.equal(loss, mixed_loss(F.cross_entropy, output[:, :5], classes(SIZE), PER_BATCH))
    assert not mixed_loss(F.cross_entropy, output, torch.full_like(classes(SIZE), 5), PER_BATCH).isfinite()


@PAIRINGS
def test_two_terms_equal_cross_entropy_of_soft_targets(pairing: Pairing) -> None:
    output, y = values(SIZE, 5).requires_grad_(), classes(SIZE)
    draw = Draw("input", 0, pairing)
    soft = draw.soft_targets(y, 5)
    for i, j in enumerate(PARTNER.tolist()):
        by_hand = torch.zeros(5)
        by_hand[y[i]] += weight_of(pairing, i)
        by_hand[y[j]] += 1 - weight_of(pairing, i)
        assert torch.allclose(soft[i], by_hand, atol=1e-6)
    check(mixed_loss(F.cross_entropy, output, y, pairing), F.cross_entropy(output, soft), output)
    one_hot = F.one_hot(y, 5).float()
    assert not torch.isclose(
        mixed_loss(F.cross_entropy, output, y, pairing), F.cross_entropy(output, one_hot)
    )


@PAIRINGS
def test_cross_entropy_with_class_weights_and_an_ignored_class(pairing: Pairing) -> None:
    output, y = values(SIZE, 5).requires_grad_(), classes(SIZE)
    y[2] = -100
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0, 0.25])
    criterion = nn.CrossEntropyLoss(weight=weights)
    normaliser = float(sum(weights[label] for label in y.tolist() if label != -100))

    def single(i: int, j: int) -> Tensor:
        if y[j] == -100:
            return torch.zeros(())
        return -weights[y[j]] * log_softmax(output[i])[y[j]]

    check(mixed_loss(criterion, output, y, pairing), mixed(pairing, single, normaliser), output)


@PAIRINGS
def test_dense_targets_with_ignore_index(pairing: Pairing) -> None:
    output, y = values(SIZE, 3, 2, 4).requires_grad_(), classes(SIZE, 2, 4, count=3)
    y[0, 0] = y[3, 1, 2] = 255
    criterion = functools.partial(F.cross_entropy, ignore_index=255)
    counted = int((y != 255).sum())

    def single(i: int, j: int) -> Tensor:
        total = torch.zeros(())
        for row in range(2):
            for column in range(4):
                label = int(y[j, row, column])
                if label != 255:
                    total = total - log_softmax(output[i, :, row, column])[label]
        return total

    check(mixed_loss(criterion, output, y, pairing), mixed(pairing, single, counted), output)


@PAIRINGS
@pytest.mark.parametrize("criterion", [F.mse_loss, nn.MSELoss()], ids=["function", "module"])
def test_regression(pairing: Pairing, criterion) -> None:
    output, y = values(SIZE, 2).requires_grad_(), values(SIZE, 2, seed=3)
    expected = mixed(pairing, lambda i, j: ((output[i] - y[j]) ** 2).sum(), SIZE * 2)
    check(mixed_loss(criterion, output, y, pairing), expected, output)


@PAIRINGS
def test_mixing_regression_targets_is_not_mixing_the_loss_but_has_its_gradient(pairing: Pairing) -> None:
    output, y = values(SIZE, 2).requires_grad_(), values(SIZE, 2, seed=3)
    targets = Draw("input", 0, pairing).mix_targets(y)
    loss, other = mixed_loss(F.mse_loss, output, y, pairing), F.mse_loss(output, targets)
    ours, theirs = (torch.autograd.grad(value, output)[0] for value in (loss, other))
    assert_close([ours], [theirs], relative=EXACT)
    assert loss > other + 1e-3


@PAIRINGS
def test_multi_hot_targets(pairing: Pairing) -> None:
    output, y = values(SIZE, 4).requires_grad_(), classes(SIZE, 4, count=2).float()

    def single(i: int, j: int) -> Tensor:
        chance = 1 / (1 + torch.exp(-output[i]))
        return -(y[j] * torch.log(chance) + (1 - y[j]) * torch.log(1 - chance)).sum()

    loss = mixed_loss(F.binary_cross_entropy_with_logits, output, y, pairing)
    check(loss, mixed(pairing, single, SIZE * 4), output)


@PAIRINGS
def test_sums_stay_sums(pairing: Pairing) -> None:
    output, y = values(SIZE, 5).requires_grad_(), classes(SIZE)
    criterion = functools.partial(F.cross_entropy, reduction="sum")
    expected = mixed(pairing, lambda i, j: -log_softmax(output[i])[y[j]], 1)
    check(mixed_loss(criterion, output, y, pairing), expected, output)


@PAIRINGS
def test_label_smoothing_keeps_its_meaning(pairing: Pairing) -> None:
    output, y = values(SIZE, 5).requires_grad_(), classes(SIZE)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    expected = mixed(
        pairing, lambda i, j: -(0.9 * log_softmax(output[i])[y[j]] + 0.1 * log_softmax(output[i]).mean())
    )
    check(mixed_loss(criterion, output, y, pairing), expected, output)


@PAIRINGS
def test_sample_weights_travel_with_the_labels(pairing: Pairing) -> None:
    output = values(SIZE, 5).requires_grad_()
    y = {"label": classes(SIZE), "importance": values(SIZE, seed=4).abs()}

    def criterion(output: Tensor, y: dict[str, Tensor]) -> Tensor:
        losses = y["importance"] * F.cross_entropy(output, y["label"], reduction="none")
        return losses if pairing.per_sample else losses.mean()

    expected = mixed(pairing, lambda i, j: -y["importance"][j] * log_softmax(output[i])[y["label"][j]])
    check(mixed_loss(criterion, output, y, pairing), expected, output)


@PAIRINGS
def test_several_outputs_and_a_criterion_of_ones_own(pairing: Pairing) -> None:
    main, auxiliary, y = values(SIZE, 5).requires_grad_(), values(SIZE, 5, seed=9), classes(SIZE)

    def criterion(outputs: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        losses = sum(F.cross_entropy(output, y, reduction="none") for output in outputs)
        return losses if pairing.per_sample else losses.mean()

    expected = mixed(pairing, lambda i, j: -sum(log_softmax(output[i])[y[j]] for output in (main, auxiliary)))
    check(mixed_loss(criterion, (main, auxiliary), y, pairing), expected, main)


@pytest.mark.parametrize(("weight", "terms"), [(0.0, 1), (0.3, 2), (1.0, 1)])
def test_the_dead_term_is_not_computed(weight: float, terms: int) -> None:
    calls = []

    def criterion(output: Tensor, labels: Tensor) -> Tensor:
        calls.append(labels)
        return F.cross_entropy(output, labels)

    y, pairing = classes(SIZE), Pairing(PARTNER, torch.tensor(weight, dtype=torch.float64))
    mixed_loss(criterion, values(SIZE, 5), y, pairing)
    assert len(calls) == terms
    assert any(torch.equal(labels, y[PARTNER] if weight == 0 else y) for labels in calls)


def test_an_infinite_dead_term_leaves_the_loss_finite() -> None:
    """The authors' code computes 0 * inf, which is NaN (trap R3)."""
    output, y = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]]), torch.tensor([0, 1])
    swapped = torch.tensor([1, 0])
    for weight, labels in ((1.0, y), (0.0, y.flip(0))):
        pairing = Pairing(swapped, torch.tensor(weight, dtype=torch.float64))
        assert mixed_loss(F.cross_entropy, output, labels, pairing) == 0
        each = Pairing(swapped, torch.full((2,), weight, dtype=torch.float64))
        assert mixed_loss(F.cross_entropy, output, labels, each) == 0
    naive = 1.0 * F.cross_entropy(output, y) + 0.0 * F.cross_entropy(output, y[swapped])
    assert naive.isnan()


def test_a_criterion_that_reduces_is_refused_with_a_weight_an_example() -> None:
    output, y = values(SIZE, 5), classes(SIZE)
    with pytest.raises(UsageError, match="one loss an example"):
        mixed_loss(lambda output, y: F.cross_entropy(output, y), output, y, PER_SAMPLE)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4, 0], "abcdef", 3])
def test_labels_without_tensors_are_refused(labels) -> None:
    with pytest.raises(ShapeError, match="labels as tensors"):
        mixed_loss(lambda output, y: output.mean(), values(SIZE, 5), labels, PER_BATCH)


@PAIRINGS
def test_labels_of_another_batch_are_refused(pairing: Pairing) -> None:
    with pytest.raises(ShapeError, match="expected a batch of 6"):
        mixed_loss(F.cross_entropy, values(SIZE, 5), classes(SIZE + 1), pairing)


def test_whole_numbers_are_no_targets_to_mix() -> None:
    with pytest.raises(ShapeError, match="soft_targets"):
        Draw("input", 0, PER_BATCH).mix_targets(classes(SIZE))


def test_pairs_are_what_any_other_loss_needs() -> None:
    y = classes(SIZE)
    own, other, weight = Draw("input", 0, PER_BATCH).pairs({"label": y})
    assert torch.equal(own["label"], y)
    assert torch.equal(other["label"], y[PARTNER])
    assert weight == PER_BATCH.weight
