"""Caps whose electrodes have names of their own: GSN-HydroCel (E1, …), BioSemi (A1 to H32), or a map of the user's.

An electrode of such a cap stands for the nearest site of the 10-10 system by the positions of MNE's templates, or, with
a table (columns ``from`` and ``to``), for the site that the user names. The 10-20 sites, which most cohorts share, are
assigned first; a site is given once, to an electrode on its side of the head.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from bridgemil.cohort import channels, tables
from bridgemil.errors import BadUse, NotFound, did_you_mean

if TYPE_CHECKING:
    from mne.channels import DigMontage

RADIUS = 95.0  # of MNE's head, in mm: distances are along its surface
# The farthest electrodes, in mm. EGI's own 10-20 equivalents lie up to 28 mm from these sites in MNE's templates;
# neighbours of the 10-10 system are 36 mm apart.
FAR_FIRST, FAR = 30.0, 20.0
MIDLINE = 8.0  # mm to either side
ROWS_10_10 = {"Fp", "AF", "F", "FC", "FT", "C", "T", "CP", "TP", "P", "PO", "O", "I"}
EGI = ("GSN", "EGI")


class Cap(BaseModel):
    """Which site each electrode stands for; a part of the cohort's settings, so that a model maps recordings alike."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str  # MNE's, or that of the table
    sites: dict[str, str]  # electrode, in small letters -> 10-10 site, or '' where none is near
    distances: dict[str, float] = {}  # site -> mm

    def keys(self, names: Sequence[str]) -> dict[str, str]:
        """The channel (see ``channels.key``) that each name in a file stands for.

        A file in which fewer than half of the names are the cap's has names of the 10-10 system, and is read so.
        """
        keys = {name: channels.key(name) for name in names}
        own = {name: self.sites[folded] for name in names if (folded := _folded(name)) in self.sites}
        if 2 * len(own) < len(names):
            return keys
        unplaced = {name: f"{name} ({self.name})" for name in own if channels.electrode(name)}  # BioSemi's C3 is not C3
        return keys | unplaced | {name: site for name, site in own.items() if site}

    def template(self) -> DigMontage | None:
        """MNE's positions of its electrodes; None for a table."""
        return None if self.name.lower().endswith(".tsv") else _montage(self.name)

    @property
    def sentence(self) -> str:
        """How many electrodes have a site and how far off they are, for the cohort's record."""
        placed = f"{self.name}: {len(set(self.sites.values()) - {''})} electrodes stand for 10-10 sites"
        if not self.distances:
            return placed
        values = list(self.distances.values())
        return f"{placed}, at a median distance of {np.median(values):.1f} mm (at most {max(values):.1f})"

    def far(self, sites: Iterable[str], limit: float = 15.0) -> list[str]:
        """The electrodes that lie farther from these sites than the limit in mm: ``E11 for Fz (23 mm)``."""
        names = {site: name for name, site in reversed(self.sites.items())}
        near = [site for site in sites if self.distances.get(site, 0.0) > limit]
        return [f"{names[site].upper()} for {site} ({self.distances[site]:.0f} mm)" for site in near]


def _folded(name: str) -> str:
    """A name to compare: ``EEG E001-REF`` and ``e1`` are equal."""
    return re.sub(r"(?<=[a-z])0+(?=\d)", "", channels.parts(name)[0])


def cap(name: str) -> Cap:
    """The cap of a name that MNE knows, or of a table (TSV) with the columns ``from`` and ``to``."""
    from mne.channels import get_builtin_montages

    if name.lower().endswith(".tsv"):
        return _of_table(Path(name))
    known = get_builtin_montages()
    if name not in known:
        more = "" if Path(name).suffix else ", or a table, FILE.tsv, with the columns from and to"
        raise BadUse(f"must be one of {', '.join(known)}{more}; got {name!r}{did_you_mean(name, known)}")
    if name in ("biosemi16", "biosemi32", "biosemi64"):  # their sites have 10-10 names in MNE, in the order A1 to B32
        sites = [str(channels.electrode(site)) for site in _montage(name).ch_names]
        names = [f"{bank}{number}" for bank in "ab" for number in range(1, 33)]
        return Cap(name=name, sites=dict(zip(names, sites, strict=False)), distances=dict.fromkeys(sites, 0.0))
    found = _nearest(name)
    if not any(found.sites.values()):
        raise BadUse(f"{name}: no electrode of this cap is near a site of the 10-10 system")
    return found


def _of_table(path: Path) -> Cap:
    if not path.is_file():
        raise NotFound(f"{path}: no such table")
    columns, rows = tables.read_table(path, used=("from", "to"))
    if not {"from", "to"} <= set(columns):
        raise BadUse(f"{path}: expected the columns from and to, separated by tabs; it has {', '.join(columns)}")
    sites: dict[str, str] = {}
    for line, row in rows:
        name, site = _folded(row["from"]), channels.electrode(row["to"]) or ""
        if row["to"] and not site:
            raise BadUse(f"{path}, line {line}: {row['to']!r} is no electrode of the 10-20 or 10-10 system")
        if name in sites or (site and site in sites.values()):
            raise BadUse(f"{path}, line {line}: {row['from'] if name in sites else site} is there twice")
        sites[name] = site
    return Cap(name=path.name, sites=sites)


def _nearest(name: str) -> Cap:
    """Assign electrodes to sites so that the sum of their distances is smallest, the 10-20 sites first."""
    from scipy.optimize import linear_sum_assignment

    electrodes, sites = _directions(name), dict(_sites(name.startswith("biosemi")))
    if name.startswith(EGI) and "Cz" not in electrodes:  # the vertex is the reference of these nets
        del sites["Cz"]
    first = [channels.key(site) for site in channels.ADFTD_ORDER]
    placed, distances = dict[str, str](), dict[str, float]()
    for wanted, most in ((first, FAR_FIRST), (list(sites), FAR)):
        names = [one for one in electrodes if one not in placed]
        free = [site for site in wanted if site in sites and site not in distances]
        a, b = np.array([electrodes[one] for one in names]), np.array([sites[site] for site in free])
        apart = RADIUS * np.arccos(np.clip(a @ b.T, -1, 1))
        allowed = (apart <= most) & (_side(a)[:, None] == _side(b)[None])
        for i, j in zip(*linear_sum_assignment(np.where(allowed, apart, 1e6)), strict=True):
            if allowed[i, j]:
                placed[names[i]], distances[free[j]] = free[j], round(float(apart[i, j]), 1)
    named = {_folded(one): placed.get(one, "") for one in electrodes}
    if name.startswith(EGI) and "Cz" in electrodes:
        named |= {f"e{len(electrodes)}": "Cz", "vref": "Cz"}  # as recorders name it
    return Cap(name=name, sites=named, distances=distances)


def _side(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """-1 left, 0 on the midline, 1 right."""
    sideways = RADIUS * directions[:, 0]
    return np.where(abs(sideways) < MIDLINE, 0.0, np.sign(sideways))


def _montage(name: str) -> DigMontage:
    from mne.channels import make_standard_montage

    return make_standard_montage(name) if name else channels.template()


def _directions(name: str) -> dict[str, NDArray[np.float64]]:
    """Unit vectors from the centre of a sphere through the electrodes: z through the vertex, y towards the nasion."""
    found = _montage(name).get_positions()
    places = {one: np.asarray(place) for one, place in found["ch_pos"].items()}
    points = np.array(list(places.values()))
    solution = np.linalg.lstsq(np.c_[2 * points, np.ones(len(points))], (points**2).sum(axis=1), rcond=None)[0]
    centre = solution[:3]
    # The caps without an electrode at the vertex have it on the z axis of their coordinates.
    up = places["Cz"] - centre if "Cz" in places else np.array([-centre[0], -centre[1], RADIUS / 1000])
    front = np.array([0.0, 1.0, 0.0]) if found["nasion"] is None else np.asarray(found["nasion"]) - centre
    z = up / np.linalg.norm(up)
    y = front - z * (front @ z)
    y /= np.linalg.norm(y)
    axes = np.array([np.cross(y, z), y, z])
    return {one: axes @ (place - centre) / np.linalg.norm(place - centre) for one, place in places.items()}


@functools.cache
def _sites(of_biosemi: bool) -> dict[str, NDArray[np.float64]]:
    """Directions of the 10-10 sites, both sides of the head made alike.

    BioSemi's caps are laid out on another sphere than the template's head: its 64 sites are those of its own cap.
    """
    places = _directions("biosemi64" if of_biosemi else "")
    sites = {}
    for name, place in places.items():
        match = re.fullmatch(r"([A-Za-z]+?)(z|\d+)", name)
        if match is None or match[1] not in ROWS_10_10 or channels.electrode(name) != name:
            continue
        number = match[2] if match[2] == "z" else str(int(match[2]) + (1 if int(match[2]) % 2 else -1))
        mean = place + places[match[1] + number] * [-1, 1, 1]
        sites[name] = mean / np.linalg.norm(mean)
    return sites
