"""``bridgemil manifest``: the template of a manifest from a folder of recordings."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

SHOWN = 5


def run(
    folder: Annotated[Path, typer.Argument(help="Folder of recordings, flat or nested.")],
    out: Annotated[Path | None, typer.Option(help="CSV to write.  [default: FOLDER/manifest.csv]")] = None,
) -> Any:
    """List the recordings of a folder in a CSV of subject, label and file, to be checked and completed.

    Example: `bridgemil manifest recordings`

    Subjects are inferred from file and folder names. A label is filled in where the names contain it; files without
    one are listed. An existing file is never overwritten.
    """
    from bridgemil.cohort.manifest_template import write_manifest_template

    path, template = write_manifest_template(folder, out)
    subjects, unlabelled = template.files(), template.unlabelled
    labelled = len(template.rows) - len(unlabelled)
    typer.echo(f"{path}: {len(template.rows)} recordings of {len(subjects)} subjects, inferred from names")
    for subject, files in list(subjects.items())[:SHOWN]:
        typer.echo(f"  {subject}: {', '.join(files)}")
    if len(subjects) > SHOWN:
        typer.echo(f"  ... and {len(subjects) - SHOWN} more")
    for line in [*(f"left out {item.what}: {item.why}" for item in template.left_out), *template.notes]:
        typer.echo(f"  - {line}")
    labels = "fill in the column label"
    if labelled:
        typer.echo(f"  labels from names: {labelled} of {len(template.rows)} recordings")
        labels = "check the column label, filled in from the names"
    if labelled and unlabelled:
        typer.echo("  no label, because the names contain no class or several (fill in, or delete the row):")
        for file in unlabelled:
            typer.echo(f"    {file}")
        labels += ", and fill in the rest"
    typer.echo(f"""
Next, in a spreadsheet or an editor:
  1. check the column subject: all recordings of one person need one id
  2. {labels}: one diagnosis per subject
  3. bridgemil prepare {shlex.quote(str(path))} {shlex.quote(folder.resolve().name + ".cohort")}""")
    return {
        "manifest": str(path), "n_recordings": len(template.rows), "n_subjects": len(subjects),
        "n_labelled": labelled, "unlabelled": unlabelled, "rows": [row._asdict() for row in template.rows],
        "left_out": [asdict(item) for item in template.left_out], "notes": template.notes,
    }  # fmt: skip
