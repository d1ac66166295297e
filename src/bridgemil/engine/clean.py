"""Removing from a folder of runs what is not wanted: chosen runs, leftovers, and what no run uses any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from bridgemil.engine.benchmark import collect
from bridgemil.engine.execute import only_scheduler
from bridgemil.errors import BridgeMILError, one_of
from bridgemil.methods import short_name
from bridgemil.runs import PARTS, RunStore, fitted_settings, fold_of, stage1_identity
from bridgemil.storage.files import Taken, lock, refuse_link, remove


def leftovers(
    store: RunStore,
    methods: Sequence[str] = (),
    backbones: Sequence[str] = (),
    budgets: Sequence[str] = (),
    *,
    failed: bool = False,
    unfinished: bool = False,
    unused: bool = False,
) -> dict[str, list[Path]]:
    """What may go, by kind: finished runs of these methods, backbones and budgets, and what nobody works on.

    ``failed``: the records of failed runs and what was left of them. ``unfinished``: checkpoints, so that interrupted
    runs start again. ``unused``: Stage 1 encoders that no run left here was trained from, and all stored features (they
    are computed again when needed).
    """
    folders = {part: store.place(part) for part in (*PARTS, ".locks")}
    # What a killed process was writing or removing has a temporary name beside the run or encoder.
    patterns = {"unfinished": "*", "runs": ".*.part", "stage1": ".*.part"}
    entries = [entry for part, pattern in patterns.items() for entry in sorted(folders[part].glob(pattern))]
    locks = sorted(folders[".locks"].glob("*.lock"))
    records = sorted(folders["failed"].glob("*.json")) if failed else []
    refuse_link(*entries, *locks)
    alive = {file.stem for file in locks if not _free(file)} - {"scheduler"}
    if unused and alive:
        raise BridgeMILError(f"{store.root}: another process is working on this folder; wait, or without --unused")
    left = [entry for entry in entries if _identity(entry) not in alive]
    checkpoints = [entry for entry in left if entry.suffix == ".safetensors"]
    gone = {record.stem for record in records}
    gone |= {file.stem for file in checkpoints if store.is_done(file.stem) or store.place("stage1", file.stem).is_dir()}
    chosen = _chosen(store, {"method": methods, "backbone": backbones, "budget": budgets})
    going = {
        "half-written files": [entry for entry in left if entry.suffix != ".safetensors"],
        "failures": records,
        "checkpoints": [file for file in checkpoints if unfinished or file.stem in gone],
        "runs": [store.run_folder(identity) for identity in sorted(chosen)],
    }
    if unused:
        needed = set[str | None]()  # the encoders that the runs which stay were trained from
        for identity in store.finished() - chosen:
            metadata = store.metadata(identity)
            trained = fitted_settings(metadata), metadata["cohort"]["hash"], fold_of(metadata), metadata["seed"]
            needed.add(stage1_identity(*trained))
        going["Stage 1 encoders"] = [folders["stage1"] / name for name in store.names("stage1") if name not in needed]
        going["stores of features"] = [path for path in [folders["features"]] if path.is_dir()]
    return {kind: paths for kind, paths in going.items() if paths}


def size(going: Mapping[str, Sequence[Path]]) -> int:
    """Bytes of what may go."""
    files = [file for paths in going.values() for path in paths for file in (path, *path.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


def clean(store: RunStore, going: Mapping[str, Sequence[Path]]) -> None:
    """Remove them, while no benchmark runs on the folder; what somebody works on by now stays."""
    paths = [path for kind in going.values() for path in kind]
    with only_scheduler(store):
        refuse_link(*paths)
        for path in paths:
            is_partial = path.parent.name == "unfinished" or path.suffix == ".part"
            with suppress(Taken), lock(store.lock_file(_identity(path)), wait=False) if is_partial else nullcontext():
                remove(path)


def _chosen(store: RunStore, wanted: Mapping[str, Sequence[str]]) -> set[str]:
    """The finished runs that fit everything that is wanted; refuses a name that no run here has."""
    runs = collect(store) if any(wanted.values()) else None
    if runs is None or runs.empty:
        return set()
    runs["backbone"] = [short_name(name) for name in runs["backbone"].fillna("")]  # net.py:Tiny, wherever it was
    fitting = runs["identity"].notna()
    for column, values in wanted.items():
        names = [short_name(value) for value in values]
        for name in names:
            one_of(column, name, sorted(set(runs[column].dropna()) - {""}), f" (what {store.root} has)")
        fitting &= runs[column].isin(names) if names else True
    return set(runs["identity"][fitting])


def _identity(entry: Path) -> str:
    """The run or encoder that something unfinished belongs to."""
    return entry.name.lstrip(".").partition(".")[0]


def _free(path: Path) -> bool:
    """Whether no living process holds the lock."""
    try:
        with lock(path, wait=False):
            return True
    except Taken:
        return False
