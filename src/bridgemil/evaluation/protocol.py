"""The protocol: how a method is trained and evaluated, in one object that all commands share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from bridgemil.cohort.views import Unlabelled, tag_of
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.evaluation.clinical import ClinicalOptions
from bridgemil.evaluation.diagnostic_accuracy import OperatingPoint
from bridgemil.evaluation.tuning import tuned
from bridgemil.methods import Settings
from bridgemil.runs import refuse_own_encoder


@dataclass(frozen=True)
class Protocol:
    """How a method is trained and evaluated: the options that ``evaluate``, ``train``, ``benchmark`` and studies share.

    Parameters
    ----------
    method, backbone, recipe, budget : str, optional
        Names; see ``bridgemil.methods.names()``, ``bridgemil.backbones.names()``, ``bridgemil.methods.recipes()`` (by
        default ``ours``, but ``paper`` with the budget ``paper``) and ``bridgemil.methods.budgets()``. A backbone may
        also be ``file.py:NAME`` or ``module:NAME``, your own code; a method may be your scikit-learn
        pipeline, ``file.py:NAME``, or ``A+B``, the weighted mean of several methods' probabilities.
    settings : mapping, optional
        Changes to single settings: ``{"stage1.epochs": 5, "stage2.retention": 0}``.
    seeds : int or sequence of int, default 1
        How many seeds of weights and sampling (0, 1, …), or which. They share one split.
    folds, split_seed : int, optional
        Folds (the cohort's own number by default) and the seed that assigns subjects to them.
    split : FoldPlan, str or Path, optional
        A saved split instead (a plan, or a file of ``bridgemil folds``).
    groups : str, optional
        A column of the cohort; subjects of one group stay in one fold.
    leave_out : str, optional
        A column of the cohort, such as the site: all subjects with one value are the test set once.
    adjust : sequence of str, optional
        Columns (age, sex) whose linear effect on the features, estimated on training controls, is removed.
    pretrain_on : Cohort, str or Path, optional
        A second cohort, of the same electrodes and prepared alike: Stage 1 learns from its subjects too, without their
        labels, beside the training subjects of each fold. Subjects with the same windows as one of the evaluated cohort
        are left out; who was recorded twice or prepared differently is not recognised.
    bags : {"subject", "recording"}, default "subject"
        One bag per subject, or one per recording (eyes open, eyes closed): all recordings of a subject are in one fold,
        and its probability is their mean.
    frozen : bool, default False
        The backbone's encoder is never trained: it has weights of its own, those in the file that the setting
        ``backbone_options.weights`` names, and its embeddings are computed once per window.
    tune : mapping of str to sequence, optional
        Values of settings, ``{"stage2.lr": [1e-3, 5e-3]}``: each fold chooses among their combinations by
        cross-validation over its training subjects (``bridgemil.evaluation.tuning``).
    accept_risk : sequence of str, optional
        Names of findings on which the cohort may fail the quick audit that comes first; written into every result.
    positive : str, optional
        The patient class of two, for ``results.clinical``; by default the one that is not called control, healthy, HC
        and the like. Like the next two it changes no run: it is applied to the held-out predictions.
    operating_point : str, optional
        ``argmax`` (the predicted class; the default), ``youden``, ``sensitivity=.9`` or ``specificity=.9``: the
        threshold of a fold is chosen on the held-out predictions of the other folds.
    prevalence : float, optional
        Share of patients among those who would be tested, for predictive values and the decision curve.
    """

    method: str = methods.METHOD
    backbone: str = methods.BACKBONE
    recipe: str | None = None
    budget: str = methods.BUDGET
    settings: Mapping[str, Any] | None = None
    seeds: int | Sequence[int] = 1
    folds: int | None = None
    split: FoldPlan | str | Path | None = None
    groups: str | None = None
    leave_out: str | None = None
    adjust: Sequence[str] = ()
    bags: str = "subject"
    frozen: bool = False
    split_seed: int = 0
    pretrain_on: Cohort | str | Path | None = None
    tune: Mapping[str, Sequence[Any]] | None = None
    accept_risk: Sequence[str] = ()
    positive: str | None = None
    operating_point: str | None = None
    prevalence: float | None = None
    seed_list: tuple[int, ...] = field(init=False, repr=False)  # ``seeds``, one by one
    clinical: ClinicalOptions = field(init=False, repr=False)  # the last three

    def __post_init__(self) -> None:
        tag, given = None, methods.flat(self.settings or {})
        derived: dict[str, Any] = {
            "seed_list": tuple(seed_list(self.seeds)),
            "clinical": ClinicalOptions(self.positive, OperatingPoint.parse(self.operating_point), self.prevalence),
        }
        own = {"bags": self.bags, "frozen": self.frozen, "adjust": tuple(self.adjust)}
        changed = {name: value for name, value in own.items() if value not in ("subject", False, ())}
        if self.pretrain_on is not None:
            opened = self.pretrain_on if isinstance(self.pretrain_on, Cohort) else Cohort.open(self.pretrain_on)
            tag = tag_of(opened)
            derived["pretrain_on"], changed[methods.PRETRAIN_ON] = opened, tag
        if given.get(methods.PRETRAIN_ON, tag) != tag:
            raise BadUse(f"{methods.PRETRAIN_ON} names the cohort of --pretrain-on; give that instead")
        if changed:
            derived["settings"] = {**given, **changed}
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def fold_plan(self, cohort: Cohort) -> FoldPlan:
        """The split of a cohort, saved or new.

        Parameters
        ----------
        cohort : Cohort
            Two classes at least.

        Returns
        -------
        FoldPlan
        """
        if len(cohort.classes) < 2:
            what = f"one class only ({cohort.classes[0]})" if cohort.classes else "no labels"
            raise BadData(
                f"{cohort.path or 'the cohort'}: has {what}, at least two classes are needed: prepare it together "
                "with subjects of another class and their diagnoses, or `bridgemil pool` it with another cohort"
            )
        if self.leave_out is not None:
            if self.folds is not None or self.groups is not None or self.split is not None:
                raise BadUse("--leave-out decides the folds; leave --folds, --groups and --split out")
            return FoldPlan.leave_out(cohort.subjects, cohort.column(self.leave_out), self.leave_out)
        if self.split is None:
            together = cohort.column(self.groups) if self.groups else None
            splitter = SubjectKFold(cohort.folds if self.folds is None else self.folds, self.split_seed)
            return splitter.plan(cohort.subjects, cohort.labels, together, self.groups)
        if self.folds is not None or self.groups is not None or self.split_seed:
            raise BadUse("a saved split decides everything; leave --folds, --groups and --split-seed out")
        plan = self.split if isinstance(self.split, FoldPlan) else FoldPlan.load(self.split)
        plan.check(cohort.subjects)
        if self.clinical.operating_point.rule != "argmax":
            for tested in plan.numbers:
                others = (subject for number in plan.numbers if number != tested for subject in plan.folds[number - 1])
                if len({cohort.records[subject].label for subject in others}) < 2:
                    raise BadUse(
                        f"--operating-point {self.clinical.operating_point}: the threshold of fold {tested} is chosen "
                        "on the other tested folds, which do not have both classes; leave it or --split out"
                    )
        return plan

    def method_settings(
        self,
        cohort: Cohort,
        method: str | None = None,
        backbone: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Settings:
        """All settings of the method on a cohort; of another method or backbone, with other changes, where given."""
        changes = self.settings if settings is None else settings
        if self.pretrain_on is not None and settings is None:
            methods.refuse_pretraining([method or self.method])
        names = method or self.method, backbone or self.backbone
        further = self.pretrain_on.n_windows if isinstance(self.pretrain_on, Cohort) else 0

        def make(more: Mapping[str, Any]) -> Settings:
            every = {**(changes or {}), **more}
            made = methods.for_cohort(cohort, *names, self.budget, every, recipe=self.recipe, further=further)
            for member in made.each:
                if member.weights_file is not None:
                    refuse_own_encoder(member.weights_file, cohort)
            return made

        return tuned(make, self.tune) if self.tune else make({})

    def second(self, cohort: Cohort) -> Cohort | None:
        """The cohort ``pretrain_on``, if it is given; one from which this cohort's Stage 1 cannot learn is refused."""
        if not isinstance(self.pretrain_on, Cohort):
            return None
        if note := Unlabelled.beside(cohort, self.pretrain_on).note:
            warnings.warn(note, BridgeMILWarning, stacklevel=3)
        return self.pretrain_on


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """How many seeds, or which, as a list."""
    chosen = [int(s) for s in (range(int(seeds)) if isinstance(seeds, int | Integral) else seeds)]
    if not chosen or len(set(chosen)) < len(chosen) or not 0 <= min(chosen) <= max(chosen) < 2**32:
        raise BadUse(f"seeds must be one or more different whole numbers from 0 to {2**32 - 1}; got {seeds!r}")
    return chosen
