"""Checkpoint files: whole to the last bit or refused by name; the one before is still there."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nfm.errors import CheckpointError
from nfm.train import checkpoint
from nfm.train.folder import CHECKPOINTS
from running import InterruptAfter, Interrupted, assert_same_result, newest, result_of, train

PAGE = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A small checkpoint with all kinds of content."""
    return save(tmp_path / "step-0000000001")


def save(path: Path, value: float = 1.0) -> Path:
    tensors = {
        "a": torch.full((3, 4), value),
        "b": torch.arange(5),
        "c": torch.tensor(2.5, dtype=torch.bfloat16),
    }
    checkpoint.save(path, tensors, {"step": 3, "best": 0.1 + 0.2, "list": [1, 2.0, None, True, "text"]})
    return path


def files_of(path: Path) -> list[Path]:
    return [path.with_suffix(".json"), path.with_suffix(".safetensors")]


def test_what_is_saved_is_loaded(pair: Path) -> None:
    tensors, facts = checkpoint.load(pair)
    assert facts == {"step": 3, "best": 0.1 + 0.2, "list": [1, 2.0, None, True, "text"]}
    assert torch.equal(tensors["a"], torch.full((3, 4), 1.0))
    assert torch.equal(tensors["b"], torch.arange(5))
    assert tensors["c"].dtype == torch.bfloat16


def test_tensors_that_share_memory_or_lie_otherwise_are_saved(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    checkpoint.save(tmp_path / "x", {"whole": base, "part": base[1], "turned": base.T, "none": base[:0]}, {})
    tensors, _ = checkpoint.load(tmp_path / "x")
    assert torch.equal(tensors["turned"], base.T)
    assert torch.equal(tensors["part"], base[1])
    assert tensors["none"].shape == (0, 4)


def flip_bits(pair: Path, count: int) -> int:
    """Flip one bit at a time in either file; return how many were noticed."""
    moments = random.Random(0)
    noticed = 0
    for index in range(count):
        file = files_of(pair)[index % 2]
        whole = file.read_bytes()
        place = moments.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        try:
            checkpoint.load(pair)
        except CheckpointError as error:
            noticed += str(pair) in str(error)
        file.write_bytes(whole)
    checkpoint.load(pair)
    return noticed


def test_a_flipped_bit_is_noticed(pair: Path) -> None:
    assert flip_bits(pair, 100) == 100


@pytest.mark.slow
def test_two_thousand_flipped_bits_are_noticed(pair: Path) -> None:
    assert flip_bits(pair, 2000) == 2000


def test_the_format_alone_would_not_notice(pair: Path) -> None:
    """The control: safetensors reads a flipped bit of a tensor without a word."""
    from safetensors.torch import load

    content = bytearray(pair.with_suffix(".safetensors").read_bytes())
    content[-1] ^= 1
    load(bytes(content))


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_every_truncation_is_noticed(pair: Path, ending: str) -> None:
    file = pair.with_suffix(ending)
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="step-0000000001"):
            checkpoint.load(pair)


def other_tensors(pair: Path) -> None:
    other = save(pair.with_name("other"), value=2.0)
    shutil.copy(other.with_suffix(".safetensors"), pair.with_suffix(".safetensors"))


def other_facts(pair: Path) -> None:
    manifest = json.loads(pair.with_suffix(".json").read_text())
    manifest["facts"]["step"] = 4
    pair.with_suffix(".json").write_text(json.dumps(manifest, sort_keys=True))


def newer_format(pair: Path) -> None:
    manifest = json.loads(pair.with_suffix(".json").read_text())
    pair.with_suffix(".json").write_text(json.dumps(manifest | {"format": 2}, sort_keys=True))


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def written(ending: str, content: bytes) -> Callable[[Path], object]:
    return lambda pair: pair.with_suffix(ending).write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "zero tensors": (written(".safetensors", b""), "checksum"),
    "zero manifest": (written(".json", b""), "manifest"),
    "page as tensors": (written(".safetensors", PAGE), "checksum"),
    "page as manifest": (written(".json", PAGE), "manifest"),
    "number as manifest": (written(".json", b"3"), "manifest"),
    "list as manifest": (written(".json", b"[1, 2]"), "manifest"),
    "deep manifest": (written(".json", b"[" * 100_000), "manifest"),
    "binary manifest": (written(".json", bytes(range(256))), "manifest"),
    "tensors gone": (lambda pair: pair.with_suffix(".safetensors").unlink(), "cannot read"),
    "manifest gone": (lambda pair: pair.with_suffix(".json").unlink(), "cannot read"),
    "folder as tensors": (lambda pair: a_folder(pair.with_suffix(".safetensors")), "cannot read"),
    "folder as manifest": (lambda pair: a_folder(pair.with_suffix(".json")), "cannot read"),
    "tensors of another": (other_tensors, "checksum"),
    "facts of another": (other_facts, "checksum"),
    "newer format": (newer_format, "expected checkpoint format 1, got 2; .*another version"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_with_its_reason(pair: Path, damage: str) -> None:
    spoil, reason = DAMAGES[damage]
    spoil(pair)
    with pytest.raises(CheckpointError, match=reason) as told:
        checkpoint.load(pair)
    assert str(pair) in str(told.value)
    assert told.value.exit_code == 3


def test_a_hole_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "x", {"a": torch.ones(4096)}, {})
    with (tmp_path / "x.safetensors").open("r+b") as file:
        file.seek(4096)
        file.write(b"\0" * 4096)
    with pytest.raises(CheckpointError, match="checksum"):
        checkpoint.load(tmp_path / "x")


class TestResumeAuto:
    @pytest.mark.parametrize("damage", ["zero tensors", "facts of another", "tensors gone", "newer format"])
    def test_it_falls_back_says_so_and_goes_on(self, tmp_path: Path, damage: str) -> None:
        train(tmp_path / "whole")
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", interrupt=4)
        bad = newest(tmp_path / "cut")
        DAMAGES[damage][0](bad)
        bar = InterruptAfter()
        made = train(tmp_path / "cut", resume=True, progress=bar)
        assert made.resumed
        assert len(bar.notes) == 1
        assert bar.notes[0].startswith("skipped: ")
        assert bad.name in bar.notes[0]
        assert_same_result(tmp_path / "whole", tmp_path / "cut")
        aside = [file.name for file in bad.parent.glob("damaged-*")]
        assert f"damaged-{bad.name}.json" in aside  # nothing a person may want to look at is lost

    def test_it_refuses_when_all_are_damaged(self, tmp_path: Path) -> None:
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", interrupt=4)
        for file in (tmp_path / "cut" / CHECKPOINTS).glob("step-*.safetensors"):
            file.write_bytes(PAGE)
        before = sorted(file.name for file in (tmp_path / "cut" / CHECKPOINTS).iterdir())
        with pytest.raises(CheckpointError, match="all are damaged"):
            train(tmp_path / "cut", resume=True)
        assert sorted(file.name for file in (tmp_path / "cut" / CHECKPOINTS).iterdir()) == before

    def test_the_checkpoint_of_another_run_is_not_taken(self, tmp_path: Path) -> None:
        train(tmp_path / "whole")
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", interrupt=4)
        train(tmp_path / "other", seed=9)
        for file in files_of(newest(tmp_path / "other")):
            shutil.copy(file, tmp_path / "cut" / CHECKPOINTS / file.name)
        bar = InterruptAfter()
        train(tmp_path / "cut", resume=True, progress=bar)
        assert "another one's" in bar.notes[0]
        assert_same_result(tmp_path / "whole", tmp_path / "cut")

    def test_lost_rows_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", interrupt=4)
        (tmp_path / "cut" / "rows.jsonl").unlink()
        with pytest.raises(CheckpointError, match=r"expected at least the .* bytes"):
            train(tmp_path / "cut", resume=True)

    def test_other_versions_are_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", interrupt=4)
        bar = InterruptAfter()
        with monkeypatch.context() as patch:
            patch.setattr("torch.get_num_threads", lambda: 64)
            train(tmp_path / "cut", resume=True, progress=bar)
        assert "threads was 1, is 64" in bar.notes[0]


class TestWhatIsKept:
    def test_two_and_the_best(self, tmp_path: Path) -> None:
        train(tmp_path / "run", epochs=4)
        kept = sorted(file.name for file in (tmp_path / "run" / CHECKPOINTS).iterdir())
        assert len(kept) == 6
        assert [name for name in kept if name.startswith("step")] == [
            f"step-{step:010d}.{ending}" for step in (11, 12) for ending in ("json", "safetensors")
        ]

    def test_the_best_is_that_of_validation(self, tmp_path: Path) -> None:
        made = train(tmp_path / "run", epochs=6, scheme="erm")
        accuracies = [row["validation_accuracy"] for row in made.rows if row["kind"] == "epoch"]
        best = checkpoint.found_in(tmp_path / "run" / CHECKPOINTS, checkpoint.BEST)
        assert len(best) == 1
        tensors, facts = checkpoint.load(best[0])
        assert facts["validation_accuracy"] == max(accuracies) == made.position.best
        epochs = 1 + accuracies.index(max(accuracies))
        assert best[0].name == f"best-{3 * epochs:010d}"
        if epochs < 6:  # the weights of then, not the last ones
            last, _ = checkpoint.load(newest(tmp_path / "run"))
            assert not torch.equal(tensors["head.weight"], last["model.head.weight"])

    def test_the_old_one_is_deleted_after_the_new_one_is_seen_to_be_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for step in range(3):
            save(checkpoint.path_of(tmp_path, checkpoint.LAST, step))
        checkpoint.path_of(tmp_path, checkpoint.LAST, 2).with_suffix(".safetensors").write_bytes(PAGE)
        with pytest.raises(CheckpointError):
            checkpoint.prune(tmp_path)
        assert len(checkpoint.found_in(tmp_path, checkpoint.LAST)) == 3

    def test_a_file_is_durable_before_it_is_seen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []
        fsync, replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd))[1])
        monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(Path(b).suffix), replace(a, b))[1])
        save(tmp_path / "x")
        assert calls == ["fsync", ".safetensors", "fsync", "fsync", ".json", "fsync"]


def test_the_comparison_of_runs_sees_one_bit(tmp_path: Path) -> None:
    """The control of everything above that says "the same"."""
    train(tmp_path / "run")
    before = result_of(tmp_path / "run")
    tensors, facts = checkpoint.load(newest(tmp_path / "run"))
    tensors["model.head.weight"][0, 0] = torch.nextafter(
        tensors["model.head.weight"][0, 0], torch.tensor(9.0)
    )
    checkpoint.save(newest(tmp_path / "run"), tensors, facts)
    assert result_of(tmp_path / "run") != before
