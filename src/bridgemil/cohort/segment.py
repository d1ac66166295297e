"""From one recording to its windows: pick, (interpolate, re-reference,) band-pass, notch, resample, segment.

MNE's filters with their defaults, filtered before resampling, in microvolts. Where possible, filtering and resampling
are one transform (see ``filters``); concatenated recordings and those too short for that go through MNE's steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.channels import template
from bridgemil.cohort.filters import Grid, filter_and_resample, kernel
from bridgemil.cohort.folder import describe, write_subject
from bridgemil.cohort.formats import Unusable
from bridgemil.cohort.scan import RecordingScan, collected_warnings, open_raw
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.errors import BadData

if TYPE_CHECKING:
    from mne.io import BaseRaw


@dataclass(frozen=True)
class SegmentPlan:
    """How one recording is segmented; decided for the whole cohort before any is."""

    scan: RecordingScan
    settings: PrepareSettings
    spellings: dict[str, str]  # channel to keep, in order -> its name in this file
    interpolate: tuple[str, ...]  # those of them to rebuild from the others
    supports: dict[str, str]  # further electrodes that help to rebuild them
    references: tuple[str, ...]  # names in this file to re-reference to
    high: float | None  # low-pass and notches as this recording's rate allows
    notch: tuple[float, ...]
    zero: str | None = None  # name of the electrode that is itself the reference: not read, added as zeros

    @property
    def names(self) -> list[str]:
        """The channels that are used, by their names in this file."""
        return list(dict.fromkeys([*self.spellings.values(), *self.supports.values(), *self.references]))


class Segments(NamedTuple):
    """The windows of one recording and what was dropped on the way."""

    windows: NDArray[np.float32]  # n x channels x time, microvolt
    starts: NDArray[np.float64]  # seconds from the recording's start
    counts: dict[str, int]  # windows by what became of them, as the cohort's record of the file has it
    warnings: list[str]


def segment(plan: SegmentPlan) -> Segments:
    """Read, filter and segment one recording."""
    settings, notes = plan.settings, list[str]()
    try:
        with collected_warnings(notes):
            raw = open_raw(plan.scan.recording.path, [name for name in plan.names if name != plan.zero])
            signal = preprocess(raw, plan)  # channels x time
    except Exception as error:  # the message of a library may quote the header
        why = str(error) if isinstance(error, Unusable) else f"{type(error).__name__} in filtering or reading"
        raise BadData("preparation stopped", [plan.scan.problem(f"cannot be segmented: {why}")]) from error
    firsts = np.arange(0, signal.shape[1] - settings.window_samples + 1, settings.step_samples)
    starts = firsts / settings.sfreq
    marked = touching(starts, settings.window_seconds, plan.scan.bad_spans)
    keep = ~marked if settings.bad_annotations == "drop" else np.ones_like(marked)
    windows = np.lib.stride_tricks.sliding_window_view(signal, settings.window_samples, axis=1)
    windows = windows[:, firsts[keep]]  # channels x windows x time
    quiet = np.ones(windows.shape[1], dtype=bool)
    if settings.reject_uv is not None:
        quiet = np.ptp(windows, axis=2).max(axis=0, initial=0) <= settings.reject_uv
        windows = windows[:, quiet]
    windows, starts = np.ascontiguousarray(windows.transpose(1, 0, 2)), starts[keep][quiet]
    counts = {"windows": quiet, "marked_bad": marked, "dropped_marked_bad": ~keep, "dropped_amplitude": ~quiet}
    return Segments(windows, starts, {name: int(hit.sum()) for name, hit in counts.items()}, notes)


def preprocess(raw: BaseRaw, plan: SegmentPlan) -> NDArray[np.float32]:
    """Pick, re-reference, filter and resample an opened recording, which is changed (channels x time, microvolt)."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # the order of summation, and so the windows, would depend on the number of threads
        _pick(raw, plan)
        sfreq, target = float(raw.info["sfreq"]), plan.settings.sfreq
        taps, grid = kernel(sfreq, plan.settings.low, plan.high, plan.notch), Grid.plan(raw.n_times, sfreq, target)
        same_rate = np.isclose(sfreq, target, rtol=1e-6, atol=0)
        if same_rate or _is_joined(raw) or not grid.has_room(len(taps) // 2):
            signal = _in_steps(raw, plan)
        else:
            signal = filter_and_resample(raw.get_data(verbose="WARNING"), taps, grid, scale=1e6)
    if not np.isfinite(signal).all():
        raise Unusable("filtering gave NaN or infinite values")
    return signal


def _pick(raw: BaseRaw, plan: SegmentPlan) -> None:
    """Keep the plan's channels in its order, the bad ones rebuilt, against the reference asked for."""
    import mne

    names = {name: channel for channel, name in (plan.spellings | plan.supports).items()}
    raw.reorder_channels([name for name in plan.names if name != plan.zero])  # drops what is not named
    average = plan.settings.reference == ("average",)
    if plan.references or plan.interpolate or average or plan.zero in plan.names:
        raw.load_data(verbose="WARNING")
    raw.set_channel_types(dict.fromkeys(raw.ch_names, "eeg"), verbose="ERROR")
    if plan.zero in plan.names:  # the electrode that is itself the reference
        raw.set_montage(None, verbose="ERROR")
        mne.add_reference_channels(raw, plan.zero, copy=False)
        raw.reorder_channels(plan.names)
    if plan.references:
        raw.set_eeg_reference(list(plan.references), verbose="ERROR")
    raw.rename_channels(names, verbose="ERROR")
    if plan.interpolate:
        _interpolate(raw, list(names.values()), plan)
    if raw.ch_names != list(plan.spellings):
        raw.reorder_channels(list(plan.spellings))  # drops the supports and the references
    if average:
        raw.set_eeg_reference("average", verbose="ERROR")


def _in_steps(raw: BaseRaw, plan: SegmentPlan) -> NDArray[np.float32]:
    """MNE's steps, one after the other (channels x time, microvolt)."""
    raw.load_data(verbose="WARNING")
    raw.filter(plan.settings.low, plan.high, picks="all", verbose="WARNING")
    if plan.notch:
        raw.notch_filter(plan.notch, picks="all", verbose="WARNING")
    raw.resample(plan.settings.sfreq, verbose="WARNING")  # does nothing at the same rate
    signal: NDArray[np.float64] = raw.get_data(verbose="WARNING")
    signal *= 1e6
    return signal.astype(np.float32)


def _is_joined(raw: BaseRaw) -> bool:
    """Whether the recording was joined from pieces that MNE filters or resamples one by one."""
    marks = (text.lower() for text in raw.annotations.description)
    return len(raw.filenames) > 1 or any(text.startswith(("edge", "bad_acq_skip")) for text in marks)


def _interpolate(raw: BaseRaw, electrodes: list[str], plan: SegmentPlan) -> None:
    """Rebuild bad channels by spherical splines from every electrode of the recording with a known place."""
    montage = template()
    placed = {name.lower() for name in montage.ch_names}
    raw.reorder_channels([name for name in electrodes if name.lower() in placed or name in plan.spellings])
    raw.set_montage(montage, match_case=False, on_missing="raise", verbose="ERROR")
    raw.info["bads"] = list(plan.interpolate)
    raw.interpolate_bads(reset_bads=True, verbose="WARNING")


def touching(starts: NDArray[np.float64], length: float, spans: Sequence[tuple[float, float]]) -> NDArray[np.bool_]:
    """Which windows [start, start + length) touch a marked stretch; a mark without duration is a point."""
    hit = np.zeros(len(starts), dtype=bool)
    for onset, duration in spans:
        begins_before_end = onset < starts + length - 1e-9
        ends_after_start = onset + duration > starts + 1e-9 if duration else onset >= starts - 1e-9
        hit |= begins_before_end & ends_after_start
    return hit


@dataclass(frozen=True)
class SubjectTask:
    """Everything a worker needs to prepare one subject; ``recipe`` identifies its result."""

    out: Path
    subject: str
    label: str
    plans: tuple[SegmentPlan, ...]
    files: tuple[dict[str, Any], ...]
    recipe: str


def segment_subject(task: SubjectTask) -> dict[str, Any] | None:
    """Segment all recordings of one subject and write its folder; its record, or None if no window is left."""
    parts = [segment(plan) for plan in task.plans]
    lengths = [len(part.windows) for part in parts]
    if not sum(lengths):
        return None
    windows = np.concatenate([part.windows for part in parts]) if len(parts) > 1 else parts[0].windows
    starts = np.concatenate([part.starts for part in parts])
    names = [plan.scan.recording.name for plan in task.plans]
    record = asdict(describe(task.subject, task.label, windows, names, lengths)) | {"recipe": task.recipe}
    pairs = zip(task.files, parts, strict=True)
    record["files"] = [{**file, **part.counts, "filter_warnings": part.warnings} for file, part in pairs]
    write_subject(task.out, record, windows, starts)
    return record
