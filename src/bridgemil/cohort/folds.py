"""Subject-level folds: a scikit-learn style splitter, and the plan it makes, saved and replayed as JSON.

Fold i is the test set and the next one its validation set, on which an epoch is selected; the rest trains. A
method that selects nothing has no validation set: it trains on all folds but the test fold. Folds count from 1.
``split_seed`` is not the seed of the weights: every seed of an experiment shares one split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from bridgemil.cohort.tables import is_missing, natural_key
from bridgemil.errors import BadData, BadUse, NotFound
from bridgemil.storage.artifact import digest
from bridgemil.storage.files import write_json

INNER_FOLDS = 5
Scheme = Literal["array_split", "sklearn"]


@dataclass(frozen=True)
class Fold:
    """One fold of cross-validation: whose windows train, select and test."""

    number: int  # from 1
    train: tuple[str, ...]  # subject ids
    validation: tuple[str, ...]
    test: tuple[str, ...]
    # By subject, the numbers of the windows that are used, ascending; all windows of a subject that is not named.
    kept: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Where features are harmonised: by site, the subjects from whom it is estimated; by subject, columns.
    sites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # The training subjects in up to five parts of whole folds: settings are chosen by cross-validation over them.
    inner: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class FoldPlan:
    """Which subject is in which fold.

    Parameters
    ----------
    folds : tuple of tuple of str
        The subjects of each fold.
    split_seed : int, optional
        The seed of the split, if it is known.
    kind : str, default "file"
        How they were assigned: ``array_split``, ``sklearn``, ``groups``, ``leave_out`` (one group per fold),
        ``test_set``, or ``file`` for a split made by hand.
    column : str, optional
        Whose groups were kept together, if any were and it is known.
    names : tuple of str
        Of the folds, where they have any: the groups that are left out.
    tested : tuple of int
        Numbers, from 1, of the folds that are tested; none: all of them. An official test set is one tested fold.
    """

    folds: tuple[tuple[str, ...], ...]
    split_seed: int | None = None
    kind: str = "file"
    column: str | None = None
    names: tuple[str, ...] = ()
    tested: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        counts = Counter(subject for fold in self.folds for subject in fold)
        if twice := sorted(subject for subject, count in counts.items() if count > 1):
            raise BadData(f"a split may hold a subject once; in several places: {', '.join(twice)}")
        if len(self.folds) < 2:
            raise BadUse(f"a split needs at least 2 folds (training, test), not {len(self.folds)}")
        if not all(self.folds):
            raise BadData("a split has an empty fold")
        if not set(self.tested) <= set(range(1, self.k + 1)):
            raise BadData(f"a split of {self.k} folds cannot test fold {', '.join(map(str, self.tested))}")

    @property
    def k(self) -> int:
        """The number of folds."""
        return len(self.folds)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the folds that are tested, from 1."""
        return self.tested or tuple(range(1, self.k + 1))

    @property
    def hash(self) -> str:
        """Identifies the split: who is tested with whom, and validated on whom; not how it came about."""
        return digest(sorted([sorted(fold.test), sorted(fold.validation)] for fold in self._rotation(selects=True)))

    @property
    def metadata(self) -> dict[str, Any]:
        """A short description of the split, as a run stores it."""
        metadata = {"kind": self.kind, "k": self.k, "split_seed": self.split_seed, "hash": self.hash[:12]}
        metadata |= {"groups": self.column} if self.column else {}
        return metadata | ({"names": list(self.names)} if self.names else {})

    @property
    def title(self) -> str:
        """Title in tables and pages: ``10 folds, split seed 0``."""
        if self.kind == "leave_out":
            return f"leave one {self.column or 'group'} out: {', '.join(self.names) or self.k}"
        if self.tested:
            return f"test set of {sum(len(self.folds[i - 1]) for i in self.tested)} subjects, split {self.hash[:6]}"
        if self.split_seed is None:
            return f"{self.k} folds, split {self.hash[:6]}"
        groups = f", by groups of {self.column}" if self.column else ", by groups"
        how = {"groups": groups, "sklearn": ", scikit-learn's"}.get(self.kind, "")
        return f"{self.k} folds, split seed {self.split_seed}{how}"

    def cv_folds(self, selects: bool = True) -> list[Fold]:
        """Training, validation and test subjects of all k folds.

        Parameters
        ----------
        selects : bool, default True
            Whether validation subjects are needed (``Settings.selects``); training uses k - 2 folds then, else k - 1.

        Returns
        -------
        list of Fold
        """
        if selects and self.k < 3:
            raise BadUse(
                f"a split of {self.k} folds has no subjects to select an epoch on; use a recipe that selects nothing "
                "(--recipe ours), or a split of at least 3 folds"
            )
        return self._rotation(selects)

    def _rotation(self, selects: bool) -> list[Fold]:
        folds = []
        for i in (number - 1 for number in self.numbers):
            validation = self.folds[(i + 1) % self.k] if selects else ()
            rest = [fold for fold in self.folds if fold not in (self.folds[i], validation)]
            n = min(INNER_FOLDS, len(rest))
            inner = tuple(tuple(s for fold in rest[part::n] for s in fold) for part in range(n))
            train = tuple(s for fold in rest for s in fold)
            folds.append(Fold(i + 1, train, validation, self.folds[i], inner=inner))
        return folds

    def check(self, subjects: Sequence[str]) -> None:
        """Raise an error unless the plan covers exactly these subjects.

        Parameters
        ----------
        subjects : sequence of str
            Ids of a cohort's subjects.
        """
        planned, known = {s for fold in self.folds for s in fold}, set(subjects)
        if planned != known:
            absent, strange = (", ".join(sorted(who)) or "none" for who in (known - planned, planned - known))
            raise BadData(f"the split is for other subjects: not in the split: {absent}; not in the cohort: {strange}")

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        write_json(Path(path), self.for_json())

    def for_json(self) -> dict[str, Any]:
        """As a split file holds it."""
        content = {"split_seed": self.split_seed, "kind": self.kind, "folds": [*map(list, self.folds)]}
        further = {"groups": self.column, "names": list(self.names), "tested": list(self.tested)}
        return content | {name: value for name, value in further.items() if value}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FoldPlan:
        """Undo ``for_json``."""
        folds = tuple(tuple(map(str, fold)) for fold in content["folds"])
        names, tested = tuple(content.get("names") or ()), tuple(content.get("tested") or ())
        return cls(folds, content.get("split_seed"), content.get("kind", "file"), content.get("groups"), names, tested)

    @classmethod
    def leave_out(cls, subjects: Sequence[str], groups: Sequence[Any], column: str) -> FoldPlan:
        """One fold per group, such as a site: each is the test set once. ``column`` names the column of the groups."""
        members: dict[str, list[str]] = {}
        for subject, group in sorted(zip(subjects, groups, strict=True), key=lambda pair: pair[0]):
            if is_missing(group):
                raise BadData(f"{subject}: no {column} is known, so it cannot be left out with others")
            members.setdefault(str(group), []).append(subject)
        if len(members) < 2:
            raise BadData(f"column {column!r} has one value only ({', '.join(members)}); at least two are needed")
        names = sorted(members, key=natural_key)
        return cls(tuple(tuple(members[name]) for name in names), None, "leave_out", column, tuple(names))

    @classmethod
    def with_test_set(
        cls, subjects: Sequence[str], labels: Sequence[str], test: Sequence[str], k: int = 10, split_seed: int = 0
    ) -> FoldPlan:
        """One test set that is given, such as a data set's official one: three folds, of which the first is tested.

        The others train. Where an epoch is selected, a k-th of them, stratified by class, are validation subjects.
        """
        chosen = set(test)
        pairs = [pair for pair in zip(subjects, labels, strict=True) if pair[0] not in chosen]
        parts = SubjectKFold(k, split_seed).plan([s for s, _ in pairs], [label for _, label in pairs]).folds
        rest = tuple(sorted(subject for part in parts[1:] for subject in part))
        return cls((tuple(sorted(chosen)), parts[0], rest), split_seed, "test_set", tested=(1,))

    @classmethod
    def load(cls, path: str | Path) -> FoldPlan:
        """Read a plan written by ``save``, or by hand: ``{"folds": [["sub-1", ...], ...]}``.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        FoldPlan
        """
        expected = f'{path}: no split file; expected {{"folds": [[subject, ...], ...]}}'
        if not Path(path).is_file():
            raise NotFound(f"{expected}, and there is no such file")
        try:
            content = _SplitFile.model_validate_json(Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise BadData(f"{path}: cannot be read ({error.strerror})") from None
        except ValueError:
            fields = "split_seed is a whole number or null, kind a word, groups a column's name"
            raise BadData(f"{expected} as JSON in UTF-8 text; {fields}") from None
        return cls.from_json(content.model_dump())


class _SplitFile(BaseModel):
    """What a split file may hold."""

    model_config = ConfigDict(strict=True)

    folds: list[list[Annotated[str, Field(min_length=1)] | int]]
    split_seed: int | None = None
    kind: str = "file"
    groups: str | None = None
    names: list[str] | None = None
    tested: list[int] | None = None


class SubjectKFold:
    """Stratified k-fold cross-validation over subjects: each class is shuffled and divided into k parts.

    With ``groups`` (one person, family or site), subjects of one group stay in one fold, by scikit-learn's
    StratifiedGroupKFold.

    Parameters
    ----------
    n_splits : int, default 10
        The number of folds k.
    split_seed : int, default 0
        Seed of the shuffle.
    scheme : {"array_split", "sklearn"}, default "array_split"
        ``array_split`` as in the paper, or scikit-learn's StratifiedKFold.
    """

    def __init__(self, n_splits: int = 10, split_seed: int = 0, scheme: Scheme = "array_split") -> None:
        self.n_splits = n_splits
        self.split_seed = split_seed
        self.scheme = scheme

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits

    def split(
        self, X: Sequence[Any], y: Sequence[Any], groups: Sequence[Any] | None = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Indices of training and test subjects, as scikit-learn's splitters.

        Parameters
        ----------
        X, y : sequence, length n
            One entry per subject; X is not used. Labels.
        groups : sequence, length n, optional
            Subjects of one group stay in one fold.

        Yields
        ------
        train, test : ndarray of int
            The training side includes the validation fold.
        """
        for test in self._parts(y, groups):
            yield np.setdiff1d(np.arange(len(y)), test), test

    def plan(
        self,
        subjects: Sequence[str],
        labels: Sequence[str],
        groups: Sequence[Any] | None = None,
        column: str | None = None,
    ) -> FoldPlan:
        """The folds by subject id, as ``evaluate`` uses them.

        Parameters
        ----------
        subjects, labels : sequence of str, length n
            Ids and diagnoses.
        groups : sequence, length n, optional
            Subjects of one group stay in one fold.
        column : str, optional
            Name of the column of the groups.

        Returns
        -------
        FoldPlan
        """
        if len(set(subjects)) < len(subjects):
            raise BadData("a subject is named twice")
        order = sorted(range(len(subjects)), key=lambda i: subjects[i])  # the order of subjects does not matter
        ordered = [subjects[i] for i in order]
        together = None
        if groups is not None:  # a subject without a group is a group of its own
            alone = [is_missing(group) for group in groups]
            together = [f"subject {subjects[i]}" if alone[i] else f"group {groups[i]}" for i in order]
        parts = self._parts([labels[i] for i in order], together)
        kind = self.scheme if groups is None else "groups"
        return FoldPlan(tuple(tuple(ordered[i] for i in part) for part in parts), self.split_seed, kind, column)

    def _parts(self, y: Sequence[Any], groups: Sequence[Any] | None) -> list[NDArray[np.intp]]:
        labels = np.asarray(y)
        if not 0 <= self.split_seed < 2**32:  # what scikit-learn takes
            raise BadUse(f"the split seed must be a whole number from 0 to {2**32 - 1}, got {self.split_seed}")
        self._check_sizes(labels, groups)
        if groups is not None or self.scheme == "sklearn":
            from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

            splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
            rounds = splitter(self.n_splits, shuffle=True, random_state=self.split_seed).split(labels, labels, groups)
            parts = [np.asarray(test, dtype=np.intp) for _, test in rounds]
            if not all(len(part) for part in parts):
                raise BadData(f"the groups cannot be divided into {self.n_splits} folds: one is empty; use fewer folds")
            return parts
        rng = np.random.default_rng(self.split_seed)
        parts_of: list[list[NDArray[np.intp]]] = [[] for _ in range(self.n_splits)]
        for label in np.unique(labels):
            shuffled = rng.permutation(np.flatnonzero(labels == label))
            for fold, part in zip(parts_of, np.array_split(shuffled, self.n_splits), strict=True):
                fold.append(part)
        return [np.sort(np.concatenate(fold)) for fold in parts_of]

    def _check_sizes(self, labels: NDArray[Any], groups: Sequence[Any] | None) -> None:
        kind = "subject" if groups is None else "group"
        owners = range(len(labels)) if groups is None else groups
        for label in np.unique(labels):
            units = len({owner for owner, own in zip(owners, labels, strict=True) if own == label})
            counted = f"class {str(label)!r} has {units} {kind}{'' if units == 1 else 's'}"
            if units < 3:
                raise BadData(f"{counted}; at least 3 are needed in every class (training, validation, test)")
            if units < self.n_splits:
                raise BadData(f"{counted}, fewer than the {self.n_splits} folds; use at most --folds {units}")
        if self.n_splits < 3:
            raise BadUse(f"at least 3 folds are needed (training, validation, test), not {self.n_splits}")
