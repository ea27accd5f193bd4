"""Optimizer steps on flat vectors against ``torch.optim`` on parameters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.local import TrainState, slot
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer
from fallow.engine.optimize import count_by_parameter, step

OPTIMIZERS = [
    Optimizer("sgd", 0.1, momentum=0.0),
    Optimizer("sgd", 0.1, momentum=0.9),
    Optimizer("sgd", 0.1, momentum=0.9, weight_decay=0.01),
    Optimizer("adam", 0.01),
    Optimizer("adam", 0.01, weight_decay=0.1, betas=(0.5, 0.7), eps=1e-4),
    Optimizer("adam", 0.01, betas=(0.0, 0.9)),
    Optimizer("adamw", 0.01, weight_decay=0.1),
]
each_optimizer = pytest.mark.parametrize("opt", OPTIMIZERS, ids=str)
HEAD = torch.tensor([False, False, False, True, True])


def gradients(n: int = 20, d: int = 5) -> Tensor:
    return torch.randn(n, d, generator=stream(0, "gradients"), dtype=torch.float64)


def begin(opt: Optimizer, d: int = 5) -> TrainState:
    w = torch.randn(d, generator=stream(0, "start"), dtype=torch.float64)
    return slot({"w": w, "stats": w.new_zeros(0)}, opt)


def theirs(opt: Optimizer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    if opt.is_adaptive:
        make = torch.optim.AdamW if opt.name == "adamw" else torch.optim.Adam
        return make(
            parameters, opt.learning_rate, opt.betas, opt.eps, weight_decay=opt.weight_decay
        )
    return torch.optim.SGD(parameters, opt.learning_rate, opt.momentum, 0, opt.weight_decay)


@each_optimizer
def test_steps_are_those_of_torch(opt: Optimizer) -> None:
    at = begin(opt)
    parameter = at.w.clone().requires_grad_()
    other = theirs(opt, [parameter])
    for g in gradients():
        at = step(opt, at, g.clone(), opt.learning_rate, None)
        parameter.grad = g
        other.step()
    assert_close(at.w, parameter.detach(), rtol=0, atol=1e-13)
    assert at.t.tolist() == [20.0]


@each_optimizer
def test_parts_in_turn_are_two_optimizers_of_torch(opt: Optimizer) -> None:
    at = count_by_parameter(begin(opt))
    body, head = at.w[:3].clone().requires_grad_(), at.w[3:].clone().requires_grad_()
    optimizers = [theirs(opt, [body]), theirs(opt, [head])]
    for n, g in enumerate(gradients()):
        is_head = n % 7 > 3
        at = step(opt, at, g.clone(), opt.learning_rate, HEAD if is_head else ~HEAD)
        body.grad, head.grad = g[:3].clone(), g[3:].clone()
        optimizers[is_head].step()
    assert_close(at.w, torch.cat([body, head]).detach(), rtol=0, atol=1e-13)


@each_optimizer
def test_outside_a_part_neither_parameters_nor_moments_move(opt: Optimizer) -> None:
    before = step(opt, begin(opt), gradients()[0], opt.learning_rate, None)
    after = step(opt, before, gradients()[1], opt.learning_rate, HEAD)
    for name in ("w", "m1", "m2"):
        was, now = getattr(before, name), getattr(after, name)
        assert torch.equal(was[..., :3], now[..., :3])
    assert not torch.equal(before.w[3:], after.w[3:])


@each_optimizer
def test_a_stack_of_models_steps_like_each_of_them_also_with_its_own_rate(
    opt: Optimizer,
) -> None:
    rates = [0.1, 0.01, 0.001]
    single = [begin(opt)] * 3
    many = TrainState(*(torch.stack([part] * 3) for part in begin(opt)))
    for g in gradients().view(-1, 1, 5)[:18].view(6, 3, 5):
        pairs = zip(single, g, rates, strict=True)
        single = [step(opt, at, own.clone(), lr, None) for at, own, lr in pairs]
        lr = torch.tensor(rates, dtype=torch.float64).unsqueeze(1)
        many = step(opt, many, g, lr, None)
    for k, at in enumerate(single):
        for ours, alone in zip(many, at, strict=True):
            assert_close(ours[k], alone, rtol=0, atol=1e-14)


@each_optimizer
def test_a_step_leaves_the_slot_that_it_was_given(opt: Optimizer) -> None:
    at = step(opt, begin(opt), gradients()[0], opt.learning_rate, None)
    kept = [part.clone() for part in at]
    for part in (HEAD, None):
        step(opt, at, gradients()[1], opt.learning_rate, part)
        assert all(torch.equal(was, now) for was, now in zip(kept, at, strict=True))


def test_adam_corrects_its_bias_to_the_last_digit_in_float32() -> None:
    opt = Optimizer("adam", 1.0, betas=(0.9, 0.99999), eps=0.0)
    zero = torch.zeros(1)
    at = step(
        opt, slot({"w": zero, "stats": zero[:0]}, opt), torch.tensor([3.0]), 1.0, None
    )
    assert_close(
        at.w, torch.tensor([-1.0]), rtol=1e-6, atol=0
    )  # the first step has length lr
