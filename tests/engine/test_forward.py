import torch
from torch import nn
from torch.testing import assert_close

from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.engine.forward import forward, has_dropout
from fallow.engine.loop import predict
from fallow.models.networks import MLP, Linear, ResNet8
from tests.models.owned import Own

X = torch.randn(7, 5, generator=stream(0, "forward"))


def own() -> tuple[Own, Layout, State]:
    """Return a custom network with dropout and batch norm with arbitrary statistics."""
    model = Own((5,), 3)
    assert model.norm.running_mean is not None
    for i, value in enumerate([*model.parameters(), model.norm.running_mean]):
        value.data = torch.randn(value.shape, generator=stream(i, "weights"))
    layout = Layout.of(model)
    return model, layout, layout.flatten(model)


def test_without_a_generator_it_is_the_prediction_in_any_batches() -> None:
    model, layout, state = own()
    expected = predict(model, layout, state, X)
    assert torch.equal(forward(model, layout, state, X), expected)
    assert_close(forward(model, layout, state, X, batch=2), expected)


def test_a_generator_decides_what_is_dropped_and_the_global_state_stays() -> None:
    model, layout, state = own()
    before = torch.get_rng_state()
    a, b = (forward(model, layout, state, X, stream(0, "drop")) for _ in range(2))
    draw = stream(0, "drop")
    c, d = (forward(model, layout, state, X, draw) for _ in range(2))
    assert torch.equal(a, b) and torch.equal(a, c) and not torch.equal(c, d)
    assert torch.equal(before, torch.get_rng_state())


def test_only_dropout_draws_batch_norm_keeps_its_statistics() -> None:
    model, layout, state = own()
    before = {name: value.clone() for name, value in state.items()}
    outcome = forward(model, layout, state, X, stream(0, "drop"))
    kept = torch.empty(7, 3).bernoulli_(0.5, generator=stream(0, "drop"))
    hidden = model.body[1](X) * kept / 0.5
    norm = model.norm
    assert norm.running_mean is not None and norm.running_var is not None
    unit = (hidden - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    z = unit * norm.weight + norm.bias
    assert_close(outcome, model.head(z).detach())
    assert all(torch.equal(state[name], before[name]) for name in before)
    assert all(not module.training for module in model.modules())


def test_a_model_without_dropout_draws_nothing() -> None:
    model = ResNet8((3, 16, 16), 2)
    layout = Layout.of(model)
    state, draw = layout.flatten(model), stream(0, "drop")
    x = torch.randn(3, 3, 16, 16, generator=stream(0, "images"))
    drawn = forward(model, layout, state, x, draw)
    assert torch.equal(drawn, predict(model, layout, state, x))
    assert torch.equal(draw.get_state(), stream(0, "drop").get_state())


def test_it_is_differentiable_where_the_rows_are_and_only_in_the_rows() -> None:
    model = Linear((5,), 3).double()
    layout = Layout.of(model)
    state = layout.flatten(model)
    state["w"].copy_(torch.arange(18.0)).requires_grad_()
    assert not forward(model, layout, state, X.double()).requires_grad
    rows = X.double().requires_grad_()
    forward(model, layout, state, rows, batch=3)[:, 1].sum().backward()  # type: ignore[no-untyped-call]  # torch's
    assert_close(rows.grad, torch.arange(5.0, 10.0).double().expand(7, 5))
    assert state["w"].grad is None


def test_a_model_draws_where_it_has_dropout_that_drops() -> None:
    assert has_dropout(Own((5,), 3))
    assert not has_dropout(MLP((5,), 3))
    assert not has_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)))
