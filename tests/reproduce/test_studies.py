"""Studies: every one there is builds at both scales; wrong ones are refused with all that is wrong."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from studies import TINY, write_tiny

from nfm.config.build import build_augment, build_method, build_model
from nfm.config.recipes import studies_folder
from nfm.config.schema import Facts
from nfm.errors import ConfigError, DataError, UsageError
from nfm.reproduce import figures
from nfm.reproduce.jobs import Job, jobs_of, placed
from nfm.reproduce.kinds import check_measure
from nfm.reproduce.measuring import MEASURES, suite_of
from nfm.reproduce.reading import find_study, overlaid, read_study, study_names
from nfm.reproduce.study import SCALES, Study

ASKED_FOR = {
    "toy-boundaries", "taylor", "cifar10-resnet18", "cifar100-wrn18", "imagenet-resnet50", "cifar10-vit", "ablation",
    "high-noise", "adversarial", "adversarial-training", "cifar10c", "features", "convergence", "discrepancies",
}  # fmt: skip
SHAPES = {"circles": (2,), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32), "npz": (3, 64, 64)}
CLASSES = {"circles": 2, "cifar100": 100, "imagenet": 1000}
EVERY = [(name, scale) for name in study_names() for scale in SCALES]


def facts_of(name: str) -> Facts:
    kind = name.partition(":")[0]
    shape = SHAPES.get(kind, (3, 224, 224))
    return Facts(shape, tuple(map(str, range(CLASSES.get(kind, 10)))), (0.5,) * shape[0], (0.2,) * shape[0])


def first_jobs(study: Study, scale: str) -> list[Job]:
    """Return one job an arm."""
    return list({job.line.arm.name: job for job in reversed(jobs_of(study, scale))}.values())


def test_all_are_there() -> None:
    assert set(study_names()) >= ASKED_FOR
    assert len(study_names()) >= 13
    assert sorted(study_names().values()) == sorted(studies_folder().glob("*.toml"))


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_it_builds(name: str, scale: str) -> None:
    study = find_study(name)
    jobs = first_jobs(study, scale)
    assert jobs
    built = set()
    for job in jobs:
        config = job.config
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "noise.mult: a level above 1")  # the paper's features: 1.2
            assert repr(build_method(config.method, seed=job.seed))
        build_augment(config.data)
        key = (config.model.name, str(config.model.options), config.data.name)
        if key not in built:  # networks are built once: ResNet-50 takes a second
            built.add(key)
            config.optimizer.build(build_model(config.model, facts_of(config.data.name), seed=0))
        assert job.measures
        for measure in job.measures:
            check_measure(measure)
        columns = [suite_of(suite) for suite in study.tables if not suite.startswith("corruptions")]
        if job.line.arm.published and columns:
            assert len(job.line.arm.published) in {len(cells) for cells in columns} | {7}
    assert study.scales[scale].time


@pytest.mark.parametrize("name", study_names())
def test_its_head_tells_where_how_and_how_long(name: str) -> None:
    head = find_study(name).head
    for word in ("source:", "command:", "hardware:", "time:", "expected:", "n:"):
        assert word in head
    assert f"nfm reproduce {name} " in head


# Typed from the paper's tables once more, apart from the recipes.
SPOT = [
    ("cifar10-resnet18", "erm", 0, 94.6), ("cifar10-resnet18", "cutmix", 3, 32.4),
    ("cifar10-resnet18", "nfm_authors", 6, 73.3), ("cifar10-resnet18", "noise_injection_authors", 2, 87.5),
    ("cifar10-resnet18", "puzzlemix", 4, 91.4), ("cifar10-resnet18", "label_smoothing", 5, 79.2),
    ("cifar100-wrn18", "puzzlemix_1200", 3, 6.2), ("cifar100-wrn18", "cutmix", 5, 58.0),
    ("cifar100-wrn18", "nfm_authors", 1, 80.1), ("imagenet-resnet50", "nfm_1", 6, 54.4),
    ("imagenet-resnet50", "manifold_02", 2, 70.3), ("cifar10-vit", "noisy_mixup_01", 3, 80.2),
    ("cifar10-vit", "nfm_2", 0, 88.4), ("ablation", "nfm_high", 6, 44.6), ("ablation", "noise", 0, 78.1),
    ("toy-boundaries", "weight_decay", 0, 88.0), ("toy-boundaries", "nfm", 0, 90.0),
]  # fmt: skip


@pytest.mark.parametrize(("study", "arm", "column", "number"), SPOT)
def test_published_numbers_are_the_papers(study: str, arm: str, column: int, number: float) -> None:
    published = {line.arm.name: line.arm.published for line in find_study(study).full}
    assert published[arm][column] == number


def test_known_errors_of_the_paper_are_marked() -> None:
    arms = {line.arm.name: line.arm for line in find_study("cifar10-resnet18").full}
    assert set(arms["mixup"].errors) == {"5", "6"}
    assert arms["mixup"].published[5:] == arms["erm"].published[5:]
    other = {line.arm.name: line.arm for line in find_study("cifar100-wrn18").full}
    assert "row" in arms["noisy_mixup_authors"].errors
    assert arms["noisy_mixup_authors"].published == other["noisy_mixup_authors"].published
    assert "row" not in other["noisy_mixup_authors"].errors


def test_small_cifar10_is_what_was_asked_for() -> None:
    jobs = jobs_of(find_study("cifar10-resnet18"), "small")
    seeds: dict[str, int] = {}
    for job in jobs:
        seeds[job.line.arm.name] = seeds.get(job.line.arm.name, 0) + 1
    thrice = {
        "erm", "noise_injection", "label_smoothing", "mixup", "cutmix", "manifold_mixup", "noisy_mixup", "nfm",
        "nfm_authors", "nfm_authors_high", "noise_injection_authors", "noisy_mixup_authors",
    }  # fmt: skip
    assert {name for name, count in seeds.items() if count == 3} == thrice
    assert {"puzzlemix", "noisymix", "adversarial", "adversarial_nfm"} <= {
        n for n, c in seeds.items() if c == 1
    }
    order = [job.seed for job in jobs]
    assert order == sorted(order)
    shared = {repr((job.config.optimizer, job.config.schedule, job.config.data)) for job in jobs}
    assert len(shared) == 1


def test_studies_share_runs() -> None:
    names = {study: {job.name for job in jobs_of(find_study(study), "small")} for study in ASKED_FOR}
    assert names["cifar10c"] <= names["cifar10-resnet18"]
    assert names["adversarial"] <= names["cifar10-resnet18"] | names["cifar100-wrn18"]
    assert names["convergence"] <= names["cifar100-wrn18"]
    assert len(names["ablation"] & names["cifar100-wrn18"]) == 5
    assert not names["discrepancies"] & names["cifar10-resnet18"]


def test_a_run_is_known_by_what_changes_its_result(tmp_path: Path) -> None:
    def key(text: str) -> str:
        return jobs_of(read_study(write_tiny(tmp_path, text)), "small")[0].key

    assert key(TINY) == key(TINY + "\n# nothing\n")
    assert key(TINY) == key(TINY.replace("epochs = 2", "epochs = 2\nworkers = 1"))
    assert key(TINY) != key(TINY.replace("epochs = 2", "epochs = 3"))
    assert key(TINY) != key(TINY.replace("watch = 20", "watch = 21"))


def test_seeds_and_arms_can_be_chosen(tmp_path: Path) -> None:
    study = read_study(write_tiny(tmp_path))
    told = [(job.line.arm.name, job.seed) for job in jobs_of(study, "small")]
    assert told == [("erm", 0), ("nfm", 0), ("erm", 1)]
    assert [job.line.arm.name for job in jobs_of(study, "small", seeds=[1])] == ["erm"]
    assert [job.line.arm.name for job in jobs_of(study, "small", seeds=[7])] == ["erm", "nfm"]
    assert [job.seed for job in jobs_of(study, "small", arms=["nfm"])] == [0]
    assert [job.seed for job in jobs_of(study, "small", arms=["nfm"], seeds=[1])] == [1]
    assert jobs_of(study, "small", arms=["nfm"])[0].config.train.epochs == 1
    with pytest.raises(UsageError, match="no arm 'nmf' in tiny; it has: erm, nfm"):
        jobs_of(study, "small", arms=["nmf"])
    with pytest.raises(
        UsageError, match=r"no arm 'puzzlemix_1200' in .* \(it is run at --scale full\); it has: erm"
    ):
        jobs_of(find_study("cifar100-wrn18"), "small", arms=["puzzlemix_1200"])
    with pytest.raises(UsageError, match="did you mean 'cifar10-resnet18:erm' or 'cifar100-wrn18:erm'"):
        jobs_of(find_study("adversarial"), "small", arms=["erm"])


def test_settings_make_arms_to_choose_among() -> None:
    arms = [line.arm for line in find_study("toy-boundaries").small]
    assert sum(not arm.of for arm in arms) == 10
    assert {arm.of for arm in arms} >= {"erm", "nfm", "nfm_dropout"}
    assert all(arm.published == () and arm.note for arm in arms if arm.of)


def test_wrong_studies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no study 'cifar10-resnet8'; .*did you mean 'cifar10-resnet18'"):
        find_study("cifar10-resnet8")
    wrong = TINY.replace('title = "Tiny"', "titel = 1").replace("time = ", "tiem = ") + "\nscheme2 = 1\n"
    with pytest.raises(ConfigError) as told:
        read_study(write_tiny(tmp_path, wrong))
    assert re.search(r"unknown key 'titel'.*did you mean 'title'", str(told.value))
    assert "arms[1].scheme2" in str(told.value)
    with pytest.raises(
        UsageError, match=r"--scale: expected one of small, full, got 'smal' .did you mean 'small'"
    ):
        find_study("taylor").lines("smal")
    taking = 'title = "T"\n[[take]]\nstudy = "cifar10-resnet18"\narms = ["ermm"]\n'
    with pytest.raises(ConfigError, match=r"no arm 'ermm' in cifar10-resnet18.*did you mean 'erm'"):
        read_study(write_tiny(tmp_path, taking))


def test_a_wrong_arm_or_measure_is_refused(tmp_path: Path) -> None:
    study = read_study(write_tiny(tmp_path, TINY.replace('scheme = "nfm"', 'scheme = "nmf"')))
    with pytest.raises(ConfigError, match=r"arm nfm: .*unknown scheme 'nmf'"):
        jobs_of(study, "small")
    wrong = TINY.replace('suite = "cifar"\nprotocol = "pixel"', 'suite = "cifr"\nprotocol = "pixel"')
    with pytest.raises(ConfigError, match=r"small.measures\[0\]: unknown suite 'cifr'.*did you mean 'cifar'"):
        read_study(write_tiny(tmp_path, wrong))
    with pytest.raises(ConfigError, match=r"small.measures\[0\]: unknown protocol 'pixl'"):
        read_study(write_tiny(tmp_path, TINY.replace('"pixel"', '"pixl"')))


def test_a_study_upon_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path, 'title = "S"\nbase = "self.toml"\n', "self")
    with pytest.raises(ConfigError, match=r"builds upon itself: self -> self"):
        find_study("self.toml")
    write_tiny(tmp_path, 'title = "A"\nbase = "b.toml"\n', "a")
    write_tiny(tmp_path, 'title = "B"\n[[take]]\nstudy = "a.toml"\narms = ["erm"]\n', "b")
    with pytest.raises(ConfigError, match=r"builds upon itself: a -> b -> a"):
        find_study("a.toml")
    write_tiny(tmp_path)
    write_tiny(
        tmp_path, 'title = "C"\nbase = "tiny.toml"\n[[take]]\nstudy = "tiny.toml"\narms = ["erm"]\n', "c"
    )
    assert [line.arm.name for line in find_study("c.toml").small] == ["erm"]


def test_two_arms_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = TINY.replace('name = "nfm"\nscheme', 'name = "erm"\nscheme')
    with pytest.raises(ConfigError, match=r"tiny.toml: small: two arms are called 'erm'"):
        read_study(write_tiny(tmp_path, twice))
    apart = twice.replace('label = "Baseline"', 'scales = ["full"]').replace(
        "seeds = 1", 'scales = ["small"]'
    )
    assert [line.arm.scheme for line in read_study(write_tiny(tmp_path, apart)).small] == ["nfm"]


def test_missing_sample_images_are_told_with_the_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NFM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    job = jobs_of(find_study("imagenet-resnet50"), "small")[0]
    told = r"imagenette224_1500.npz: not in .*--data-root or NFM_DATA; it needs: .*pack_images"
    with pytest.raises(DataError, match=told):
        placed(job, root=str(tmp_path), download=False)
    (tmp_path / "imagenette224_1500.npz").write_bytes(b"")
    found = placed(job, root=str(tmp_path), download=False)
    assert found.data.name == f"npz:{tmp_path / 'imagenette224_1500.npz'}"


def test_overlaying_leaves_both_alone() -> None:
    under, over = {"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4}
    assert overlaid(under, over) == {"a": {"b": 3, "c": 2}, "d": 4}
    assert under == {"a": {"b": 1, "c": 2}}


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_its_figures_are_made_of_what_it_measures(
    name: str, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for drawing in ("curves", "corruption_bars", "accuracy_dots"):
        monkeypatch.setattr(figures, drawing, lambda rows, title, **_: (title, len(rows)))
    study = find_study(name)
    rows = [
        {"kind": "cell", "measure": measure.key, "perturbation": cell.key[0], "level": cell.key[1], "n": 1,
         "data": "data", "protocol": measure.protocol}
        for measure in {measure for line in study.lines(scale) for measure in line.scale.measures}
        if measure.suite not in MEASURES
        for cell in suite_of(measure.suite)
    ]  # fmt: skip
    for kind in {"curves", "attacks", "corruptions", "dots"} & set(study.figures):
        made = list(figures.FIGURES[kind]("title", rows))
        assert made
        assert all(count > 0 for _, (_, count) in made)
        assert not list(figures.FIGURES[kind]("title", []))
        assert kind != "dots" or len(made) == 1
        assert kind != "corruptions" or [count for _, (_, count) in made] == [19 * 5, 6 * 5]


def test_measures_of_their_own_are_no_suites() -> None:
    assert set(MEASURES) == {"circles", "features", "taylor"}
    with pytest.raises(UsageError):
        suite_of("circles")


def test_a_base_is_looked_for_beside_its_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    write_tiny(tmp_path / "there")
    path = write_tiny(tmp_path / "there", 'title = "On it"\nbase = "tiny.toml"\n', "upon")
    monkeypatch.chdir(tmp_path / "here")
    assert read_study(path).scales["small"].seeds == (0, 1)
    path.rename(tmp_path / "upon.toml")
    with pytest.raises(UsageError, match=r"no study 'tiny.toml'"):
        read_study(tmp_path / "upon.toml")
