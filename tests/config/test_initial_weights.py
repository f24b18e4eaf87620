"""Weights to begin with: whose they may be, which head is kept, and what is told of those that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nfm.config.build import build_model
from nfm.config.initial import read_weights, take_weights, unwrapped
from nfm.config.runs import load_run
from nfm.config.schema import Facts, ModelConfig
from nfm.errors import CheckpointError, UsageError
from nfm.train import checkpoint
from running import digits, in_memory, newest, train

tmp_path = in_memory


def mlp(classes: int = 10, seed: int = 0, **options: Any) -> nn.Module:
    facts = Facts((1, 8, 8), tuple(map(str, range(classes))), (0.3,), (0.4,))
    return build_model(ModelConfig("mlp", {"units": 8} | options), facts, seed=seed)


def begun(source: Path, classes: int = 10) -> dict[str, Tensor]:
    """Return the weights of a fresh network that begins with `source`."""
    model = mlp(classes, seed=9)
    take_weights(model, str(source))
    return model.state_dict()


def assert_taken(found: dict[str, Tensor], expected: dict[str, Tensor], *, but: tuple[str, ...] = ()) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value) != (name in but), name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best weights are not its last."""
    out = tmp_path_factory.mktemp("begin") / "run"
    train(out, scheme="erm", epochs=6, ema=0.9)
    return out


class TestSources:
    def test_a_run_gives_its_best_weights(self, run: Path) -> None:
        best = checkpoint.load(checkpoint.found_in(run / "checkpoints", checkpoint.BEST)[0])[0]
        assert_taken(begun(run), best)

    def test_a_run_without_validation_gives_its_last(self, tmp_path: Path) -> None:
        train(tmp_path / "run", data=digits(48, validation=0), epochs=1)
        last = checkpoint.load(newest(tmp_path / "run"))[0]
        assert_taken(begun(tmp_path / "run"), {n[6:]: v for n, v in last.items() if n.startswith("model.")})

    @pytest.mark.parametrize("ending", [".json", ".safetensors"])
    def test_a_checkpoint_gives_its_average(self, run: Path, ending: str) -> None:
        tensors = checkpoint.load(newest(run))[0]
        average = {name[8:]: value for name, value in tensors.items() if name.startswith("average.")}
        assert_taken(begun(newest(run).with_suffix(ending)), average)

    def test_files_of_torch_and_safetensors(self, tmp_path: Path) -> None:
        state = mlp(seed=1).state_dict()
        torch.save(state, tmp_path / "a.pt")
        torch.save({"state_dict": state, "epoch": 3}, tmp_path / "b.pth")
        save_file(state, tmp_path / "c.safetensors")
        for name in ("a.pt", "b.pth", "c.safetensors"):
            assert_taken(begun(tmp_path / name), state)
        with pytest.raises(AssertionError):  # the control
            assert_taken(begun(tmp_path / "a.pt"), mlp(seed=2).state_dict())

    @pytest.mark.parametrize(
        "prefix",
        ["module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.", "model.module."],
    )
    def test_the_prefixes_of_wrappers_are_stripped(self, tmp_path: Path, prefix: str) -> None:
        state = mlp(seed=1).state_dict()
        torch.save({f"{prefix}{name}": value for name, value in state.items()}, tmp_path / "a.pt")
        with pytest.warns(UserWarning, match=f"prefix '{prefix}'"):
            begun_here = begun(tmp_path / "a.pt")
        assert_taken(begun_here, state)

    def test_a_network_whose_own_names_begin_so_keeps_them(self) -> None:
        weights = {"model.head.weight": torch.ones(2, 2)}
        assert unwrapped(weights, ["model.head.weight"]) == weights
        with pytest.warns(UserWarning, match=r"took the wrapper's prefix 'model\.'"):  # the control
            assert list(unwrapped(weights, ["head.weight"])) == ["head.weight"]


class TestHeads:
    def test_a_head_of_other_classes_stays_new(self, run: Path) -> None:
        fresh = mlp(4, seed=9).state_dict()
        found = begun(run, classes=4)
        best = begun(run)
        for name, value in found.items():
            assert torch.equal(value, fresh[name] if name.startswith("head") else best[name])

    def test_a_missing_head_stays_new(self, tmp_path: Path) -> None:
        state = {n: v for n, v in mlp(seed=1).state_dict().items() if not n.startswith("head")}
        torch.save(state, tmp_path / "a.pt")
        found, fresh = begun(tmp_path / "a.pt"), mlp(seed=9).state_dict()
        assert torch.equal(found["head.weight"], fresh["head.weight"])
        assert torch.equal(found["hidden1.0.weight"], state["hidden1.0.weight"])

    def test_a_recipe_begins_with_a_run_and_freezes(self, run: Path) -> None:
        facts = Facts((1, 8, 8), ("a", "b"), (0.3,), (0.4,))
        config = ModelConfig("mlp", {"units": 8}, init_from=str(run), freeze=("hidden*",))
        model = build_model(config, facts, seed=0)
        assert model.head.out_features == 2
        assert {name for name, p in model.named_parameters() if p.requires_grad} == {
            "head.weight",
            "head.bias",
        }


class TestMisfits:
    def told(self, state: dict[str, Tensor], tmp_path: Path) -> str:
        torch.save(state, tmp_path / "a.pt")
        model = mlp(seed=9)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(CheckpointError) as error:
            take_weights(model, str(tmp_path / "a.pt"))
        assert_taken(model.state_dict(), before)  # nothing is half loaded
        assert str(tmp_path / "a.pt") in str(error.value)
        return str(error.value)

    def test_each_is_told_by_name(self, tmp_path: Path) -> None:
        state = mlp(seed=1).state_dict()
        del state["hidden1.0.bias"]
        state["stranger"] = torch.ones(2)
        state["hidden2.0.weight"] = torch.ones(3, 3)
        told = self.told(state, tmp_path)
        assert "does not fit MLP (3 problems)" in told
        assert "missing hidden1.0.bias" in told
        assert "unexpected stranger" in told
        assert "hidden2.0.weight has shape (3, 3), expected (8, 8)" in told

    def test_no_more_than_ten_are_listed(self, tmp_path: Path) -> None:
        told = self.told({f"layer{i}": torch.ones(1) for i in range(99)}, tmp_path)
        assert told.count(";") == 9
        assert "99" not in told.partition("problems")[2]

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_bad_numbers_are_refused(self, tmp_path: Path, value: float) -> None:
        state = mlp(seed=1).state_dict()
        state["hidden1.0.weight"][0, 0] = value
        assert "hidden1.0.weight holds NaN or infinity" in self.told(state, tmp_path)

    @pytest.mark.parametrize("source", ["none.pt", "none", "x" * 300])
    def test_what_is_not_there_is_told(self, tmp_path: Path, source: str) -> None:
        with pytest.raises(CheckpointError, match=r"cannot read .*expected a run folder"):
            read_weights(tmp_path / source)

    def test_an_empty_folder_and_a_dangling_link_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="expected the folder of a run with a checkpoint"):
            read_weights(tmp_path)
        (tmp_path / "latest").symlink_to(tmp_path / "gone")
        with pytest.raises(CheckpointError, match="No such file"):
            read_weights(tmp_path / "latest")

    def test_a_damaged_best_is_not_replaced_by_the_last_in_silence(self, tmp_path: Path) -> None:
        train(tmp_path / "run", epochs=1)
        best = checkpoint.found_in(tmp_path / "run" / "checkpoints", checkpoint.BEST)[0]
        best.with_suffix(".safetensors").write_bytes(b"")
        with pytest.raises(CheckpointError, match="checksum"):
            read_weights(tmp_path / "run")

    def test_a_network_without_a_head_is_told(self, tmp_path: Path) -> None:
        torch.save({"0.weight": torch.ones(2, 2)}, tmp_path / "a.pt")
        with pytest.raises(UsageError, match="linear layer of the classes"):
            take_weights(nn.Sequential(nn.Linear(2, 2, bias=False)), str(tmp_path / "a.pt"))


def test_a_run_of_the_library_alone_is_no_source_of_recipes(run: Path) -> None:
    with pytest.raises(CheckpointError, match="without its recipe"):
        load_run(run)
