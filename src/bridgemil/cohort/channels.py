"""Electrode names: one electrode however its recorder spells it, and the order electrodes are kept in.

Recorders write the same site as ``EEG Fp1-LE``, ``Fp1.``, ``FP1`` or ``Fp1-Ref``, and the 10-20 names T3, T4, T5,
T6 became T7, T8, P7, P8 in the 10-10 system. ``electrode`` reduces all of these to one 10-10 name, and returns None
for anything that is not a scalp site: bipolar leads (``Fp1-F7``), ears and mastoids, EXG, triggers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mne.channels import DigMontage

ADFTD_ORDER = tuple("Fp1 Fp2 F7 F3 Fz F4 F8 T3 C3 Cz C4 T4 T5 P3 Pz P4 T6 O1 O2".split())

OLD_TO_NEW = {"T3": "T7", "T4": "T8", "T5": "P7", "T6": "P8"}

# Rows of the 10-10 and 10-5 systems from the nose to the neck; a row's central and temporal parts share a rank.
_ROWS = (
    ("N",), ("Fp",), ("AFp",), ("AF",), ("AFF",), ("F",), ("FFC", "FFT"), ("FC", "FT"), ("FCC", "FTT"),
    ("C", "T"), ("CCP", "TTP"), ("CP", "TP"), ("CPP", "TPP"), ("P",), ("PPO",), ("PO",), ("POO",), ("O",), ("OI",),
    ("I",),
)  # fmt: skip
_RANK = {row.lower(): (rank, row) for rank, rows in enumerate(_ROWS) for row in rows}
_SITE = re.compile(r"^([a-z]+?)(z|10|[1-9])(h?)$")
# What may follow a hyphen and still leave the lead a single electrode against a reference.
_REFERENCES = set("le re ref a1 a2 a1a2 m1 m2 m1m2 ar av avg avgref car linked org g2 0 1".split())


# Spellings of one reference, in channel names and in BIDS sidecars: the electrodes that are linked, and other words.
_SAME_REFERENCE: dict[str, tuple[set[str], set[str]]] = {
    "linked mastoids": ({"M1", "M2"}, {"MASTOID", "MASTOIDS", "LM"}),
    "linked ears": ({"A1", "A2"}, {"EAR", "EARS", "EARLOBE", "EARLOBES", "LOBES", "LE", "LINKED"}),
    "average": (set(), {"AVERAGE", "AVG", "AVGREF", "AV", "AR", "CAR"}),
}
_SIDES = {"LEFT": "1", "RIGHT": "2"}
_NO_SITE = {"REF", "RE", "REFERENCE", "ORG", "G2", "COMMON", "UNKNOWN", "N", "A"}  # "n/a" among them


def parts(name: str) -> tuple[str, str]:
    """The site and the reference in a channel's name, in small letters; '' for what it does not say."""
    text = re.sub(r"^eeg[\s_:.-]*", "", name.strip().lower())
    text = re.sub(r"[\s._]+$", "", text)
    site, _, against = text.partition("-")
    return re.sub(r"[\s._]+", "", site), re.sub(r"[\s_./+()]+", "", against) or against


def spelling(name: str) -> str | None:
    """The electrode's name in the usual capitals, old names (T3) left as they are; None if it is no scalp site."""
    site, against = parts(name)
    if against and against not in _REFERENCES:
        return None
    match = _SITE.match(site)
    if match is None or match[1] not in _RANK:
        return None
    return _RANK[match[1]][1] + match[2] + match[3]


def template() -> DigMontage:
    """MNE's template positions of the 10-05 system, in metres."""
    from mne.channels import get_builtin_montages, make_standard_montage

    name = "colin27_1005" if "colin27_1005" in get_builtin_montages() else "standard_1005"  # one montage, renamed
    return make_standard_montage(name)


def electrode(name: str) -> str | None:
    """The 10-10 name of the scalp electrode that a recording's channel name stands for, or None."""
    usual = spelling(name)
    return OLD_TO_NEW.get(usual, usual) if usual else None


def key(name: str) -> str:
    """What two channel names must share to be one channel: the electrode, or the name itself if it is no electrode."""
    ear = re.fullmatch(r"(?:eeg[\s_:.-]*)?([am][12])(?:-(?:ref|le|re|av|avg))?", name.strip().lower())
    return electrode(name) or (ear[1].upper() if ear else name.strip())


def reference(names: Iterable[str]) -> str:
    """The reference that the channels' names state, in capitals, several joined by a plus: ``Fp1-LE`` gives LE."""
    against = {parts(name)[1] for name in names if electrode(name)}
    return "+".join(sorted(word.upper() for word in against if word and not word.isdigit()))


def reference_name(text: str) -> str | None:
    """One name for all spellings of a reference: ``LE``, ``A1-A2``, ``(A1+A2)/2`` are linked ears.

    ``linked ears``, ``linked mastoids``, ``average``, electrodes joined by a plus, or else the text in capitals; None
    for words that name no electrode, such as REF.
    """
    found = set(re.findall(r"[A-Z]+[0-9]*", text.upper()))
    sides = [number for side, number in _SIDES.items() if side in found]
    for name, (linked, spellings) in _SAME_REFERENCE.items():
        if linked and linked <= found:
            return name
        if linked and found & spellings and len(sides) == 1:  # "left mastoid"
            return f"{min(linked)[0]}{sides[0]}"
    sites = {electrode(word) or word for word in found if electrode(word) or re.fullmatch("[AM][12]", word)}
    if sites:
        return "+".join(sorted(sites))
    same = [name for name, (_, spellings) in _SAME_REFERENCE.items() if found & spellings]
    return same[0] if same else " ".join(sorted(found - _NO_SITE)) or None


def reference_electrode(text: str) -> str | None:
    """The electrode, if the stated reference is exactly one (``Cz``); None for free text, ears and averages."""
    return None if "-" in text else electrode(text)


def order(electrodes: Iterable[str]) -> list[str]:
    """Sort 10-10 names: the ADFTD montage first, in its order, then the others front to back and left to right."""
    first = [key(name) for name in ADFTD_ORDER]

    def position(name: str) -> tuple[int, float, float, str]:
        if name in first:
            return 0, first.index(name), 0, name
        match = _SITE.match(name.lower())
        if match is None or match[1] not in _RANK:  # no electrode: after all of them
            return 2, 0, 0, name
        rank = _RANK[match[1]][0]
        if match[2] == "z":
            return 1, rank, 0, name
        number = int(match[2])
        distance: float = number if number % 2 else number - 1  # 1 and 2 lie equally far from the midline
        if match[3]:
            distance = max(distance - 1, 0.5)  # an "h" site lies half a step towards the midline
        return 1, rank, -distance if number % 2 else distance, name

    return sorted(electrodes, key=position)


def display(electrodes: Sequence[str], spelled_by: Iterable[str]) -> list[str]:
    """Name electrodes as the given recording does (T3 or T7), in the usual capitals."""
    names = {key(name): spelling(name) or name.strip() for name in spelled_by}
    return [names.get(e, e) for e in electrodes]
