"""``fallow export-model`` and ``cite``: results for other programs and for papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.cli import options as opt
from fallow.cli.results import (
    Output,
    Query,
    check_trained,
    choose_policy,
    is_site,
    restrict_permissions_of,
)
from fallow.cli.terminal import Spinner

if TYPE_CHECKING:
    from fallow.experiment.trained import Trained


@opt.shows("fallow.cli.objects:ExportedModel")
def export_model(
    study: Annotated[
        Path,
        typer.Argument(help="Folder of a study or of a real site", callback=check_trained),
    ],
    onnx: Annotated[
        Path | None, typer.Option(metavar="FILE.onnx", help="Write an ONNX file")
    ] = None,
    torch: Annotated[
        Path | None, typer.Option(metavar="FILE.pt2", help="Write a torch.export file")
    ] = None,
    strategy: Query = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the run whose model is used (default: the first)"),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="Site whose model is used, for personalized models")
    ] = None,
    without_encoder: Annotated[
        bool,
        typer.Option(
            "--without-encoder",
            help="Export without the encoder; the input is then its features",
        ),
    ] = False,
    own_code: opt.OwnCode = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Export encoder, feature scaling and model to ONNX or torch.export.

    For example:

    fallow export-model runs/mine --onnx model.onnx
    """
    if onnx is None and torch is None:
        raise ValueError("choose an output file: --onnx FILE.onnx, or --torch FILE.pt2")
    from fallow.cli.objects import ExportedModel
    from fallow.study.export_model import Format
    from fallow.study.export_model import export_model as write_model

    files: dict[Format, Path | None] = {"onnx": onnx, "torch": torch}
    restrict_permissions_of(study)
    written: dict[str, str] = {}
    with Spinner(opt.console(quiet=quiet or as_json), "exporting the model"):
        model = read_model(study, strategy, seed, site, own_code=own_code)
        for format, path in files.items():
            if path is not None:
                write_model(model, path, format=format, with_encoder=not without_encoder)
                written[format] = str(path)
    lines = [f"Wrote {path}" for path in written.values()]
    opt.tell(lines, ExportedModel(**written), quiet=quiet, as_json=as_json)


@opt.shows("fallow.cli.objects:Citation")
def cite(
    study: Annotated[
        Path, typer.Argument(help="Folder of a study, a coordinator or a real site")
    ],
    out: Output = None,
    own_code: opt.OwnCode = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Print BibTeX entries of Fallow and of the algorithms used in a study."""
    from fallow.cli.objects import Citation
    from fallow.deployment.site.folder import SETTINGS, SiteFolder
    from fallow.storage.files import write_whole
    from fallow.study.cite import cite_strategies, cite_study

    restrict_permissions_of(study)
    if (study / SETTINGS).exists():
        agreed = SiteFolder.open(study).agreement
        strategy = str(agreed.config.strategy)
        text = cite_strategies(agreed.config, [strategy], policy=agreed.names)
    else:
        text = cite_study(study, choose_policy(study, own_code=own_code))
    if out is not None:
        write_whole(out, text.encode())
    result = Citation(text, opt.as_text(out))
    lines = [result.bibtex.rstrip()]
    if result.file is not None:
        lines = [f"Wrote {result.file}"]
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


def read_model(
    study: Path,
    strategy: str | None,
    seed: int | None,
    site: str | None,
    *,
    own_code: bool,
) -> Trained:
    """Read the model of a study or of a real site."""
    from fallow.deployment.site.predict import read_site_model
    from fallow.study.trained import read_trained

    if is_site(study, strategy, seed, site):
        return read_site_model(study)
    return read_trained(
        study, strategy, seed, site, choose_policy(study, own_code=own_code)
    )
