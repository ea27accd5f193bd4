"""Custom models: PyTorch modules, classes and functions that users supply.

The engine needs two parts of a model: features (`embed`) and a last linear layer (`head`).  A
module with both is used as it is.  In any other module, `adapt_model` finds them with one forward
pass: the head is the last `nn.Linear` that the module calls, and the features are the input of that
layer.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Generator, Tensor, nn
from torch.nn.parameter import is_lazy

from fallow.core.suggestions import nearest
from fallow.models.base import Shape, check_model, evaluating, make_rows, row_shape
from fallow.models.init import drawing_from

GUIDE = "docs/train.md"
REQUIREMENT = (
    "a model accepts examples (n, *shape), returns logits (n, classes), and ends in a "
    f"torch.nn.Linear; see {GUIDE}"
)

SHAPES = ("shape", "input_shape", "in_shape")
OUTPUTS = (
    *("outputs", "n_outputs", "num_outputs", "out_features", "out_dim", "output_dim"),
    *("classes", "n_classes", "num_classes", "output_size", "n_out"),
)
CHANNELS = ("in_channels", "input_channels", "num_channels", "n_channels")
FEATURES = ("in_features", "in_dim", "input_dim", "input_size")
"""Names of parameters of a class or function that are determined by the data."""

ENOUGH = 256  # minimum size of a parameter whose standard deviation is compared
APART = 1.25  # ratio of standard deviations that is not random for this size


# -- halves -------------------------------------------------------------------------------------


@final
class CustomModel(nn.Module):
    """A custom module with its head by name; ``embed`` returns the input of the head.

    ``head`` is registered first, so that its weights are the part "head" of a `Layout`; they also
    stay part of ``module``.  form: shape in which the module takes examples.
    """

    def __init__(self, module: nn.Module, head: nn.Linear, form: Shape) -> None:
        super().__init__()
        self.head = head
        self.module = module
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(x.reshape((len(x), *self.form)))
        return logits

    def embed(self, x: Tensor) -> Tensor:
        """Return the input of the head.  x: (n, *shape) -> (n, d)."""
        inputs: list[Tensor] = []

        def note_input(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            inputs.append(first_argument(args, kwargs))

        handle = self.head.register_forward_pre_hook(note_input, with_kwargs=True)
        try:
            self(x)
        finally:
            handle.remove()
        return inputs[-1]

    def reset(self, generator: Generator) -> None:
        """Initialize all weights with ``reset_parameters`` of the layers."""
        with drawing_from(generator):
            redraw(self.module)


def first_argument(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the first argument of a call, by position or by name."""
    return (*args, *kwargs.values())[0]


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the module that the user supplied."""
    if isinstance(model, CustomModel):
        return model.module
    return model


def adapt_model(module: object, shape: Sequence[int], outputs: int | None) -> nn.Module:
    """Return ``module`` as a model, with its last `nn.Linear` as the head if necessary.

    outputs: number of classes, or 1 for regression; None: as in the module.  Weights, statistics
    and modes are unchanged.  Raises ValueError for a module that cannot be used.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> adapt_model(net, (4,), 2).head
    Linear(in_features=3, out_features=2, bias=True)
    """
    shape = row_shape(shape)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"a model must be a torch.nn.Module, not {type(module).__name__}; {REQUIREMENT}"
        )
    has_halves = callable(getattr(module, "embed", None))
    model = module
    if not has_halves or not isinstance(getattr(module, "head", None), nn.Linear):
        model = _find_halves(module, shape, outputs)
    if outputs is None:
        head: Any = model.head
        outputs = head.out_features
    check_model(model, shape, outputs)
    return model


class _Pass(NamedTuple):
    """Result of one forward pass: output and the called linear layers, in order."""

    output: object
    calls: list[tuple[nn.Linear, Tensor, Tensor]]  # layer, input, output


def _find_halves(module: nn.Module, shape: Shape, outputs: int | None) -> CustomModel:
    name = type(module).__name__
    errors: list[Exception] = []
    for form in dict.fromkeys((shape, (math.prod(shape),), (1, *shape))):
        try:
            passed = _run_once(module, form)
        except Exception as error:  # a user's own code may raise anything
            errors.append(error)
            continue
        fault = _find_fault(module, passed, outputs)
        if fault is None:
            return CustomModel(module, passed.calls[-1][0], form)
        raise ValueError(f"{name} {fault}")
    raise ValueError(f"{name} {_explain_refusal(module, shape, errors[0])}") from errors[0]


def _run_once(module: nn.Module, shape: Shape) -> _Pass:
    """Pass two artificial examples through ``module`` in evaluation mode."""
    calls: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def note(
        layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> None:
        assert isinstance(layer, nn.Linear)  # noqa: S101 - registered on these only
        calls.append((layer, first_argument(args, kwargs), output))

    handles = []
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            handles.append(layer.register_forward_hook(note, with_kwargs=True))
    try:
        with evaluating(module), torch.no_grad():
            like = next(module.parameters(), torch.zeros(()))
            return _Pass(module(make_rows(like, shape)), calls)
    finally:
        for handle in handles:
            handle.remove()


def _find_fault(module: nn.Module, passed: _Pass, outputs: int | None) -> str | None:
    """Return why a module is not a model, as the rest of a sentence; None if it is one."""
    output, calls = passed
    classes = "one column for each class"
    if outputs is not None:
        classes = f"shape (n, {outputs})"
    if not isinstance(output, Tensor):
        return (
            f"returns a {type(output).__name__}; return only the logits, a tensor of "
            f"{classes}"
        )
    if not calls:
        return (
            "calls no torch.nn.Linear, and the features of an example are the input of the last "
            f"one; {REQUIREMENT}"
        )
    layer, inputs, logits = calls[-1]
    names = {id(part): name for name, part in module.named_modules()}
    label = f"nn.Linear {names[id(layer)]!r}"
    if layer is module:
        label = "layer"
    if output.ndim != 2 or len(output) != 2:
        return (
            f"returns a tensor of shape {tuple(output.shape)} for 2 examples; return "
            f"logits of {classes}"
        )
    if output.shape != logits.shape or inputs.ndim != 2 or not _is_close(output, logits):
        return (
            f"changes the output of its last {label}{_name_change(output, logits)}; return that "
            "output itself, the logits"
        )
    if sum(part is layer for part, _, _ in calls) > 1:
        return f"calls its last {label} more than once; use it only for the logits"
    if outputs is not None and output.shape[1] != outputs:
        need = "1 output, because the task is regression"
        if outputs > 1:
            need = f"{outputs} outputs, one for each class of the data"
        where = "" if layer is module else f" (its last {label})"
        return f"has {output.shape[1]} outputs{where}, and needs {need}"
    return None


def _is_close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    return torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def _name_change(output: Tensor, logits: Tensor) -> str:
    """Return the common function that was applied to the logits, if any."""
    if output.shape != logits.shape or logits.ndim != 2:
        return ""
    usual = {
        "softmax": logits.softmax(1),
        "log_softmax": logits.log_softmax(1),
        "sigmoid": logits.sigmoid(),
        "ReLU": logits.relu(),
    }
    for name, changed in usual.items():
        if _is_close(output, changed):
            return f" by {name}"
    return ""


def _explain_refusal(module: nn.Module, shape: Shape, error: Exception) -> str:
    """Return why a module does not take examples of ``shape``, as the rest of a sentence."""
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    hint = REQUIREMENT
    if len(shape) == 3:
        channels, height, width = shape
        if _takes(module, (height, width, channels)):
            hint = (
                f"it takes images as (height, width, channels) and gets them as {shape}, "
                "(channels, height, width): remove its permutation"
            )
        elif _takes(module, (width, channels, height)):
            hint = (
                f"the images are {shape}, and it interprets their last dimension as "
                "channels: convert them to (n, channels, height, width)"
            )
    elif any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        hint = (
            "it has convolutions, and the data has no images: convert them to (n, "
            "channels, height, width)"
        )
    return f"does not accept examples of shape {shape} ({first_line}); {hint}"


def _takes(module: nn.Module, shape: Shape) -> bool:
    try:
        _run_once(module, shape)
    except Exception:  # a user's own code may raise anything
        return False
    return True


# -- construction -------------------------------------------------------------------------------


def build_custom(
    factory: Callable[..., Any],
    shape: Sequence[int],
    outputs: int,
    generator: Generator,
    fields: Mapping[str, Any],
    name: str,
) -> nn.Module:
    """Build the model of ``factory``: a class, a function or a `Template`.

    Parameters that are determined by the data (`SHAPES`, `OUTPUTS`, `CHANNELS`, `FEATURES`) are
    passed by name, unless ``fields`` or a `functools.partial` sets them.  Draws of the factory from
    PyTorch's global random state come from ``generator``, and that state is unchanged.
    """
    shape = row_shape(shape)
    arguments = _fill_arguments(factory, shape, outputs, fields, name)
    with drawing_from(generator):
        try:
            # a function may return the same module every time, which runs would share
            module = copy.deepcopy(factory(**arguments))
        except Exception as error:  # a user's own code may raise anything
            if isinstance(factory, Template):
                raise
            words = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise ValueError(
                f"{name!r} could not be created for these data: the call "
                f"{name!r}({words}) raised {type(error).__name__}: {error}"
            ) from error
        if isinstance(module, nn.Module):
            fill_lazy(module, shape)
    if isinstance(module, nn.Module):
        module = module.cpu()
    return adapt_model(module, shape, outputs)


def _fill_arguments(
    factory: Callable[..., Any],
    shape: Shape,
    outputs: int,
    fields: Mapping[str, Any],
    name: str,
) -> dict[str, Any]:
    by_data: dict[str, Any] = dict.fromkeys(SHAPES, shape) | dict.fromkeys(OUTPUTS, outputs)
    by_data |= dict.fromkeys(FEATURES, math.prod(shape))
    if len(shape) == 3:
        by_data |= dict.fromkeys(CHANNELS, shape[0])
    parameters = inspect.signature(factory).parameters
    bound = getattr(factory, "keywords", {})  # of a functools.partial
    arguments = dict(fields)
    missing = []
    takes_any = False
    for key, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind is parameter.VAR_POSITIONAL or key in bound or key in fields:
            continue
        elif key in by_data and parameter.kind is not parameter.POSITIONAL_ONLY:
            arguments[key] = by_data[key]
        elif parameter.default is parameter.empty:
            missing.append(key)
    for key in fields:
        if key not in parameters and not takes_any:
            raise ValueError(
                f"{name!r} has no setting {key!r}{nearest(key, [*parameters])}"
            )
    if missing:
        raise ValueError(
            f"{name!r} needs {', '.join(missing)}, which the data do not determine; set "
            f"it by functools.partial(..., {missing[0]}=...) (shape, outputs, "
            f"num_classes, in_channels, in_features are set automatically: {GUIDE})"
        )
    return arguments


def fill_lazy(module: nn.Module, shape: Shape) -> None:
    """Initialize PyTorch's lazy layers with one forward pass."""
    if any(is_lazy(parameter) for parameter in module.parameters()):
        with evaluating(module), torch.no_grad():
            module(make_rows(torch.zeros(()), shape))


# -- instances ----------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class Template:
    """A custom module as a factory: each call copies it and initializes its weights.

    Parameters with ``requires_grad=False`` keep their values, and so do constants that no
    ``reset_parameters`` sets.  Raises ValueError if other weights would not be initialized, or
    would be initialized in another way.  A function can be used to keep these weights.
    """

    module: nn.Module

    def __call__(self, shape: Shape) -> nn.Module:
        module = copy.deepcopy(self.module)
        fill_lazy(module, shape)
        before = {name: part.detach().clone() for name, part in module.named_parameters()}
        with _explaining(type(module).__name__):
            redraw(module)
            _check_alike(before, dict(module.named_parameters()))
        return module


@contextmanager
def _explaining(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f"each seed draws new initial weights of the {name} instance, but {error}; "
            f"give model=lambda: {name}(...) to build a new one for each seed, or "
            f"model=lambda: net to start each seed from the weights of net ({GUIDE})"
        ) from error


def redraw(module: nn.Module) -> None:
    """Initialize the weights of ``module`` with ``reset_parameters`` of its parts.

    Frozen parameters keep their values.  A parameter that no ``reset_parameters`` sets keeps its
    value if it is a constant; ValueError otherwise.
    """
    before = {name: part.detach().clone() for name, part in module.named_parameters()}
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.fill_(math.nan)  # to detect which are set
    # outer modules last: `nn.MultiheadAttention` overwrites weights of its parts
    for part in reversed(list(module.modules())):
        own = list(part.parameters(recurse=False))
        if own and not any(parameter.requires_grad for parameter in own):
            continue  # frozen, with its statistics
        for method in ("reset_parameters", "_reset_parameters"):
            reset = getattr(part, method, None)
            if callable(reset):
                reset()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                parameter.copy_(before[name])
            elif bool(parameter.isnan().any()):
                if not is_constant(before[name]):
                    raise ValueError(f"no reset_parameters() sets its parameter {name!r}")
                parameter.copy_(before[name])


def is_constant(value: Tensor) -> bool:
    """Return whether all numbers are equal."""
    return value.numel() == 0 or bool((value == value.flatten()[0]).all())


def _check_alike(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> None:
    """Raise ValueError for weights that were trained or set manually.

    Their distribution differs from that of ``reset_parameters``.
    """
    for name, old in before.items():
        new = now[name].detach()
        if is_constant(new):
            is_alike = torch.equal(old, new)
        elif old.numel() < ENOUGH:
            continue
        else:
            ratio = float(old.double().std() / new.double().std())
            is_alike = 1 / APART < ratio < APART
        if not is_alike:
            raise ValueError(
                f"its {name!r} differs from the draws of reset_parameters() (mean "
                f"{float(old.mean()):.2g} and standard deviation {float(old.std()):.2g}, "
                f"new draw: {float(new.mean()):.2g} and {float(new.std()):.2g})"
            )
