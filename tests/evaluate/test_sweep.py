"""The sweep: same predictions in any batching, refusals, flags, saving and going on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nfm.data.examples import Examples
from nfm.errors import DataError, NumericalError, ShapeError, UsageError
from nfm.evaluate import Cell, Clean, Report, SaltAndPepper, Speckle, WhiteNoise, cells, evaluate, load_report
from nfm.evaluate.metrics import wilson_interval
from nfm.randomness import torch_generator

SUITE = [Cell(Clean(), 0.0), *cells(WhiteNoise(), [0, 0.2, 0.5]), *cells(SaltAndPepper(), [0.1])]


class Nearest(nn.Module):
    """Tells which of `classes` fixed patterns is nearest: an honest little classifier."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        patterns = torch.rand(classes, 1, 6, 6, generator=torch_generator(7))
        self.head = nn.Linear(36, classes)
        with torch.no_grad():
            self.head.weight.copy_(patterns.flatten(1) * 10)
            self.head.bias.copy_(-5 * patterns.flatten(1).square().sum(1))
        self.dropout = nn.Dropout(0.5)
        self.patterns = patterns

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(x.flatten(1)))


def make(n: int = 1000) -> tuple[Nearest, Examples]:
    model = Nearest()
    labels = torch.arange(n) % 4
    grain = torch.rand(n, 1, 6, 6, generator=torch_generator(8)) - 0.5
    images = ((model.patterns[labels] + grain).clamp(0, 1) * 255).to(torch.uint8)
    return model, Examples(images, labels, torch.arange(n) + 50_000)


@pytest.fixture(scope="module")
def report() -> Report:
    return evaluate(*make(), SUITE)


def test_rows(report: Report) -> None:
    assert [(row["perturbation"], row["level"]) for row in report.rows] == [cell.key for cell in SUITE]
    for row in report.rows:
        outcomes = report.outcomes[row["perturbation"], row["level"]]
        assert row["n"] == len(outcomes.correct) == 1000
        assert row["accuracy"] == outcomes.correct.mean()
        assert (row["lo"], row["hi"]) == wilson_interval(int(outcomes.correct.sum()), 1000)
        assert row["flags"] == []
        assert (row["protocol"], row["seed"], row["level_pixel"]) == ("pixel", 0, row["level"])
    assert report.row("clean", 0)["accuracy"] > 0.9
    assert report.row("white_noise", 0.5)["accuracy"] < report.row("white_noise", 0.2)["accuracy"]
    assert report.row("clean", 0)["accuracy"] == report.row("white_noise", 0)["accuracy"]


def test_outcomes_are_a_plain_loop(report: Report) -> None:
    model, examples = make()
    model.eval()
    for cell in SUITE:
        x = cell.perturbation(examples.images.float() / 255, examples.ids, cell.level, seed=0)
        with torch.no_grad():
            probabilities = torch.softmax(model(x).double(), 1)
        true = probabilities[torch.arange(1000), examples.labels]
        found = report.outcomes[cell.key]
        assert np.array_equal(found.predicted, probabilities.argmax(1).numpy())
        assert np.allclose(found.nll, -true.log().numpy(), atol=1e-5)
        one_hot = nn.functional.one_hot(examples.labels, 4)
        assert np.allclose(found.brier, (probabilities - one_hot).square().sum(1).numpy(), atol=1e-5)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_batch_size_and_order_change_no_prediction(report: Report, size: int) -> None:
    model, examples = make()
    order = torch.randperm(1000, generator=torch_generator(0))
    found = evaluate(model, examples.subset(order), SUITE[2:3], batch_size=size)
    assert np.array_equal(
        found.outcomes["white_noise", 0.2].predicted, report.outcomes["white_noise", 0.2].predicted[order]
    )
    assert found.identity == report.identity


def test_the_seed_changes_predictions(report: Report) -> None:
    found = evaluate(*make(), SUITE[2:3], seed=1)
    assert not np.array_equal(
        found.outcomes["white_noise", 0.2].predicted, report.outcomes["white_noise", 0.2].predicted
    )


def test_modes_and_generators_are_left_alone() -> None:
    model, examples = make(20)
    model.train()
    model.head.eval()
    state = torch.get_rng_state()
    evaluate(model, examples, SUITE)
    assert (model.training, model.head.training, model.dropout.training) == (True, False, True)
    assert torch.equal(torch.get_rng_state(), state)


def test_modes_come_back_after_an_error() -> None:
    model, examples = make(20)
    model.head.bias.data[:] = torch.nan
    with pytest.raises(UsageError, match="NaN"):
        evaluate(model, examples, SUITE)
    assert model.training


class Changed(nn.Module):
    """A model with a fault at its output."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.inner, self.fault = Nearest(), fault
        self.generator = torch_generator(0)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.inner(x)
        if self.fault == "stochastic model":
            return logits + 0.1 * torch.randn(logits.shape, generator=self.generator)
        if self.fault == "softmax output":
            return logits.softmax(1)
        if self.fault == "NaN logits":
            return logits * torch.nan
        return logits - logits.mean(0)  # output depends on the batch


@pytest.mark.parametrize(
    "fault", ["stochastic model", "softmax output", "NaN logits", "output depends on the batch"]
)
def test_a_faulty_model_is_refused_or_flagged(fault: str) -> None:
    _, examples = make(50)
    with pytest.raises(UsageError, match=f"{fault}.*force=True"):
        evaluate(Changed(fault), examples, SUITE)
    forced = evaluate(Changed(fault), examples, SUITE, force=True)
    assert all(fault in row["flags"] for row in forced.rows)
    assert fault in forced.table()


def test_logits_that_turn_nan_under_noise_stop_the_measurement() -> None:
    _, examples = make(50)
    model = Nearest()

    def fragile(x: Tensor) -> Tensor:
        return model.eval()(x) / (x.amax((1, 2, 3), keepdim=True).flatten(1) < 1).float().log().exp()

    clean = Examples((examples.images // 2), examples.labels, examples.ids)
    with pytest.raises(NumericalError, match=r"salt_and_pepper 0\.5.*not finite"):
        evaluate(fragile, clean, cells(SaltAndPepper(), [0.5]))


def test_bad_input_is_refused_before_measuring() -> None:
    model, examples = make(50)
    none = examples.subset(torch.empty(0, dtype=torch.int64))
    cases = [
        (DataError, "empty", lambda: evaluate(model, none, SUITE)),
        (
            DataError,
            "50 ids",
            lambda: evaluate(model, Examples(examples.images, examples.labels, examples.ids * 0)),
        ),
        (DataError, "int64", lambda: evaluate(model, examples.relabel(torch.rand(50, 4)))),
        (DataError, "0 to 3", lambda: evaluate(model, examples.relabel(examples.labels + 1))),
        (ShapeError, "10 outputs", lambda: evaluate(model, examples, classes=10)),
        (ShapeError, "expected logits", lambda: evaluate(lambda x: x, examples)),
        (UsageError, "at least one cell", lambda: evaluate(model, examples, [])),
        (UsageError, "did you mean 'cifar'", lambda: evaluate(model, examples, "cifr")),
        (UsageError, "batch_size", lambda: evaluate(model, examples, batch_size=0)),
        (UsageError, "seed", lambda: evaluate(model, examples, seed=-1)),
        (
            UsageError,
            "authors",
            lambda: evaluate(model, examples, cells(Speckle(), [0.1]), protocol="authors"),
        ),
    ]
    for kind, message, refused in cases:
        with pytest.raises(kind, match=message):
            refused()


def test_flags_of_few_examples_and_of_the_authors_protocol() -> None:
    model, examples = make(30)
    coloured = Examples(examples.images.expand(-1, 3, -1, -1), examples.labels, examples.ids)
    report = evaluate(lambda x: model.eval()(x[:, :1]), coloured, "cifar", protocol="authors")
    assert report.row("white_noise", 0.1)["flags"] == ["n<1000", "protocol authors", "noise not clipped"]
    assert report.row("white_noise", 0.1)["level_pixel"] == pytest.approx(0.0201, abs=1e-4)


def test_saving_and_loading(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "run")
    report.save(tmp_path / "run")  # again: nothing is written twice
    loaded = load_report(tmp_path / "run")
    assert loaded.rows == report.rows
    assert loaded.identity == report.identity
    for key, outcomes in report.outcomes.items():
        for name, array in outcomes.arrays().items():
            assert np.array_equal(loaded.outcomes[key].arrays()[name], array)


class Counted:
    """Counts what it is asked; its weights are told by its logits."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.seen = model.eval(), 0

    def __call__(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return self.model(x)


def test_finished_cells_are_not_measured_again(report: Report, tmp_path: Path) -> None:
    model, examples = make()
    counted = Counted(model)
    told: list[int] = []

    def stop(label: str, done: int, total: int) -> None:
        told.append(done)
        if label == "white_noise 0.5":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(counted, examples, SUITE, save_to=tmp_path, progress=stop)
    assert [cell.key for cell in SUITE[:3]] == list(load_report(tmp_path).outcomes)
    counted.seen = 0
    finished = evaluate(counted, examples, SUITE, save_to=tmp_path, resume_from=tmp_path)
    assert 2000 <= counted.seen < 2200  # two cells and the checks
    for key, outcomes in report.outcomes.items():
        assert np.array_equal(finished.outcomes[key].predicted, outcomes.predicted)
    assert load_report(tmp_path).rows == finished.rows


def test_a_foreign_directory_is_refused_with_the_differences(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path)
    model, examples = make()
    with pytest.raises(UsageError, match=r"seed: 0 there, 1 here"):
        evaluate(model, examples, SUITE, seed=1, resume_from=tmp_path)
    model.head.bias.data[0] += 1
    with pytest.raises(UsageError, match=r"model: '\w+' there"):
        evaluate(model, examples, SUITE, save_to=tmp_path)
    with pytest.raises(DataError, match=r"identity\.json"):
        evaluate(model, examples, SUITE, resume_from=tmp_path / "nowhere")


def test_a_torn_outcome_file_is_refused(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path)
    file = tmp_path / "outcomes" / "white_noise-0.2.npz"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match=r"white_noise-0\.2\.npz"):
        load_report(tmp_path)


def test_table_and_tags() -> None:
    model, examples = make(30)
    report = evaluate(model, examples, SUITE, tags={"scheme": "nfm", "train_seed": 3})
    assert all((row["scheme"], row["train_seed"]) == ("nfm", 3) for row in report.rows)
    lines = report.table().splitlines()
    assert len(lines) == 1 + len(SUITE)
    assert "n<1000" in lines[1]
    with pytest.raises(UsageError, match="it has: clean 0"):
        report.row("blur", 1)


def test_frame(report: Report) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert isinstance(report.to_frame(), pandas.DataFrame)


def test_a_held_out_set_gives_a_temperature() -> None:
    model, examples = make(1200)
    held_out, measured = examples.subset(torch.arange(600)), examples.subset(torch.arange(600, 1200))
    report = evaluate(model, measured, SUITE, held_out=held_out)
    plain = evaluate(model, measured, SUITE)
    for row, other in zip(report.rows, plain.rows, strict=True):
        assert row["temperature"] > 0
        assert {key: row[key] for key in ("accuracy", "ece", "nll")} == {
            key: other[key] for key in ("accuracy", "ece", "nll")
        }
        assert other["temperature"] is None
        assert "nll_scaled" not in other
    assert report.row("clean", 0)["nll_scaled"] < report.row("clean", 0)["nll"]
