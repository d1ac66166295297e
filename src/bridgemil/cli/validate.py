"""``bridgemil validate``: external validation of a finished model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

SOURCE = "A cohort, prepared as the model's training recordings; or a BIDS folder or manifest, which is prepared so."
KNOWN = "Leave out subjects used to train or adapt the model, instead of stopping."


def run(
    model: options.ModelFolder,
    source: Annotated[Path, typer.Argument(help=SOURCE, metavar="COHORT|BIDS")],
    label: Annotated[str | None, typer.Option(help="Column with the diagnosis, for recordings.")] = None,
    classes: Annotated[str | None, typer.Option(help="Labels as classes of the model: A=Alzheimer,C=healthy.")] = None,
    coverage: options.Coverage = None,
    report: Annotated[Path | None, typer.Option(help="Write a page: page.html.")] = None,
    exclude_known: Annotated[bool, typer.Option("--exclude-known", help=KNOWN)] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bad recordings, and list them.")] = False,
    clean: options.Clean = None,
    backbone: options.Code = None,
    threads: options.PredictThreads = None,
    *,
    progress: bool,
) -> Any:
    """Validate a model on labelled subjects that it has never seen, and compare with its cross-validated performance.

    Example: `bridgemil validate alzheimer other.cohort --report page.html`

    Example: `bridgemil validate my.model other-bids --label Group --classes A=AD,C=HC`

    Discrimination, sensitivity and specificity at the model's own threshold, calibration, decision curve,
    out-of-distribution share, coverage of the prediction sets, subgroups by sex and age. Stops if a training subject is
    among them, by hashes of the signals. With one class only, metrics that need both are omitted. Research use only.
    """
    from bridgemil.bundle.bundle import load
    from bridgemil.bundle.page import write_validation
    from bridgemil.bundle.validation import validate
    from bridgemil.cli.predict import print_cautions
    from bridgemil.parallel import torch_threads
    from bridgemil.report.terminal import print_sheets

    with torch_threads(threads):
        found = validate(
            load(model, backbone=backbone), source, label=label, classes=options.mapping(classes), coverage=coverage,
            exclude_known=exclude_known, skip_bad=skip_bad, clean=clean or (), progress=progress,
        )  # fmt: skip
    print_cautions(found.bundle)
    print_sheets([found.table, *([found.subgroups] if found.subgroups else [])])
    for item in found.left_out:
        typer.echo(f"Left out: {item['what']}: {item['why']}")
    if report is not None:
        write_validation(report, found)
        typer.echo(f"Page: {report}")
    return found.to_dict() | ({"page": str(report)} if report else {})
