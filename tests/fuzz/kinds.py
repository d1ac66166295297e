"""The kinds of hostile input, by name. A kind is added by adding a line; the tests loop over them."""

from __future__ import annotations

from fuzz.kind import Kind
from fuzz.own_folders import OWN_FOLDERS
from fuzz.recording_files import RECORDINGS
from fuzz.text_files import SIDE_FILES, Manifest, Names, Settings, Splits

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (*RECORDINGS, *SIDE_FILES, Manifest(), Names(), Splits(), Settings(), *OWN_FOLDERS)
}
