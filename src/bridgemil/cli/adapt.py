"""``bridgemil adapt``: move a model to another site with recordings of its healthy subjects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

RECORDINGS = "Recordings of 10 or more healthy subjects of the site, one per subject: files or folders (BIDS or not)."
PATIENTS = "Recording of a patient of the site, or a folder of them; repeatable. From 10 on; calibrates probabilities."
UNLABELLED = "The recordings are of subjects whose class is not known (transductive)."


def run(
    model: options.ModelFolder,
    recordings: Annotated[list[Path], typer.Argument(help=RECORDINGS)],
    out: Annotated[Path, typer.Option(help="Folder for the adapted model.")],
    patients: Annotated[list[Path] | None, typer.Option(help=PATIENTS)] = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help=UNLABELLED)] = False,
    name: options.ModelName = None,
    overwrite: options.Overwrite = False,
    backbone: options.Code = None,
    threads: options.PredictThreads = None,
    *,
    reading: options.Reading,
) -> Any:
    """Move a model to another site: another amplifier, montage or laboratory.

    Example: `bridgemil adapt alzheimer healthy/*.edf --out mylab.model`

    Location and scale of the site's features are mapped to those of the training controls, for the model and for its
    out-of-distribution test. Not for networks on the raw signal. Prints what changed for these subjects, each left out
    once. Research use only.
    """
    from bridgemil.bundle.adaptation import adapt
    from bridgemil.bundle.bundle import load
    from bridgemil.bundle.page import adaptation_sheet
    from bridgemil.parallel import torch_threads
    from bridgemil.report.terminal import print_sheets

    with torch_threads(threads):
        found = adapt(
            load(model, backbone=backbone), recordings, out, patients=patients or (), unlabelled=unlabelled, name=name,
            overwrite=overwrite, **reading.given(),
        )  # fmt: skip
    made = found.bundle
    print_sheets([adaptation_sheet(made.metadata["adapted"])])
    typer.echo(f"Note: {made.metadata['cautions'][-1]}.")
    typer.echo(f"\nModel: {out} ({made.title})\nCard:  {out / 'card.md'}\n{made.metadata['notice']}")
    typer.echo(f"Next:  bridgemil validate {out} LABELLED_RECORDINGS, or bridgemil predict {out} RECORDING")
    content = {"model": str(out), "checksum": made.checksum, "adapted": made.metadata["adapted"]}
    return content | {"recordings": found.rows, "cautions": made.metadata["cautions"]}
