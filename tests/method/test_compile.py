"""torch.compile of whole networks, one graph: mixing happens exactly when asked, at every site."""

from __future__ import annotations

import functools
import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import nfm
from comparing import assert_close, assert_different, assert_same, flat, gradients
from nets import ConvNet, Mlp, StructuredNet, TwoInputs, batch, build
from nfm.errors import AttachError, SiteError

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def method(**settings) -> nfm.NoisyFeatureMixup:
    return nfm.NoisyFeatureMixup(**({"sites": ["first"], "seed": 3} | settings))


def container() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))


def compiled(net: nn.Module) -> tuple[nn.Module, CompileCounterWithBackend]:
    """Return the network compiled in one graph, and the counter of its graphs."""
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(net, backend=counter, fullgraph=True), counter


def steps(net: nn.Module, forward: nn.Module, mixer: nfm.Mixer, batches, *, evaluate: bool = True) -> list:
    """Return loss, output and gradients of each step, and the outputs of the evaluations between them."""
    found = []
    for x, y in batches:
        output = forward(x)
        loss = mixer.loss(output, y)
        found.append([loss.detach(), output.detach(), *gradients(loss, net)])
        if evaluate:
            with torch.no_grad():
                found.append([forward(x)])
                net.eval()
                found.append([forward(x)])
                net.train()
    return found


def assert_same_steps(make, batches, sites, **settings) -> int:
    """Compare compiled and eager steps to the bit; return the number of graphs."""
    eager, net = build(make), build(make)
    with (
        nfm.attach(eager, method(sites=sites, **settings)) as one,
        nfm.attach(net, method(sites=sites, **settings)) as two,
    ):
        forward, counter = compiled(net)
        expected, found = steps(eager, eager, one, batches), steps(net, forward, two, batches)
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert len(ours) == len(theirs), step
        assert_same(ours, theirs)
    assert_same(list(net.state_dict().values()), list(eager.state_dict().values()))
    return counter.frame_count


def test_compiled_equals_eager_to_the_bit_at_every_site() -> None:
    batches = [batch(6, 4, seed=step) for step in range(12)]
    graphs = assert_same_steps(Mlp, batches, Mlp.sites)
    # One a site and one without gradients; at "input" the mixing itself is a small graph of its own.
    assert graphs == len(Mlp.sites) + 1 + 1


def test_one_weight_a_sample() -> None:
    assert (
        assert_same_steps(Mlp, [batch(6, 4, seed=step) for step in range(3)], ["first"], weights="sample")
        == 2
    )


def test_batch_normalisation_and_convolutions() -> None:
    """Evaluation is a graph of its own where modules behave differently in it."""
    batches = [batch(6, 3, 5, 5, seed=step) for step in range(4)]
    assert assert_same_steps(ConvNet, batches, ["first"]) == 1 + 2


def test_a_container_is_one_graph_with_its_own_hooks() -> None:
    batches = [batch(6, 4, seed=step) for step in range(6)]
    assert assert_same_steps(container, batches, ["input", "1"]) == 2 + 2


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_sites_that_return_structures(kind: str) -> None:
    part = "feature" if kind == "dict" else "0"
    batches = [batch(6, 4, seed=step) for step in range(3)]
    assert assert_same_steps(lambda: StructuredNet(kind), batches, [f"encoder:{part}"]) == 2


def test_several_inputs() -> None:
    eager, net = build(TwoInputs), build(TwoInputs)
    settings = {"sites": ["input"], "inputs": ["image", "depth"]}
    with nfm.attach(eager, method(**settings)) as one, nfm.attach(net, method(**settings)) as two:
        forward, _ = compiled(net)
        for step in range(3):
            (image, y), (depth, _) = batch(6, 4, seed=step), batch(6, 2, seed=step)
            expected = gradients(one.loss(eager(image, depth=depth), y), eager)
            assert_same(gradients(two.loss(forward(image, depth=depth), y), net), expected)


def test_mixing_happens_iff_asked_over_many_steps() -> None:
    """Nothing is recompiled after every site was visited once."""
    sites, (x, y) = ["stem", "second"], batch(6, 4)
    net, plain = build(Mlp), build(Mlp)
    with nfm.attach(net, method(sites=sites)) as mixer:
        forward, counter = compiled(net)
        seen = []
        for step in range(200):
            draw = mixer.draw_of(forward(x), y)
            seen.append(draw.site)
            assert draw.step == step
            if step % 10 == 0:
                with torch.no_grad():
                    assert torch.equal(forward(x), plain(x))
    assert counter.frame_count == len(sites) + 1
    assert seen == [method().choose(sites, step=step).site for step in range(200)]


def visit_all(net: nn.Module, sites: list[str]) -> int:
    """Train a compiled network until every site was visited; return the number of graphs."""
    (x, y), left = batch(5, 4), set(sites)
    with nfm.attach(net, method(sites=sites)) as mixer:
        forward, counter = compiled(net)
        while left:
            left.discard(mixer.draw_of(forward(x), y).site)
    return counter.frame_count


def test_the_compilers_limit_is_raised_to_fit_the_sites() -> None:
    layers = functools.partial(nn.Sequential, *[nn.Linear(4, 4) for _ in range(4)])
    sites = ["0", "1", "2", "3"]
    with torch._dynamo.config.patch(recompile_limit=2):
        assert visit_all(build(layers), sites) == 4
        assert torch._dynamo.config.recompile_limit >= 4


def test_without_that_the_limit_is_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr("nfm.method.attach._allow_graphs", lambda sites: None)
    layers = functools.partial(nn.Sequential, *[nn.Linear(4, 4) for _ in range(4)])
    with torch._dynamo.config.patch(recompile_limit=2), pytest.raises(Exception, match=r"limit|fullgraph"):
        visit_all(build(layers), ["0", "1", "2", "3"])


@pytest.mark.slow
def test_more_sites_than_the_compilers_default_limit() -> None:
    layers = functools.partial(nn.Sequential, *[nn.Linear(4, 4) for _ in range(11)])
    assert visit_all(build(layers), [str(index) for index in range(11)]) == 11


def test_batches_of_many_sizes() -> None:
    """After a few sizes the graph fits them all; a batch of 1 is a class of its own."""
    eager, net = build(Mlp), build(Mlp)
    with nfm.attach(eager, method()) as one, nfm.attach(net, method()) as two:
        forward, counter = compiled(net)
        graphs = []
        for size in (6, 5, 7, 3, 9, 6, 4, 1):
            x, y = batch(size, 4, seed=size)
            expected = gradients(one.loss(eager(x), y), eager)
            assert_same(gradients(two.loss(forward(x), y), net), expected)
            graphs.append(counter.frame_count)
    assert len(set(graphs[2:7])) == 1
    assert graphs[-1] <= 4


def test_any_number_of_losses_and_derived_outputs() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        forward, _ = compiled(net)
        for step in range(3):
            output = forward(x)
            first = mixer.loss(output * 1.0, y)
            assert_same([first, first], [mixer.loss(output, y), mixer.loss({"logits": output}["logits"], y)])
            assert mixer.draw_of(output.log_softmax(1), y).step == step
            first.backward()


def test_the_functional_form_over_an_attached_compiled_network() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    scheme = method()
    with nfm.attach(net, scheme):
        forward, _ = compiled(net)
        for step in range(3):
            outcome = method()(forward, x, y, step=step)
            reference = build(Mlp)
            expected = method()(reference, x, y, step=step)
            assert_same([outcome.loss], [expected.loss])
            assert_same(gradients(outcome.loss, net), gradients(expected.loss, reference))


def test_compiling_in_place() -> None:
    eager, net = build(Mlp), build(Mlp)
    batches = [batch(6, 4, seed=step) for step in range(3)]
    with nfm.attach(eager, method()) as one, nfm.attach(net, method()) as two:
        net.compile(backend="aot_eager", fullgraph=True)
        for ours, theirs in zip(
            steps(net, net, two, batches), steps(eager, eager, one, batches), strict=True
        ):
            assert_same(ours, theirs)


def test_two_networks_at_once() -> None:
    nets = [build(Mlp, seed=seed) for seed in (0, 1)]
    references = [build(Mlp, seed=seed) for seed in (0, 1)]
    mixers = [nfm.attach(net, method(seed=seed)) for seed, net in enumerate(nets)]
    forwards = [compiled(net)[0] for net in nets]
    for step in range(3):
        x, y = batch(6, 4, seed=step)
        outputs = [forward(x) for forward in forwards]
        for seed in (1, 0):
            expected = method(seed=seed)(references[seed], x, y, step=step).loss
            assert_same([mixers[seed].loss(outputs[seed], y)], [expected])


def test_attaching_to_a_compiled_network_is_refused() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    forward, _ = compiled(net)
    with pytest.raises(AttachError, match=r"compiled already.*attach\(model\) first, then torch\.compile"):
        nfm.attach(forward, method())
    with pytest.raises(AttachError, match="was compiled before the method was attached"):
        method()(forward, x, y)
    inplace = build(Mlp)
    inplace.compile(backend="aot_eager")
    with pytest.raises(AttachError, match="compiled already"):
        nfm.attach(inplace, method())
    partly = build(Mlp)
    partly.first = torch.compile(partly.first, backend="aot_eager")
    with pytest.raises(AttachError, match="compiled already"):
        nfm.attach(partly, method())


def test_a_compiled_part_hides_the_sites_inside_it_and_no_others() -> None:
    net, plain, (x, y) = build(Mlp), build(Mlp), batch(6, 4)
    net.second.compile(backend="eager")
    for site in ("input", "stem", "first"):
        made, expected = (nfm.preset("nfm", sites=site, seed=3)(model, x, y) for model in (net, plain))
        assert_same([made.loss], [expected.loss])
        assert not torch.equal(made.loss, F.cross_entropy(plain(x), y))
    for site in ("second", "second.0"):
        with pytest.raises(AttachError, match="was compiled before the method was attached"):
            nfm.preset("nfm", sites=site, seed=3)(net, x, y)


def test_a_site_shared_with_a_compiled_part_is_refused() -> None:
    class Shared(Mlp):
        def __init__(self) -> None:
            super().__init__()
            self.runner = torch.compile(nn.Sequential(self.second, nn.Tanh()), backend="eager")

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.runner(self.second(self.stem(x))))

    net, (x, y) = build(Shared), batch(6, 4)
    with pytest.raises(AttachError, match="was compiled before the method was attached"):
        nfm.preset("nfm", sites="second", seed=3)(net, x, y)


def test_a_wrapper_that_was_called_before_attaching_is_noticed_by_the_first_loss() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    forward, _ = compiled(net)
    forward(x)
    with nfm.attach(net, method()) as mixer:
        output = forward(x)
        if torch.equal(output, build(Mlp)(x)):  # the compiler ignored the hooks: plain training must not pass
            with pytest.raises(AttachError, match=r"met no mixing.*called before"):
                mixer.loss(output, y)
        else:  # it saw them: then the loss must be the mixed one
            assert_same([mixer.loss(output, y)], [method()(build(Mlp), x, y).loss])


def test_a_plain_network_of_the_same_class_compiled_before() -> None:
    """Its graph may be taken for the attached one: an error that says what to do, and that helps."""
    plain, net, (x, y) = build(container), build(container), batch(6, 4)
    compiled(plain)[0](x)
    with nfm.attach(net, method(sites=["1"])) as mixer:
        forward, _ = compiled(net)
        output = forward(x)
        if torch.equal(output, plain(x)):
            with pytest.raises(AttachError, match=r"torch\.compiler\.reset\(\)"):
                mixer.loss(output, y)
            torch.compiler.reset()
            output = forward(x)
        expected = method(sites=["1"])(build(container), x, y, step=mixer.method.step)
        assert_same([mixer.loss(output, y)], [expected.loss])


def test_two_training_passes_without_a_loss_between_are_refused() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        forward, _ = compiled(net)
        mixer.loss(forward(x), y)
        forward(x)
        output = forward(x)
        with pytest.raises(SiteError, match="needs a loss between two training forward passes"):
            mixer.loss(output, y)
        step = mixer.method.step
        assert_same([mixer.loss(forward(x), y)], [method()(build(Mlp), x, y, step=step).loss])


def test_a_compiled_site_that_does_not_carry_the_batch_is_refused_by_the_loss() -> None:
    class Flattened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.flat(x.flatten(0, 1)).unflatten(0, x.shape[:2]).mean(1))

    net, (x, y) = build(Flattened), batch(6, 2, 4)
    with nfm.attach(net, method(sites=["flat"])) as mixer:
        output = compiled(net)[0](x)
        with pytest.raises(SiteError, match=r"expected 6 in dim 0, got shape \(12, 4\)"):
            mixer.loss(output, y)


def test_a_resumed_run_goes_on_with_its_own_draws() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method(seed=8)) as mixer:
        forward, _ = compiled(net)
        mixer.loss(forward(x), y)
        mixer.load_state_dict({"seed": 3, "step": 5})
        for step in (5, 6):
            assert_same([mixer.loss(forward(x), y)], [method()(build(Mlp), x, y, step=step).loss])
        mixer.method.step = 20  # not by the mixer: a waiting draw would be of another step
        output = forward(x)
        with pytest.raises(AttachError, match=r"use mixer\.load_state_dict"):
            mixer.loss(output, y)


def test_an_evaluation_between_pass_and_loss_changes_nothing() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        forward, _ = compiled(net)
        for step in range(4):
            output = forward(x)
            with torch.no_grad():
                plain = forward(x)
                assert_same([mixer.loss(plain, y)], [F.cross_entropy(plain, y)])
            assert_same([mixer.loss(plain, y)], [F.cross_entropy(plain, y)])
            net.eval()
            assert_same([forward(x)], [build(Mlp)(x)])
            net.train()
            assert_same([mixer.loss(output, y)], [method()(build(Mlp), x, y, step=step).loss])


def test_detach_makes_the_compiled_network_plain() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    mixer = nfm.attach(net, method())
    forward, _ = compiled(net)
    mixer.loss(forward(x), y)
    mixer.detach()
    for _ in range(2):
        assert_same([forward(x)], [build(Mlp)(x)])


def test_compiled_with_checkpoints() -> None:
    call = functools.partial(checkpoint, use_reentrant=False)
    eager, net = build(Mlp), build(lambda: Mlp(call=call))
    batches = [batch(6, 4, seed=step) for step in range(3)]
    with nfm.attach(eager, method()) as one, nfm.attach(net, method()) as two:
        forward, _ = compiled(net)
        expected = steps(eager, eager, one, batches, evaluate=False)
        for ours, theirs in zip(steps(net, forward, two, batches, evaluate=False), expected, strict=True):
            assert_same(ours, theirs)


def test_another_seed_would_show() -> None:
    """The control of every comparison here."""
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method(seed=4)) as mixer:
        found = gradients(mixer.loss(compiled(net)[0](x), y), net)
    reference = build(Mlp)
    assert_different(found, gradients(method()(reference, x, y).loss, reference))


def with_inductor(test):
    """Mark a test of the slow backend, which warns of itself and needs a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    test = pytest.mark.skipif(compiler is None, reason="no C++ compiler here: inductor was not tried")(test)
    return pytest.mark.slow(pytest.mark.filterwarnings("ignore::DeprecationWarning")(test))


@with_inductor
@pytest.mark.parametrize("make", [Mlp, ConvNet])
@pytest.mark.parametrize("noise", [nfm.Noise(), nfm.Noise(0.4, 0.2)], ids=repr)
def test_inductor_is_near_eager(make, noise: nfm.Noise) -> None:
    eager, net = build(make), build(make)
    shape = (4,) if make is Mlp else (3, 5, 5)
    settings = {"sites": make.sites, "noise": noise}
    with nfm.attach(eager, method(**settings)) as one, nfm.attach(net, method(**settings)) as two:
        forward = torch.compile(net, fullgraph=True)
        for step in range(12):
            x, y = batch(6, *shape, seed=step)
            expected = gradients(one.loss(eager(x), y), eager)
            assert_close([flat(gradients(two.loss(forward(x), y), net))], [flat(expected)], relative=1e-4)


@with_inductor
def test_inductor_with_checkpoints_is_near_eager() -> None:
    call = functools.partial(checkpoint, use_reentrant=False)
    eager, net = build(Mlp), build(lambda: Mlp(call=call))
    with nfm.attach(eager, method()) as one, nfm.attach(net, method()) as two:
        forward = torch.compile(net, fullgraph=True)
        for step in range(8):
            x, y = batch(6, 4, seed=step)
            expected = gradients(one.loss(eager(x), y), eager)
            assert_close([flat(gradients(two.loss(forward(x), y), net))], [flat(expected)], relative=1e-4)


@pytest.mark.filterwarnings("ignore")  # the compiler warns of what it leaves outside of its graphs
def test_a_whole_training_step_in_one_compiled_function() -> None:
    """The network is compiled in it, and the loss, which a graph adds up in another order."""
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method(sites=Mlp.sites)) as mixer:
        step = torch.compile(lambda x, y: mixer.loss(net(x), y), backend="aot_eager")
        for number in range(6):
            reference = build(Mlp)
            expected = method(sites=Mlp.sites)(reference, x, y, step=number).loss
            found = step(x, y)
            assert_close([found], [expected], relative=1e-6)
            assert_same(gradients(found, net), gradients(expected, reference))
