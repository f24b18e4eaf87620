"""What a run writes beside its weights: rows, times with provenance, CSV, TensorBoard, a picture."""

from __future__ import annotations

import csv
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from nfm.data import Batches
from nfm.data.examples import Examples
from nfm.errors import EnvironmentProblem
from nfm.method.presets import preset
from nfm.plots.training import training_curves
from nfm.results import provenance, read_rows
from nfm.train.export import write_csv, write_tensorboard
from nfm.train.fit import PROBE, probe_of
from running import digits, network, rows_of, train

PNG = b"\x89PNG\r\n\x1a\n"


def assert_png(path: Path) -> tuple[int, int]:
    """Read every chunk with its checksum; return the size of the picture."""
    content = path.read_bytes()
    assert content.startswith(PNG)
    place, names, size = len(PNG), [], (0, 0)
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        name, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", content[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(name + body)
        size = struct.unpack(">II", body[:8]) if name == b"IHDR" else size
        names.append(name)
        place += 12 + length
    assert names[0] == b"IHDR"
    assert names[-1] == b"IEND"
    return size


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "run"
    train(out, scheme="nfm", epochs=3, log_every=2)
    return out


def test_rows_of_steps_tell_the_draw(run: Path) -> None:
    rows = rows_of(run, "step")
    assert [row["step"] for row in rows] == [0, 2, 4, 6, 8]
    assert set(rows[0]) == {"kind", "epoch", "step", "loss", "lr", "grad_norm", "site", "weight"}
    for row in rows:
        choice = preset("nfm").choose(("input", "hidden1", "hidden2", "hidden3"), step=row["step"])
        assert (row["site"], row["weight"]) == (choice.site, choice.arguments.numbers.weight)


def test_rows_of_epochs_tell_what_was_measured(tmp_path: Path) -> None:
    data = digits()
    model = network(data, "small_conv")
    made = train(tmp_path / "run", model=model, data=data, epochs=2, scheme="erm")
    row = rows_of(tmp_path / "run", "epoch")[-1]
    model.eval()
    with torch.no_grad():
        for part, name in ((data.train, "probe"), (data.validation, "validation")):
            logits = model(next(iter(Batches(part, batch_size=999, shuffle=False).epoch(0))).x)
            right = (logits.argmax(1) == part.labels).double().mean().item()
            assert row[f"{name}_accuracy"] == right
    steps = [step["loss"] for step in rows_of(tmp_path / "run", "step")][-3:]
    assert row["train_loss"] == pytest.approx(np.mean(steps))
    assert made.rows == list(read_rows(tmp_path / "run" / "rows.jsonl"))


def test_the_probe_is_of_all_classes_where_the_examples_are_sorted() -> None:
    count = 4 * PROBE
    labels = torch.arange(count) * 10 // count
    examples = Examples(torch.zeros(count, 1, 2, 2, dtype=torch.uint8), labels, torch.arange(count))
    assert labels[:PROBE].unique().numel() == 3
    found = probe_of(examples).labels.bincount(minlength=10)
    assert (int(found.sum()), int(found.max() - found.min())) == (PROBE, 1)


def test_without_validation_nothing_is_told_of_it(tmp_path: Path) -> None:
    train(tmp_path / "run", data=digits(48, validation=0), epochs=1)
    assert not any("validation" in name for name in rows_of(tmp_path / "run", "epoch")[0])


def test_times_hold_the_provenance(run: Path) -> None:
    rows = list(read_rows(run / "times.jsonl"))
    assert rows[-1]["provenance"] == provenance()
    assert rows[-1]["examples"] == 3 * 48
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert {"torch", "numpy", "python", "threads", "commit", "machine"} <= set(provenance())


def test_csv_holds_the_rows(run: Path, tmp_path: Path) -> None:
    epochs = rows_of(run, "epoch")
    write_csv(epochs, tmp_path / "epochs.csv")
    with (tmp_path / "epochs.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [float(row["train_loss"]) for row in found] == [row["train_loss"] for row in epochs]
    assert list(found[0]) == list(epochs[0])
    write_csv([], tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text().strip() == ""


def test_csv_of_rows_with_other_columns(tmp_path: Path) -> None:
    write_csv([{"a": 1}, {"b": 'x,"y"\n'}], tmp_path / "odd.csv")
    with (tmp_path / "odd.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{"a": "1", "b": ""}, {"a": "", "b": 'x,"y"\n'}]


def test_tensorboard_holds_the_rows(run: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write_tensorboard(list(read_rows(run / "rows.jsonl")), tmp_path / "board")
    events = reader.EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    found = [event.value for event in events.Scalars("epoch/train_loss")]
    assert found == pytest.approx([row["train_loss"] for row in rows_of(run, "epoch")], rel=1e-6)


def test_without_tensorboard_it_is_told_what_to_install(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(EnvironmentProblem, match=r"tensorboard.*noisy-feature-mixup\[track\]"):
        write_tensorboard([], tmp_path / "board")


def test_the_picture_is_a_whole_png_and_shows_the_rows(run: Path, tmp_path: Path) -> None:
    epochs = rows_of(run, "epoch")
    width, height = assert_png(training_curves(epochs, tmp_path / "one.png"))
    assert width > height > 100
    changed = [row | {"train_loss": 2 * row["train_loss"]} for row in epochs]
    training_curves(changed, tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()
    training_curves(epochs, tmp_path / "three.png")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "three.png").read_bytes()


def test_a_damaged_png_is_seen(run: Path, tmp_path: Path) -> None:
    """The control of the check of pictures."""
    path = training_curves(rows_of(run, "epoch"), tmp_path / "one.png")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(AssertionError):
        assert_png(path)
