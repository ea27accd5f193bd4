"""A trained model as one file for other programs: encoder, feature scaling and network."""

from __future__ import annotations

import io
import json
import tempfile
import warnings
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor, nn

from fallow.core.missing import filled
from fallow.core.model_vectors import Layout
from fallow.core.optional import import_optional
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.encoders.base import EMPTY_CELLS, Exportable, is_half
from fallow.experiment.encoding import encoder_of, shape_seen
from fallow.experiment.methods import ModelMaker
from fallow.experiment.scale import Scale
from fallow.experiment.trained import Trained
from fallow.measurements.prediction_sets import threshold_of
from fallow.models.custom import unwrap_model
from fallow.storage.files import write_whole

Format = Literal["onnx", "torch"]
ENDINGS: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch"}
INPUT = "examples"
OPSET = 17  # of ONNX, from 2022
N_TRACED = 3  # examples: any other number can be passed later


@final
class WholeModel(nn.Module):
    """Examples (n, *shape) float32 -> probabilities (n, classes), or predictions (n,).

    Attributes
    ----------
    encoder
        From examples to features; None if the model takes examples, or features are passed.
    scale
        Feature scaling; None: no scaling.
    network
        From scaled features to logits, or to one target.
    fill
        Imputed values of empty cells, (d,); None without empty cells.
    targets
        Scaling of regression targets; None: no scaling.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        encoder: nn.Module | None,
        scale: Scale | None,
        fill: Tensor | None,
        targets: State | None,
        has_classes: bool,
        is_rounded: bool,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network
        self.scale = scale
        self.fill = fill
        self.targets = targets
        self.has_classes = has_classes
        self.is_rounded = is_rounded

    def forward(self, x: Tensor) -> Tensor:
        if self.encoder is not None:
            x = self.encoder(filled(x, self.fill))
            if self.is_rounded:
                x = x.half().float()
        if self.scale is not None:
            x = self.scale(x)
        outputs: Tensor = self.network(x)
        if self.has_classes:
            return outputs.softmax(1)
        numbers = outputs.squeeze(1)
        if self.targets is not None:
            numbers = numbers * self.targets["std"].float() + self.targets["mean"].float()
        return numbers


def build_whole_model(
    model: Trained, *, with_encoder: bool = True
) -> tuple[WholeModel, Tensor]:
    """Return the model in evaluation mode, and example inputs.

    With ``with_encoder=False``, the input is the output of the encoder.  Raises ValueError for an
    encoder that cannot be exported.
    """
    config = model.config
    details = model.saved["example_spec"]
    if details.get("labels"):
        raise ValueError(
            "the model predicts several labels, which exported files do not support; use predict"
        )
    shape = tuple(details["shape"])
    seen = shape_seen(config, shape, model.policy)
    maker = ModelMaker(config, seen, len(details["classes"]) or 1, model.policy)
    network = maker.build(stream(0, "template"))  # its weights are replaced
    Layout.of(network).load(network, model.state)

    encoder = encoder_of(config, shape, model.policy)
    part = None
    fill = None
    if encoder is not None and with_encoder:
        state = dict(model.saved["encoder"]["state"])
        fill = state.pop(EMPTY_CELLS, None)
        if not isinstance(encoder, Exportable):
            raise ValueError(
                f"the encoder {config.encoder} cannot be part of the file, because its network "
                "is in files of another package; export the rest with --without-encoder (in "
                "Python with_encoder=False), and pass it the output of this encoder"
            )
        part = encoder.network(shape, state)
    if part is None:
        shape = seen
    scale = None
    if model.saved["scale"]:
        scale = Scale(**model.saved["scale"])
    whole = WholeModel(
        unwrap_model(network).float(),
        encoder=part,
        scale=scale,
        fill=fill,
        targets=model.saved.get("targets"),
        has_classes=bool(details["classes"]),
        is_rounded=encoder is not None and is_half(encoder),
    )
    draw = stream(0, "export")
    whole.eval().requires_grad_(False)
    return whole, torch.rand((N_TRACED, *shape), generator=draw)


def export_model(
    model: Trained, path: Path, *, format: Format | None = None, with_encoder: bool = True
) -> Path:
    """Export a trained model to ONNX or ``torch.export``, and return the path.

    The default format depends on the suffix, .onnx or .pt2.  The input ``examples`` has shape (n, ...),
    and the output is ``probabilities`` of shape (n, n_classes) or ``predictions`` of shape (n,).  The
    metadata contains the names of classes and columns, and the threshold of prediction sets: the
    smallest probability of a class in a set, or the half width of an interval.
    """
    if format is None:
        format = ENDINGS.get(path.suffix.lower())
    if format is None:
        raise ValueError(
            f"{path.name} ends in neither .onnx nor .pt2, which select the format; "
            "rename it"
        )
    whole, examples = build_whole_model(model, with_encoder=with_encoder)
    details = model.saved["example_spec"]
    metadata = {
        "classes": json.dumps(list(details["classes"])),
        "columns": json.dumps(list(details["columns"])),
    }
    if "prediction_sets" in model.saved:
        sets = model.saved["prediction_sets"]
        threshold = threshold_of(sets, not details["classes"])
        metadata["prediction_sets"] = json.dumps(
            {"coverage": sets["coverage"], "threshold": threshold}
        )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, about its own exporters
        if format == "onnx":
            content = _write_onnx(whole, examples, metadata)
        else:
            content = _write_torch(whole, examples, metadata)
    write_whole(path, content)
    return path


def _write_onnx(whole: WholeModel, examples: Tensor, metadata: dict[str, str]) -> bytes:
    onnx = import_optional("onnx", "onnx", "export to ONNX")
    output = "probabilities" if whole.has_classes else "predictions"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        # Tracing needs no package except onnx; the exporter of torch.export also needs
        # onnxscript.
        torch.onnx.export(
            whole,
            (examples,),
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[output],
            dynamic_axes={INPUT: {0: "n"}, output: {0: "n"}},
        )
        network = onnx.load(file)
    onnx.helper.set_model_props(network, metadata)
    onnx.checker.check_model(network)
    content: bytes = network.SerializeToString()
    return content


def _write_torch(whole: WholeModel, examples: Tensor, metadata: dict[str, str]) -> bytes:
    shapes = ({0: torch.export.Dim("n")},)
    program = torch.export.export(whole, (examples,), dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files=metadata)
    return buffer.getvalue()
