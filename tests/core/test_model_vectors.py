import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.testing import assert_close

from fallow.core.model_vectors import Layout, StackedModels
from fallow.core.streams import stream


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.norm(self.body(x)).flatten(1))
        return outputs


def draw_weights(net: Net) -> Net:
    gen = stream(0, "net")
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=gen))
    return net


def test_a_module_goes_through_flat_vectors_and_back() -> None:
    net, x = draw_weights(Net()), torch.randn(5, 1, 4, 4, generator=stream(0, "x"))
    net(x)  # updates the running statistics
    layout = Layout.of(net)
    copy = layout.load(Net(), layout.flatten(net))
    assert_close(copy.eval()(x), net.eval()(x), rtol=0, atol=0)


def test_integer_buffers_are_dropped() -> None:
    layout = Layout.of(Net())
    assert layout.d == sum(p.numel() for p in Net().parameters())
    assert [name for name, _ in layout.buffers] == ["norm.running_mean", "norm.running_var"]


def test_views_share_memory_and_a_training_pass_moves_the_statistics_only() -> None:
    net = draw_weights(Net())
    layout = Layout.of(net)
    state = layout.flatten(net)
    w, stats = state["w"].clone(), state["stats"].clone()
    functional_call(net.train(), layout.views(w, stats), (torch.ones(2, 1, 4, 4),))
    assert torch.equal(w, state["w"])
    assert not torch.equal(stats, state["stats"])
    assert net.norm.running_mean is not None
    # the module's statistics are unchanged
    assert torch.equal(net.norm.running_mean, torch.zeros(2))


def test_head_and_body_share_out_the_parameters() -> None:
    layout = Layout.of(Net())
    head = layout.part("head")
    body = layout.part("body")
    assert head is not None and body is not None
    assert layout.part("all") is None
    assert int(head.sum()) == 8 * 3 + 3
    assert torch.equal(body, ~head)


def test_a_bank_mixes_rows() -> None:
    states = {
        s: {"w": torch.full((2,), float(i)), "stats": torch.zeros(0)}
        for i, s in enumerate("ba")
    }
    stacked = StackedModels.stack(states)
    assert stacked.sites == ("a", "b")
    mixed = stacked.mix(torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    assert_close(mixed.row("a")["w"], torch.full((2,), 0.5))
    assert_close(mixed.row("b")["w"], torch.zeros(2))
