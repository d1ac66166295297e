"""Where the cohort of a run is: as recorded, or as it lies to the folder of runs where both were moved together."""

from __future__ import annotations

from pathlib import Path


def cohort_place(recorded: str, root: Path) -> Path | None:
    """The folder of a run's cohort, or None where it is not found; whether it is the right one, its hash tells.

    Parameters
    ----------
    recorded
        The path that the run was given: absolute, or relative to where the command ran then.
    root
        The folder of runs. What was beside it, or beside the folder it is in, is found from anywhere.
    """
    if not recorded:
        return None
    beside = [folder / part for folder in root.absolute().parents[:2] for part in (recorded, Path(recorded).name)]
    return next((place for place in (Path(recorded), *beside) if place.is_dir()), None)
