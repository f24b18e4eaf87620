"""Names, options and the search path."""

import os
from pathlib import Path

import pytest
import torch

from nfm.data import DATA, DataSet, Examples, Request, Source, available, load
from nfm.data.examples import channel_statistics, empty_like
from nfm.data.places import cache_folder, search_path
from nfm.errors import DataError, UsageError


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"unknown data set 'cifar1'.*known: .*digits.*did you mean 'cifar10"
    ):
        load("cifar1")


@pytest.mark.parametrize(
    ("name", "message"),
    [("digits:5", "takes nothing"), ("npz", "expected npz:PATH"), ("hf:", "expected hf:NAME")],
)
def test_arguments_are_where_they_belong(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(name)


def test_validation_is_cut_from_the_training_part_only() -> None:
    plain, more = load("digits", validation=0), load("digits", validation=0.25)
    assert len(plain.validation) == 0
    assert plain.validation.shape == (1, 8, 8)
    assert [len(more.train), len(more.validation)] == [750, 250]
    assert set(more.train.ids.tolist()) | set(more.validation.ids.tolist()) == set(plain.train.ids.tolist())
    assert torch.equal(plain.test.ids, more.test.ids)


def test_options_change_the_training_part_only() -> None:
    plain = load("digits")
    changed = load("digits", subset=500, label_noise=0.5, imbalance=10)
    for part in ("validation", "test"):
        assert torch.equal(getattr(plain, part).labels, getattr(changed, part).labels)
        assert torch.equal(getattr(plain, part).ids, getattr(changed, part).ids)
    assert len(changed.train) < 500
    whole = dict(zip(plain.train.ids.tolist(), plain.train.labels.tolist(), strict=True))
    wrong = [
        whole[i] != y for i, y in zip(changed.train.ids.tolist(), changed.train.labels.tolist(), strict=True)
    ]
    assert 0.3 < sum(wrong) / len(wrong) < 0.7


def test_the_seed_decides_every_choice() -> None:
    options = {"subset": 300, "label_noise": 0.2}
    first, same, other = (load("digits", seed=seed, **options).train for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert torch.equal(first.ids, same.ids)
    assert torch.equal(first.labels, same.labels)
    assert not torch.equal(first.ids, other.ids)
    with pytest.raises(UsageError, match="seed"):
        load("digits", seed=-1)


def test_a_third_party_adds_its_own(images: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATA, "_entries", dict(DATA._entries))
    seen: list[Request] = []

    def build(request: Request) -> DataSet:
        seen.append(request)
        return DataSet("mine", images, empty_like(images), images, ("a", "b", "c"), (0.5,) * 3, (0.2,) * 3)

    DATA.add("mine", Source(build=build, where=lambda places: "here", size="60", classes=3, argument="[X]"))
    data = load("mine:y", seed=5)
    assert [len(data.train), len(data.validation), len(data.test)] == [54, 6, 60]
    assert (seen[0].argument, seen[0].seed, seen[0].download) == ("y", 5, False)
    assert {"name": "mine", "present": True, "size": "60", "classes": 3, "where": "here"} in available()


def test_bad_data_of_a_source_is_refused_with_its_name(
    images: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DATA, "_entries", dict(DATA._entries))
    bad = images.relabel(images.labels - 1)
    broken = DataSet("broken", images, images, bad, ("a", "b", "c"), (0.5,), (0.2,))
    DATA.add("broken", Source(build=lambda request: broken, where=lambda places: None, size="", classes=3))
    with pytest.raises(DataError, match="broken test: expected a label from 0 to 2, got -1 at index 0"):
        load("broken")


def test_the_list_tells_what_is_here() -> None:
    rows = {row["name"]: row for row in available()}
    assert set(DATA) == {name.partition(":")[0] for name in rows}
    assert rows["digits"]["present"]
    assert not rows["cifar10"]["present"]
    assert rows["cifar10"]["where"] is None
    assert all(set(row) == {"name", "present", "size", "classes", "where"} for row in rows.values())


def test_missing_data_says_what_to_put_where(tmp_path: Path) -> None:
    for name in (
        "cifar10",
        "cifar100",
        "mnist",
        "fashion_mnist",
        "svhn",
        "tiny-imagenet",
        "cifar10-c:fog:1",
    ):
        with pytest.raises(
            DataError, match=r"not on this machine: expected .* in one of .*https://.*download=True"
        ):
            load(name, root=tmp_path)


def test_what_is_never_downloaded_is_not_offered(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"imagenet is not .* expected .* never downloaded\)$"):
        load("imagenet", root=tmp_path)


def test_the_search_path_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NFM_DATA", os.pathsep.join(["/a", "", "/b"]))
    places = search_path(tmp_path)
    assert places[:4] == (tmp_path, Path("/a"), Path("/b"), Path("data"))
    assert places[4] == cache_folder() == Path(os.environ["XDG_CACHE_HOME"]) / "nfm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "nfm"
    with pytest.raises(DataError, match="data root: expected a folder"):
        search_path(tmp_path / "none")


def test_channel_statistics_are_the_plain_ones(images: Examples) -> None:
    unit = images.images.double() / 255
    for pixels in (images.images, unit):
        mean, std = channel_statistics(pixels)
        assert torch.allclose(torch.tensor(mean).double(), unit.mean((0, 2, 3)))
        assert torch.allclose(
            torch.tensor(std).double(), unit.transpose(0, 1).flatten(1).std(1, correction=0)
        )
