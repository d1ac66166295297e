"""The file formats of recordings: their endings, their names, and what lies beside a recording without being one."""

from __future__ import annotations

from pathlib import Path

# MNE reads a few more (its readers are tried on any file that is named); these are the ones scans for in folders.
FORMATS = {
    ".edf": "EDF", ".bdf": "BDF", ".gdf": "GDF", ".vhdr": "BrainVision", ".set": "EEGLAB", ".fif": "FIF", ".mff": "EGI",
    ".cnt": "Neuroscan or ANT", ".cdt": "Curry", ".lay": "Persyst", ".nedf": "Neuroelectrics", ".nxe": "eXimia",
    ".eeg": "Nihon Kohden",
}  # fmt: skip
ABSENT = "its content is not here (a broken link; `datalad get` or `git annex get` fetches it)"


def sentence() -> str:
    """The formats for a message: names and endings."""
    return "formats that are read: " + ", ".join(f"{name} ({ending})" for ending, name in FORMATS.items())


def is_recording(path: Path) -> bool:
    """Whether a file or folder is, by its name, the one to open a recording by.

    Parameters
    ----------
    path
        An existing file, or a folder of a format that is one (.mff). BrainVision's samples (.eeg beside a .vhdr) and
        hidden files are no recordings.
    """
    ending = path.suffix.lower()
    if path.name.startswith(".") or ending not in FORMATS:
        return False
    if ending == ".eeg":
        return not any(path.with_suffix(header).is_file() for header in (".vhdr", ".VHDR"))
    return path.is_dir() if ending == ".mff" else path.is_file()


def is_absent(path: Path) -> bool:
    """Whether a recording's file is a link to content that is not there, as git-annex leaves them.

    Parameters
    ----------
    path
        A file of any name.
    """
    try:
        return path.suffix.lower() in (*FORMATS, ".fdt") and path.is_symlink() and not path.exists()
    except (OSError, ValueError):  # it leads in a circle, or no file can have such a name
        return False
