"""``prepare``: list, scan, validate, segment, store. Nothing is written before every recording was validated."""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bridgemil import __version__
from bridgemil.cohort import sources
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.cutting import SubjectTask, segment_subject
from bridgemil.cohort.folder import SUBJECTS, write_cohort
from bridgemil.cohort.header_identity import header_records, with_headers
from bridgemil.cohort.listing import Listing, Recording
from bridgemil.cohort.records import SubjectRecord, default_folds
from bridgemil.cohort.resuming import already_done, is_finished, only_writer, refuse_foreign
from bridgemil.cohort.scan import RecordingScan, scan_recording
from bridgemil.cohort.segment import SegmentPlan
from bridgemil.cohort.settings import PRESETS, PrepareSettings
from bridgemil.cohort.validate import ValidationReport, native_rate, validate
from bridgemil.errors import BadData, BadUse, BridgeMILWarning, Problem, plain
from bridgemil.parallel import cores, each
from bridgemil.settings import parse

RECIPE_VERSION = 2  # raise when the same settings give other windows


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    preset: str | None = None,
    label: str | None = None,
    unlabelled: bool = False,
    task: str | None = None,
    session: str | None = None,
    raw: bool = False,
    classes: Mapping[str, str] | Iterable[str] | None = None,
    jobs: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Cohort:
    """Turn recordings into a cohort folder.

    Parameters
    ----------
    source : str or Path
        A BIDS folder, a manifest (CSV of ``subject,label,file``) or a folder with ``manifest.csv``, or with ``preset``
        the folder of that data set.
    out : str or Path
        The cohort's folder. Interrupted, the same call goes on where it stopped; finished, it does nothing.
    preset : str, optional
        ``adftd``, ``mumtaz2017`` or ``rockhill2021``: the paper's settings for these data sets. It settles label, task
        and session too.
    label : str, optional
        The column of participants.tsv or of the manifest with the diagnosis; in a manifest ``label`` if left out.
    unlabelled : bool, default False
        Prepare without diagnoses: every label is ''. Such a cohort, or one of a single class, can be inspected and
        audited; ``evaluate`` and ``train`` need two classes.
    task, session : str, optional
        For BIDS: restrictions to one task or session.
    raw : bool, default False
        For ADFTD: the raw recordings instead of the authors' cleaned ones.
    classes : dict or sequence of str, optional
        Old label to new; subjects with other labels are left out and listed.
    jobs : int, optional
        Processes; by default the cores available.
    progress : bool, default True
        Whether to draw progress bars on standard error.
    skip_bad : bool, default False
        Leave out what is bad, and list it, instead of stopping.
    overwrite : bool, default False
        Replace a cohort, finished or not, that was prepared from other files or settings.
    settings : Any
        Fields of ``PrepareSettings``: frequencies in Hz, lengths in seconds, amplitudes in microvolts.

    Returns
    -------
    Cohort
        Opened from ``out``.

    Raises
    ------
    BadData
        With every problem found; nothing was written then.
    BadUse
        If a setting is wrong or ``out`` cannot be written to; no file was read then.
    """
    source, out = Path(source), Path(out)
    chosen = _settings(preset, settings)
    options = sources.SourceOptions(label=label, unlabelled=unlabelled, task=task, session=session, raw=raw)
    listing = _list(source, preset, options, classes)
    refuse_foreign(out, listing)
    workers = jobs or cores()

    scans = _scan(listing, workers, progress)
    report = validate(listing, [scans[recording] for recording in listing.recordings], chosen)
    if report.problems and not skip_bad:
        count = "1 problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"
        words = f"{source}: {count}; nothing was written (--skip-bad goes on without what is bad)"
        raise BadData(words, report.problems)
    if not report.plans:
        raise BadData(f"{source}: no usable recording", report.problems)

    for note in one_class(listing.labels[plan.recording.subject] for plan in report.plans):
        report.notes.append(note)
        warnings.warn(note, BridgeMILWarning, stacklevel=2)
    tasks = _tasks(listing, report, scans, out)
    recipe = _digest([[task.recipe for task in tasks], report.channels, chosen.folds, chosen.burn_in, listing.columns])
    with only_writer(out):
        if not is_finished(out, recipe, tasks, overwrite):
            headers = header_records([scans[plan.recording] for plan in report.plans])
            _write(out, tasks, recipe, listing, report, chosen, headers, workers, skip_bad, progress)
    return Cohort.open(out)


def one_class(labels: Iterable[str]) -> list[str]:
    """A note where the labels are of fewer than two classes.

    Parameters
    ----------
    labels
        One per subject or recording; '' where there is none.
    """
    classes = sorted(set(labels) - {""})
    if len(classes) > 1:
        return []
    what = f"one class only ({classes[0]})" if classes else "no labels"
    return [f"{what}: `evaluate` and `train` need at least two classes; `inspect` and `audit` work"]


def _scan(listing: Listing, jobs: int, progress: bool) -> dict[Recording, RecordingScan]:
    """Look at every recording before anything is written."""
    _import_readers()
    return dict(
        each(scan_recording, listing.recordings, jobs=jobs, label="checking", show=progress, meanwhile=_import_filters)
    )


def _import_readers() -> None:
    """Import once, before workers are forked, what every one of them would import."""
    from mne.io import read_raw  # noqa: F401  (mne loads its parts when they are named)


def _import_filters() -> None:
    """Import what cutting and storing need while the first workers check; the next ones are forked with it."""
    for module in ("scipy.signal", "mne.filter", "mne.epochs", "mne.cov", "pyarrow.parquet"):
        importlib.import_module(module)


def _settings(preset: str | None, given: Mapping[str, Any]) -> PrepareSettings:
    if preset is not None and preset not in PRESETS:
        raise BadUse(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    base = PRESETS[preset].model_dump() if preset else {}
    return parse(PrepareSettings, base | dict(given))


def _list(
    source: Path, preset: str | None, options: sources.SourceOptions, classes: Mapping[str, str] | Iterable[str] | None
) -> Listing:
    if not source.exists():
        raise BadUse(f"{source}: no such folder or manifest")
    if options.raw and preset != "adftd":
        raise BadUse("--raw goes with --preset adftd")
    if options.unlabelled and (options.label is not None or classes is not None):
        raise BadUse("--unlabelled prepares without diagnoses; leave --label and --classes out")
    given = [name for name in ("label", "unlabelled", "task", "session") if getattr(options, name)]
    if preset is not None and given:
        raise BadUse(f"--{given[0]} does not go with --preset {preset}, which settles it")
    if classes is not None and not isinstance(classes, Mapping):
        classes = {name: name for name in classes}
    if preset is not None:
        kind, root = preset, source
    elif source.is_file():
        kind, root = "manifest", source
    elif (source / "manifest.csv").is_file() and not (source / "participants.tsv").is_file():
        kind, root = "manifest", source / "manifest.csv"
    else:
        kind, root = "bids", source
    listing = sources.find(kind, root, options)
    if classes:
        listing.rename_classes(classes)
    listing.drop_unclear_labels()
    return listing


def _tasks(
    listing: Listing, report: ValidationReport, scans: Mapping[Recording, RecordingScan], out: Path
) -> list[SubjectTask]:
    import mne

    plans: dict[str, list[SegmentPlan]] = {}
    for plan in report.plans:
        plans.setdefault(plan.recording.subject, []).append(plan)
    tasks = []
    for subject, own in plans.items():
        scan = [scans[plan.recording] for plan in own]
        files = tuple(
            {"file": f.recording.name, "sha256": f.sha256, "bytes": f.n_bytes, "sfreq": f.sfreq,
             "native_sfreq": native_rate(f, p.spellings), "seconds": f.seconds, "reader_warnings": f.warnings}
            for p, f in zip(own, scan, strict=True)
        )  # fmt: skip
        cutting = [
            [f.sha256, list(p.spellings.items()), p.interpolate, p.supports, p.references, p.high, p.notch, f.bad_spans]
            + (["at its own rate"] if native_rate(f, p.spellings) < f.sfreq else [])  # earlier versions: at the fastest
            for p, f in zip(own, scan, strict=True)
        ]
        settings = own[0].settings.model_dump(exclude={"folds", "burn_in", "channels", "duplicates"})
        label = listing.labels[subject]
        recipe = _digest([RECIPE_VERSION, mne.__version__, subject, label, settings, cutting])
        tasks.append(SubjectTask(out, subject, label, tuple(own), files, recipe))
    return tasks


def _write(
    out: Path,
    tasks: list[SubjectTask],
    recipe: str,
    listing: Listing,
    report: ValidationReport,
    settings: PrepareSettings,
    headers: Mapping[str, Mapping[str, Any]],
    jobs: int,
    skip_bad: bool,
    progress: bool,
) -> None:
    """Segments every subject that is not there yet, and finish the cohort."""
    (out / SUBJECTS).mkdir(exist_ok=True)
    done = already_done(out, tasks)
    rest = [task for task in tasks if task.subject not in done]
    for task, record in each(segment_subject, rest, jobs=jobs, label="preparing", show=progress):
        done[task.subject] = record
    empty = [task for task in tasks if done[task.subject] is None]
    problems = [Problem("no usable window is left after amplitude rejection", task.subject) for task in empty]
    if problems and not skip_bad:
        words = f"{out}: not finished, {len(problems)} problems (--skip-bad goes on without them)"
        raise BadData(words, problems)
    report.problems += problems
    records = [record for task in tasks if (record := done[task.subject]) is not None]
    _finish(out, records, recipe, listing, report, settings, headers)


def _finish(
    out: Path,
    records: list[dict[str, Any]],
    recipe: str,
    listing: Listing,
    report: ValidationReport,
    settings: PrepareSettings,
    headers: Mapping[str, Mapping[str, Any]],
) -> None:
    """Gather the subjects' records into the cohort's two files."""
    if not records:
        raise BadData(f"{out}: no subject has a usable window")
    own = SubjectRecord.__dataclass_fields__
    subjects = [SubjectRecord.from_row(record) for record in records]
    counts = Counter(subject.label for subject in subjects)
    too_small = [
        f"class {name!r} has {n} {'subject' if n == 1 else 'subjects'}: no split is possible, at least 3 are needed in "
        "every class (training, validation, test)"
        for name, n in sorted(counts.items())
        if n < 3 and name
    ]
    about = {
        "source": listing.source,
        "channels": report.channels,
        "sfreq": settings.sfreq,
        "n_times": settings.window_samples,
        "folds": settings.folds or default_folds([subject.label for subject in subjects]),
        "burn_in": settings.burn_in,
        "settings": settings.model_dump(mode="json"),
        "versions": _versions(),
        "recipe": recipe,
        "left_out": [{key: plain(text) for key, text in asdict(item).items()} for item in report.left_out],
        "skipped": [plain(str(problem)) for problem in report.problems],
        "notes": [plain(note) for note in report.notes + too_small + _distorted(records)],
        "files": [{"subject": r["subject"], **file} for r in records for file in with_headers(r["files"], headers)],
    }
    clash = {name: f"{name}_source" for name in own}
    columns = {s: {clash.get(k, k): v for k, v in values.items()} for s, values in listing.columns.items()}
    cohort = Cohort(subjects, about, columns, out)
    write_cohort(out, about | {"hash": cohort.hash}, cohort.rows())


def _distorted(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """A note of every recording that is shorter than the filter."""
    return [
        f"{record['subject']}, {file['file']}: shorter than the filter, which distorts it; raise --low, or leave it out"
        for record in records
        for file in record["files"]
        if any("longer than the signal" in text for text in file["filter_warnings"])
    ]


def _versions() -> dict[str, str]:
    import mne
    import scipy

    return {"bridgemil": __version__, "python": platform.python_version(), "mne": mne.__version__,
            "numpy": np.__version__, "scipy": scipy.__version__}  # fmt: skip


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
