"""``prepare``: list, scan, validate, segment, store. Nothing is written before every recording was validated."""

from __future__ import annotations

import importlib
import platform
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bridgemil import __version__
from bridgemil.cohort import cleaning, folder, sources
from bridgemil.cohort.channels import key
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folder import SubjectRecord
from bridgemil.cohort.scan import RecordingScan, header_records, scan_recording
from bridgemil.cohort.segment import SegmentPlan, SubjectTask, segment_subject
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import LeftOut, Listing, Recording
from bridgemil.cohort.validate import validate
from bridgemil.errors import BadData, BridgeMILWarning, Problem, plain
from bridgemil.parallel import cores, each
from bridgemil.settings import parse
from bridgemil.storage.artifact import digest

RECIPE_VERSION = 3  # raise when the same settings give other windows


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    preset: str | None = None,
    label: str | None = None,
    unlabelled: bool = False,
    task: str | None = None,
    session: str | None = None,
    condition: str | None = None,
    raw: bool = False,
    derivatives: str | None = None,
    desc: str | None = None,
    clean: str | Sequence[str] = (),
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
        The cohort's folder. Interrupted, the same call resumes; finished, it does nothing.
    preset : str, optional
        ``adftd``, ``mumtaz2017`` or ``rockhill2021``: the paper's settings for these data sets. It settles label, task
        and session too.
    label : str, optional
        The column of participants.tsv or of the manifest with the diagnosis; in a manifest ``label`` if left out.
    unlabelled : bool, default False
        Prepare without diagnoses: every label is ''. Such a cohort, or one of a single class, can be inspected and
        audited; ``evaluate`` and ``train`` need two classes.
    task, session : str, optional
        Restrictions to one task or (BIDS) session. In a manifest the task is a column or a word of the file's name.
    condition : str, optional
        ``eyes_closed``, ``eyes_open`` or another word: by the column ``condition`` of a manifest, or in the file's
        name; with ``*`` or ``?`` a pattern of the name.
    raw : bool, default False
        For ADFTD: the raw recordings instead of the authors' cleaned ones.
    derivatives, desc : str, optional
        For BIDS: take the recordings from the folder ``derivatives/NAME``, with this ``desc`` (or ``proc``) entity.
    clean : str or sequence of str, optional
        Addresses (``file.py:NAME`` or ``package.module:NAME``) of functions of one ``mne.io.BaseRaw`` that return it
        cleaned, or None to leave it out; called in this order before channels are chosen and filters run.
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
    base = {} if preset is None else sources.preset_settings(preset).model_dump()
    cleaner = cleaning.Cleaner.of(clean)
    chosen = parse(PrepareSettings, base | settings | ({"clean": cleaner.steps} if cleaner else {}))
    options = sources.SourceOptions(
        label=label, unlabelled=unlabelled, task=task, session=session, condition=condition, raw=raw,
        derivatives=derivatives, desc=desc,
    )  # fmt: skip
    listing = sources.find(source, preset, options, classes)
    folder.refuse_foreign(out, listing)
    workers = jobs or cores()

    for module in ("mne.io", "mne.filter", "mne.epochs", "mne.cov", "scipy.signal", "pyarrow.parquet"):
        importlib.import_module(module)  # once, before workers are forked
    work: Any = None
    if cleaner is None:
        check = partial(scan_recording, cap=chosen.montage)
        found = dict(each(check, listing.recordings, jobs=workers, label="checking", show=progress))
    else:
        folder.refuse_other(out, chosen, overwrite)
        work = partial(cleaning.clean, cleaner=cleaner, folder=out / cleaning.FOLDER, cap=chosen.montage)
        with folder.only_writer(out):
            (out / cleaning.FOLDER).mkdir(exist_ok=True)
            found = dict(each(work, listing.recordings, jobs=workers, label="cleaning", show=progress))
        _drop_excluded(listing, found)
    channels, plans = validate(listing, [found[recording] for recording in listing.recordings], chosen)
    if listing.problems and not skip_bad:
        count = "1 problem" if len(listing.problems) == 1 else f"{len(listing.problems)} problems"
        written = f"only cleaned recordings were written, to {out}" if cleaner else "nothing was written"
        raise BadData(f"{source}: {count}; {written} (--skip-bad leaves out what is bad)", listing.problems)
    if not plans:
        left_out = [Problem(item.why, item.what) for item in listing.left_out]
        raise BadData(f"{source}: no usable recording", listing.problems or left_out)

    if chosen.montage is not None:
        listing.notes.append(f"montage {chosen.montage.sentence}")
        if far := chosen.montage.far(map(key, channels)):
            listing.notes.append(f"montage: farther than 15 mm: {', '.join(far)}")
    tasks = _tasks(listing, plans, out)
    labels = [task.label for task in tasks]
    if len(set(labels) - {""}) < 2:
        warnings.warn(folder.class_notes(labels)[0], BridgeMILWarning, stacklevel=2)
    recipes = {task.subject: task.recipe for task in tasks}
    recipe = digest([[*recipes.values()], channels, chosen.folds, chosen.burn_in, listing.columns])
    with folder.only_writer(out):
        if not folder.is_finished(out, recipe, recipes, overwrite):
            done = _segment(tasks, found, work, workers, progress)
            why = "no usable window is left after amplitude rejection"
            empty = [Problem(why, subject) for subject in recipes if done[subject] is None]
            if empty and not skip_bad:
                raise BadData(f"{out}: not finished, {len(empty)} problems (--skip-bad leaves them out)", empty)
            listing.problems += empty
            records = [record for subject in recipes if (record := done[subject]) is not None]
            headers = header_records([plan.scan for plan in plans])
            _finish(out, records, recipe, listing, channels, chosen, headers)
        if cleaner is not None:
            cleaning.tidy(out / cleaning.FOLDER, found.values())
    return Cohort.open(out)


def _segment(
    tasks: Sequence[SubjectTask], found: Mapping[Recording, RecordingScan], work: Any, jobs: int, show: bool
) -> dict[str, dict[str, Any] | None]:
    """The record of every subject, None where no window is left; what an earlier call finished is not done again.

    ``work`` cleans a recording; None without cleaning.
    """
    out = tasks[0].out
    (out / folder.SUBJECTS).mkdir(exist_ok=True)
    done = folder.already_done(out, {task.subject: task.recipe for task in tasks})
    rest = [task for task in tasks if task.subject not in done]
    # Cleaned signals are removed when a cohort is finished; those of subjects to be segmented again are made again.
    recordings = [plan.scan.recording for task in rest for plan in task.plans]
    gone = {recording.name for recording in recordings if not recording.path.exists()}
    if work is not None and gone:
        again = [recording for recording in found if recording.name in gone]
        deque(each(partial(work, with_signal=True), again, jobs=jobs, label="cleaning", show=show), maxlen=0)
    for task, record in each(segment_subject, rest, jobs=jobs, label="preparing", show=show):
        done[task.subject] = record
    return done


def _drop_excluded(listing: Listing, found: Mapping[Recording, RecordingScan]) -> None:
    """Take the recordings that a cleaning function excluded out of the listing, and who has no other."""
    excluded = [(one, why) for one in listing.recordings if (why := found[one].excluded)]
    listing.left_out += [LeftOut(f"{one.subject}, {one.name}", why) for one, why in excluded]
    listing.recordings = [one for one in listing.recordings if not found[one].excluded]
    empty = {one.subject for one in found} - {one.subject for one in listing.recordings}
    if empty:
        counts = Counter(listing.labels[subject] or "unlabelled" for subject in empty)
        each_class = ", ".join(f"{n} {label}" for label, n in sorted(counts.items()))
        listing.notes.append(f"cleaning excluded {len(empty)} of {len(listing.labels)} subjects: {each_class}")
    listing.left_out += [LeftOut(subject, "all its recordings were excluded by cleaning") for subject in sorted(empty)]
    listing.drop(empty)


def _tasks(listing: Listing, plans: Sequence[SegmentPlan], out: Path) -> list[SubjectTask]:
    """What to do for each subject, and the recipe that identifies its result."""
    import mne

    by_subject: dict[str, list[SegmentPlan]] = {}
    for plan in plans:
        by_subject.setdefault(plan.scan.recording.subject, []).append(plan)
    tasks = []
    for subject, own in by_subject.items():
        files, steps = list[dict[str, Any]](), list[Any]()
        for plan in own:
            scan, rate = plan.scan, plan.scan.native_rate(plan.spellings)
            about = {"file": scan.recording.name, "sha256": scan.sha256, "bytes": scan.n_bytes, "sfreq": scan.sfreq}
            about |= {"native_sfreq": rate, "seconds": scan.seconds, "reader_warnings": scan.warnings}
            about |= {"reference_electrode": scan.zero} if plan.zero in plan.names else {}
            files.append(about | ({"cleaning": scan.cleaning} if scan.cleaning else {}))
            electrodes = [list(plan.spellings.items()), plan.interpolate, plan.supports, plan.references, plan.zero]
            cleaned = scan.recording.path.parent.name if scan.cleaning else None
            steps.append([scan.sha256, cleaned, electrodes, rate, plan.high, plan.notch, scan.bad_spans])
        settings = own[0].settings.model_dump(exclude={"folds", "burn_in", "channels", "duplicates"})
        label = listing.labels[subject]
        recipe = digest([RECIPE_VERSION, mne.__version__, subject, label, settings, steps])
        tasks.append(SubjectTask(out, subject, label, tuple(own), tuple(files), recipe))
    return tasks


def _finish(
    out: Path, records: list[dict[str, Any]], recipe: str, listing: Listing, channels: list[str],
    settings: PrepareSettings, headers: Mapping[str, Mapping[str, Any]],
) -> None:  # fmt: skip
    """Gather the subjects' records into the cohort's two files."""
    if not records:
        raise BadData(f"{out}: no subject has a usable window")
    subjects = [SubjectRecord.from_row(record) for record in records]
    labels = [subject.label for subject in subjects]
    distorted = [
        f"{record['subject']}, {file['file']}: shorter than the filter, which distorts it; raise --low, or leave it out"
        for record in records
        for file in record["files"]
        if any("longer than the signal" in text for text in file["filter_warnings"])
    ]
    metadata = {
        "source": listing.source,
        "channels": channels,
        "sfreq": settings.sfreq,
        "n_times": settings.window_samples,
        "folds": settings.folds or folder.default_folds(labels),
        "burn_in": settings.burn_in,
        "settings": settings.model_dump(mode="json"),
        "versions": {"bridgemil": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("mne", "numpy", "scipy")},
        "recipe": recipe,
        "left_out": [{key: plain(text) for key, text in asdict(item).items()} for item in listing.left_out],
        "skipped": [plain(str(problem)) for problem in listing.problems],
        "notes": [plain(note) for note in listing.notes + folder.class_notes(labels) + distorted],
        "files": [{"subject": r["subject"], **file, **headers[file["file"]]} for r in records for file in r["files"]],
    } | ({"provenance": listing.provenance} if listing.provenance else {})
    clash = {name: f"{name}_source" for name in SubjectRecord.__dataclass_fields__}
    columns = {s: {clash.get(k, k): v for k, v in values.items()} for s, values in listing.columns.items()}
    cohort = Cohort(subjects, metadata, columns)
    folder.write_cohort(out, metadata | {"hash": cohort.hash}, cohort.rows())
