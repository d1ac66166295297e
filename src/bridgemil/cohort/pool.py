"""Several cohorts as one: the electrodes they share, one set of classes, and a column that names each subject's site.

Windows are hard links to those of the cohorts where no electrode is left out or moved and the file system allows it.
Labels, ids and columns are adjusted; the signal is never filtered or resampled again, so the cohorts must have been
prepared alike.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bridgemil import __version__
from bridgemil.cohort import folder
from bridgemil.cohort.channels import display, key
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folder import SubjectRecord
from bridgemil.cohort.sources import respelt
from bridgemil.cohort.tables import AGE, SEX, folded, is_label, is_missing
from bridgemil.errors import BadData, BadUse, Problem
from bridgemil.parallel import each
from bridgemil.storage.artifact import digest, is_artifact
from bridgemil.storage.files import new_folder

SITE = "site"
SPELLINGS = {"F": ("f", "female", "woman"), "M": ("m", "male", "man")}  # of sex
# Settings of `prepare` that change which windows there are, but not what a window holds: differences are noted.
NOTED = ("bad_annotations", "bad_channels", "reject_uv", "allow_low_rate", "recorded_reference")


def pool(
    cohorts: Sequence[Cohort | str | Path],
    out: str | Path,
    *,
    sites: Sequence[str] | None = None,
    classes: Mapping[str, str] | Iterable[str] | None = None,
    progress: bool = True,
) -> Cohort:
    """Join several cohorts into one, for ``evaluate --leave-out site`` or as further training data.

    Parameters
    ----------
    cohorts : sequence of Cohort, str or Path
        Two or more, prepared with the same rate, window, overlap, band, notch and reference.
    out : str or Path
        Folder of the new cohort. If it holds the same pool already, nothing is done.
    sites : sequence of str, optional
        Name of each cohort's site; by default its folder's name without ``.cohort``. Becomes the column ``site`` and
        the beginning of every subject's id.
    classes : dict or sequence of str, optional
        Old label to new, over all cohorts; subjects with other labels are left out and listed.
    progress : bool, default True
        Whether to draw a progress bar on standard error.

    Returns
    -------
    Cohort
        Opened from ``out``. Channels are those that all cohorts have (10-20 and 10-10 spellings are one), in the
        order of the first. The columns age and sex (or gender) are joined under these names.

    Raises
    ------
    BadData
        If the cohorts differ in what windows must share; says how to prepare them again.
    """
    opened = [one if isinstance(one, Cohort) else Cohort.open(one) for one in cohorts]
    members = _members(opened, sites, classes)
    refuse_other_signals([(member.name, member.cohort) for member in members], "cohorts that are pooled")
    shared = [name for name in members[0].keys if all(name in member.keys for member in members)]
    if not shared:
        own = "; ".join(f"{member.site} has {' '.join(member.cohort.channels)}" for member in members)
        raise BadData(f"the cohorts have no electrode in common: {own}")
    channels, out = display(shared, members[0].cohort.channels), Path(out)
    recipe = digest([[m.site, m.cohort.hash, m.rows] for m in members])
    if out.exists() and any(out.iterdir()):
        if is_artifact(out) and Cohort.open(out).metadata.get("recipe") == recipe:
            return Cohort.open(out)
        raise BadUse(f"{out}: exists and is not this pool; choose another OUT")
    with new_folder(out.absolute()) as partial:
        tasks = [(member, subject) for member in members for subject in member.labels]
        store = functools.partial(_store, partial, channels)
        records = [record for _, record in each(store, tasks, jobs=1, label="pooling", show=progress)]
        metadata = _metadata(members, channels, [record.label for record in records]) | {"recipe": recipe}
        whole = Cohort(records, metadata, _columns(members))
        folder.write_cohort(partial, metadata | {"hash": whole.hash}, whole.rows())
    return Cohort.open(out)


@dataclass(frozen=True)
class _Member:
    """One of the cohorts, with the new label of each subject that is kept."""

    site: str
    cohort: Cohort
    labels: Mapping[str, str]

    def subject(self, own: str) -> str:
        """The subject's id in the pool."""
        return f"{self.site}_{own}"

    @property
    def name(self) -> str:
        return str(self.cohort.path or self.site)

    @property
    def keys(self) -> list[str]:
        """Its electrodes, however they are spelt."""
        return [key(name) for name in self.cohort.channels]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What is known of the subjects that are kept, beside their records; with the new label."""
        columns = self.cohort._columns
        return [{"subject": who, "label": label} | columns.get(who, {}) for who, label in self.labels.items()]


def _members(
    cohorts: Sequence[Cohort], sites: Sequence[str] | None, classes: Mapping[str, str] | Iterable[str] | None
) -> list[_Member]:
    """The cohorts under their sites' names, with the subjects that are kept."""
    if len(cohorts) < 2:
        raise BadUse(f"a pool needs two cohorts or more, got {len(cohorts)}")
    folders = [None if cohort.path is None else cohort.path.absolute().name for cohort in cohorts]
    usual = [f"site-{i}" if name is None else name.removesuffix(".cohort") for i, name in enumerate(folders, 1)]
    names = [str(site).strip() for site in sites or usual]
    if len(names) != len(cohorts) or len(set(names)) < len(names) or not all(names):
        given = ", ".join(names)
        raise BadUse(f"every cohort needs a site's name of its own (--sites a,b); {len(cohorts)} cohorts, got: {given}")
    found = {label for cohort in cohorts for label in cohort.labels}
    if "" in found and found != {""}:
        bare = ", ".join(name for name, cohort in zip(names, cohorts, strict=True) if "" in cohort.labels)
        raise BadData(f"{bare}: has no labels and the others do; prepare it again with --label")
    new = dict(classes) if isinstance(classes, Mapping) else {label: label for label in classes or found}
    if unknown := sorted(set(new) - found):
        raise BadUse(f"--classes names {', '.join(map(repr, unknown))}, but the labels are {', '.join(sorted(found))}")
    for label, other in respelt(new.values()).items():
        how = f"--classes {label}={other},... joins them"
        raise BadData(f"the labels {label!r} and {other!r} differ only in capitals or spaces; {how}")
    members = []
    for site, cohort in zip(names, cohorts, strict=True):
        kept = {subject: new[record.label] for subject, record in cohort.records.items() if record.label in new}
        if not kept:
            raise BadData(f"{site}: no subject is of the classes asked for; its labels are {', '.join(cohort.classes)}")
        members.append(_Member(site, cohort, kept))
    ids = Counter(member.subject(subject) for member in members for subject in member.labels)
    if twice := [subject for subject, count in ids.items() if count > 1]:
        raise BadUse(f"two subjects would be called {twice[0]}; name the sites otherwise with --sites")
    return members


def _alike(cohort: Any) -> dict[str, Any]:
    """What the windows of all cohorts must share, by option of ``prepare``."""
    prepared, signal = cohort.preparation, cohort.signal
    filters = {"--low": signal.low, "--high": signal.high, "--notch": signal.notch}
    return {
        "--sfreq": signal.sfreq, "--window": signal.n_times / signal.sfreq, "--overlap": prepared.get("overlap", 0.0),
        "--reference": tuple(prepared.get("reference") or ()),
        "--clean": tuple(f"{step['address']} (code {step['code'][:8]})" for step in prepared.get("clean") or ()),
        **(filters if prepared else dict.fromkeys(filters, "unknown (from arrays)")),
    }  # fmt: skip


def _shown(value: Any) -> str:
    """A setting as an option's value."""
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(map(_shown, value)) or "none" if isinstance(value, tuple) else str(value or "none")


def refuse_other_signals(named: Sequence[tuple[str, Any]], what: str) -> None:
    """Refuse cohorts, each with its name, whose windows are unlike the first's, and say in which options.

    The first may be the metadata of a model, which state its training cohort's.
    """
    (first, cohort), problems = named[0], []
    wanted = _alike(cohort)
    for name, member in named[1:]:
        own = _alike(member)
        differing = [f"{k} {_shown(own[k])}, not {_shown(value)}" for k, value in wanted.items() if value != own[k]]
        if differing:
            problems.append(Problem(", ".join(differing), name))
    if problems:
        advice = f"prepare these again with the options of {first}, `bridgemil prepare SOURCE OUT … --overwrite`"
        raise BadData(f"{what} must be prepared alike; {advice}", problems)


def _store(out: Path, channels: Sequence[str], task: tuple[_Member, str]) -> SubjectRecord:
    """Write one subject; its windows are linked where no electrode is left out or moved."""
    member, subject = task
    cohort, wanted, own = member.cohort, [key(name) for name in channels], member.keys
    record = cohort.records[subject]
    names = tuple(f"{member.site}/{name}" for name in record.recordings)
    record = replace(record, subject=member.subject(subject), label=member.labels[subject], recordings=names)
    if wanted == own and cohort._artifact is not None:
        source = folder.open_subject(cohort._artifact, subject)
        folder.write_subject(out, asdict(record), source.path(folder.WINDOWS), source.path(folder.STARTS))
        return record
    windows = cohort.windows(subject)[:, [own.index(name) for name in wanted]]
    record = folder.describe(record.subject, record.label, windows, names, record.recording_windows)
    folder.write_subject(out, asdict(record), windows, cohort.window_starts(subject))
    return record


def _columns(members: Sequence[_Member]) -> dict[str, dict[str, Any]]:
    """What else is known of each subject by its new id, under one name for one thing, and its site."""
    titles: dict[str, str] = {}  # folded to the spelling of the first cohort that has it
    columns: dict[str, dict[str, Any]] = {}
    for member in members:
        rows = member.rows
        own = [member.cohort.records[row["subject"]].label for row in rows]
        told = [name for name in rows[0] if is_label(name, [row[name] for row in rows], own)]
        for row in rows:
            known = columns[member.subject(row.pop("subject"))] = {SITE: member.site}
            row.pop("label")
            for name, value in row.items():
                if name in told:  # the label as the site states it: missing elsewhere, it would name the site
                    continue
                common = "age" if folded(name) in AGE else "sex" if folded(name) in SEX else folded(name)
                title = titles.setdefault(common, common if common in ("age", "sex") else name)
                title = f"{name}_source" if title == SITE else name if title in known else title
                known[title] = _sex(value) if title == "sex" else None if is_missing(value) else value
    for name in {name for known in columns.values() for name in known}:
        if len({type(known[name]) for known in columns.values() if known.get(name) is not None}) > 1:
            for known in columns.values():  # a column of a table has one type
                known[name] = None if known.get(name) is None else str(known[name])
    return columns


def _sex(value: Any) -> Any:
    """F or M for the usual words; codes stay as they are."""
    text = str(value).strip().lower()
    return next((short for short, words in SPELLINGS.items() if text in words), None if is_missing(value) else value)


def _metadata(members: Sequence[_Member], channels: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """The content of cohort.json, but for what identifies the pool."""
    first, wanted = members[0].cohort, [key(name) for name in channels]
    notes, left_out, files, skipped = list[str](), list[dict[str, str]](), list[dict[str, Any]](), list[str]()
    for member in members:
        site, cohort, known = member.site, member.cohort, member.cohort.metadata
        counts = Counter(member.labels.values())
        classes = ", ".join(f"{n} {label or 'without a label'}" for label, n in sorted(counts.items()))
        notes.append(f"site {site}: {classes} (from {member.name})")
        left_out += [
            {"what": member.subject(subject), "why": f"class {record.label!r} is not among the classes asked for"}
            for subject, record in cohort.records.items()
            if subject not in member.labels
        ]
        absent = [name for name in cohort.channels if key(name) not in wanted]
        if absent:
            left_out.append({"what": f"{site}: {' '.join(absent)}", "why": "not an electrode of all cohorts"})
        left_out += [item | {"what": f"{site}: {item['what']}"} for item in known["left_out"]]
        own = folder.class_notes(cohort.labels)  # another may have more
        notes += [f"{site}: {note}" for note in known["notes"] if note not in own]
        skipped += [f"{site}: {text}" for text in known.get("skipped", [])]
        files += _files(member, max((file.get("identity") or 0 for file in files), default=0))
    for name in NOTED:
        values = {member.site: member.cohort.preparation.get(name) for member in members}
        if len(set(values.values())) > 1:
            notes.append(f"prepared with {name} " + ", ".join(f"{_shown(v)} ({site})" for site, v in values.items()))
    rates = [rate for member in members if (rate := member.cohort.native_sfreq) is not None]
    settings = first.preparation
    if settings:
        settings |= {"channels": list(channels), "folds": None, "burn_in": first.burn_in}
        settings.pop("recorded_reference", None)  # of each file, where it has one
        if len({digest(member.cohort.preparation.get("montage")) for member in members}) > 1:
            settings.pop("montage", None)  # of each site
    origins = [
        {"site": m.site, "cohort": m.name, "hash": m.cohort.hash, "subjects": len(m.labels)}
        | {"same_channels": m.keys == wanted, "settings": m.cohort.preparation}
        | {"source": m.cohort.metadata["source"], "versions": m.cohort.metadata.get("versions", {})}
        for m in members
    ]
    return {
        "source": "pool", "channels": list(channels), "sfreq": first.sfreq, "native_sfreq": min(rates, default=None),
        "n_times": first.n_times, "folds": folder.default_folds(labels), "burn_in": first.burn_in,
        "settings": settings, "versions": {"bridgemil": __version__}, "pooled": origins, "left_out": left_out,
        "skipped": skipped, "notes": notes + folder.class_notes(labels), "files": files,
    }  # fmt: skip


def _files(member: _Member, identities: int) -> list[dict[str, Any]]:
    """The records of the kept subjects' files under their new names.

    Numbers of persons continue after those of the cohorts before, since they count within one cohort; so do days, which
    therefore cannot be compared and are left out.
    """
    return [
        {name: value for name, value in file.items() if name != "day"}
        | {"subject": member.subject(file["subject"]), "file": f"{member.site}/{file['file']}"}
        | ({"identity": file["identity"] + identities} if file.get("identity") else {})
        for file in member.cohort.metadata["files"]
        if file["subject"] in member.labels
    ]
