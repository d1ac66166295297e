"""Does the diagnosis fit every window? (RQ2) Agreement of single windows with it, and training on some windows only.

First, a majority vote is asked of each window of a held-out subject: how many say what the subject's label says. Then
new majority votes are trained on the K windows of each training subject that bridgemil let in most (Top-K) or least
(Bottom-K). Ours: K windows at random, since fewer windows may matter by themselves; and nested gates, of models that
never saw the test subjects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.plan import Experiment
from bridgemil.errors import BadUse
from bridgemil.evaluation.metrics import bootstrap, chance
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.statistics import LEVEL, Comparison, corrected, counted, p_text, points
from bridgemil.report.benchmark import paper
from bridgemil.studies import kept_windows, published, scores, truth
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings
from bridgemil.studies.kept_windows import ALL, Choice, Gates
from bridgemil.studies.reliability_figure import figure

if TYPE_CHECKING:
    import pandas as pd

OPTIONS = ("top", "nested")
TOP = (20, 50, 100, 200)
VOTE, GATED, ADDS = "majority_vote", "bridgemil", "additive"


Pair = tuple[Choice, Choice]


class Case(NamedTuple):
    """A cohort, dealt by one split seed."""

    cohort: Cohort
    split: FoldPlan
    split_seed: int


class Trained(NamedTuple):
    """What came of one choice of windows on one cohort, over all splits."""

    results: list[Results]
    rounds: list[Fold]


def perform(context: StudyContext) -> Findings:
    """Get votes and gates of held-out subjects, train on the chosen windows, and compare."""
    import pandas as pd

    chosen = kept_windows.choices(_sizes(context), bool(context.option("nested", False)))
    cases = [
        Case(cohort, context.split(cohort, seed), seed) for cohort in context.cohorts for seed in context.split_seeds
    ]
    known = (
        {} if context.truth is None else {cohort.hash: truth.evidence(context, cohort) for cohort in context.cohorts}
    )
    # The whole runs come first: a choice that leaves nothing out is one of them, and is then not run again.
    votes, gated, nested = _whole(context, cases, any(choice.gates == "nested" for choice in chosen))
    trained = _trained(context, cases, chosen, gated, nested)
    agreement = pd.concat(
        [
            agreement_of(context.name(case.cohort), case.split_seed, vote)
            for case, vote in zip(cases, votes, strict=True)
        ],
        ignore_index=True,
    )
    by_class = _by_class(context, agreement)
    rows, sentences = list[dict[str, Any]](), list[str]()
    for cohort in context.cohorts:
        mine = {choice: trained[cohort.hash, choice] for choice in chosen}
        against = _compared(mine)
        rows += [_row(context, cohort, choice, mine[choice], against, known.get(cohort.hash)) for choice in chosen]
        sentences += _sentences(context.name(cohort), mine, against)
    tables = {"agreement_by_class": by_class, "reliability": pd.DataFrame(rows).drop(columns=["rule", "k"])}
    looked: dict[tuple[str, str], list[Results]] = {}
    for case, vote, gate in zip(cases, votes, gated, strict=True):
        looked.setdefault((case.cohort.hash, VOTE), []).append(vote)
        looked.setdefault((case.cohort.hash, GATED), []).append(gate)
    if context.truth is not None:  # the truth of contributions, which neither of the two has
        for case, adds in zip(
            cases, context.perform([context.experiment(c.cohort, ADDS, c.split) for c in cases]), strict=True
        ):
            looked.setdefault((case.cohort.hash, ADDS), []).append(adds)
    tables |= truth.tables(context, looked)
    return Findings(
        f"Reliability of inherited labels: {context.setup}",
        [*_agreement_sentences(agreement), *_not_above_chance(context, rows), *sentences],
        tables,
        {"reliability": figure(context, per_subject(agreement), by_class, rows)},
        {"agreement": agreement},
        _footnotes(context, cases, chosen),
    )


def agreement_of(cohort: str, split_seed: int, results: Results) -> pd.DataFrame:
    """A row a held-out subject and seed: the share of its windows that are predicted as the subject's label.

    Parameters
    ----------
    cohort
        Its name.
    split_seed
        Which dealt the subjects.
    results
        Of a majority vote: they hold the probabilities of every window.
    """
    import pandas as pd

    windows, columns = results.windows, [f"p_{name}" for name in results.classes]
    labels = results.predictions.drop_duplicates("subject").set_index("subject")["label"]
    said = np.asarray(results.classes)[windows[columns].to_numpy().argmax(axis=1)]
    agrees = windows[["subject", "seed"]].assign(agreement=said == windows["subject"].map(labels).to_numpy())
    each = agrees.groupby(["subject", "seed"], sort=True)["agreement"].agg(["mean", "size"]).reset_index()
    return pd.DataFrame({
        "cohort": cohort, "subject": each["subject"], "label": each["subject"].map(labels), "split": split_seed,
        "seed": each["seed"], "agreement": each["mean"].astype(float), "n_windows": each["size"],
    })  # fmt: skip


def _sizes(context: StudyContext) -> list[int]:
    sizes = list(context.option("top", TOP))
    if not sizes or any(isinstance(k, bool) or not isinstance(k, int) or k < 1 for k in sizes):
        raise BadUse(f"--top: expected whole numbers above zero, got {context.options.get('top')!r}")
    return sorted(set(sizes))


def _whole(
    context: StudyContext, cases: Sequence[Case], with_nested: bool
) -> tuple[list[Results], list[Results], list[list[Results]]]:
    """Votes and gates on whole splits, a result a case; and of each case the inner results of every round."""
    experiments = [context.experiment(c.cohort, method, c.split) for method in (VOTE, GATED) for c in cases]
    for experiment in experiments[len(cases) :]:
        if any(getattr(member.stage2, "aggregator", None) == "mean" for member in experiment.settings.each):
            raise BadUse("stage2.aggregator=mean lets every window in alike; gates must differ to rank windows")
    voting = zip(cases, experiments, strict=False) if with_nested else ()
    inner = [[_inner(context, case, outer) for outer in vote.cv_folds()] for case, vote in voting]
    results = iter(context.perform([*experiments, *(one for several in inner for one in several)]))
    votes, gated = ([next(results) for _ in cases] for _ in (VOTE, GATED))
    return votes, gated, [[next(results) for _ in several] for several in inner]


def _inner(context: StudyContext, case: Case, outer: Fold) -> Experiment:
    """bridgemil on the folds without the outer round's test subjects."""
    plan, part = kept_windows.inner_plan(case.split, outer), "gates without the test fold"
    return context.experiment(
        case.cohort, GATED, plan, part=part, drawn=lambda rounds: kept_windows.inner_rounds(rounds, outer)
    )


def _trained(
    context: StudyContext,
    cases: Sequence[Case],
    chosen: Sequence[Choice],
    gated: list[Results],
    nested: list[list[Results]],
) -> dict[tuple[str, Choice], Trained]:
    """A majority vote for each choice of windows."""
    experiments: list[tuple[tuple[str, Choice], Experiment]] = []
    for number, case in enumerate(cases):
        plain = kept_windows.mean_gates(gated[number], case.cohort)
        gates: dict[str, list[Gates]] = {"none": [{}] * case.split.k, "plain": [plain] * case.split.k}
        if nested:
            gates["nested"] = [kept_windows.mean_gates(inner, case.cohort) for inner in nested[number]]
        for choice in chosen:
            part = "" if choice == ALL else choice.part
            drawn = partial(_reduced, case, choice, gates[choice.gates])
            made = context.experiment(case.cohort, VOTE, case.split, part=part, drawn=drawn)
            experiments.append(((case.cohort.hash, choice), made))
    trained: dict[tuple[str, Choice], Trained] = {}
    for (key, experiment), results in zip(experiments, context.perform([e for _, e in experiments]), strict=True):
        several = trained.setdefault(key, Trained([], []))
        several.results.append(results)
        several.rounds.extend(experiment.cv_folds())
    return trained


def _reduced(case: Case, choice: Choice, gates: Sequence[Gates], rounds: list[Fold]) -> list[Fold]:
    return [
        kept_windows.reduced(outer, choice, case.cohort, mine, case.split_seed)
        for outer, mine in zip(rounds, gates, strict=True)
    ]


def _row(
    context: StudyContext, cohort: Cohort, choice: Choice, mine: Trained, against: Mapping[Pair, Comparison], known: Any
) -> dict[str, Any]:
    row: dict[str, Any] = {"cohort": context.name(cohort), "gates": choice.gates, "windows": choice.words}
    row |= {"rule": choice.rule, "k": choice.k or None} | scores.score(mine.results)
    row |= scores.columns(against[choice, ALL]) if (choice, ALL) in against else {}
    if known is not None:
        row["true_evidence"] = kept_windows.evidence_share(mine.rounds, known)
    number = _published(context, cohort, choice)
    return row | ({} if number is None else {"paper": number})


def _published(context: StudyContext, cohort: Cohort, choice: Choice) -> float | None:
    """The paper's accuracy in percent, which is of plain gates."""
    if choice.gates == "nested" or not published.comparable(context, cohort):
        return None
    place = paper()["reliability"].get(cohort.about["source"], {}).get(choice.rule)
    number = place.get(choice.k) if isinstance(place, dict) else place
    return None if number is None else float(number)


def _by_class(context: StudyContext, agreement: pd.DataFrame) -> pd.DataFrame:
    """Mean agreement of each cohort's classes, with a 95 % interval over subjects; shares of one."""
    import pandas as pd

    people, rows = per_subject(agreement), []
    for cohort in context.cohorts:
        for label in cohort.classes:
            mine = people[(people["cohort"] == context.name(cohort)) & (people["label"] == label)][
                "agreement"
            ].to_numpy()
            low, high = bootstrap(mine)
            rows.append({
                "cohort": context.name(cohort), "label": label, "agreement": float(mine.mean()), "agreement95_low": low,
                "agreement95_high": high, "lowest": float(mine.min()), "highest": float(mine.max()),
                "subjects": len(mine), "most_windows_against": int((mine < 0.5).sum()),
            })  # fmt: skip
    return pd.DataFrame(rows)


def per_subject(agreement: pd.DataFrame) -> pd.DataFrame:
    """A row a subject: its agreement, mean over seeds and splits.

    Parameters
    ----------
    agreement
        As ``agreement_of`` gives it.
    """
    return agreement.groupby(["cohort", "subject", "label"], sort=False)["agreement"].mean().reset_index()


def _agreement_sentences(agreement: pd.DataFrame) -> list[str]:
    sentences = []
    for cohort, rows in per_subject(agreement).groupby("cohort", sort=False):
        shares = rows["agreement"].to_numpy()
        low, high = bootstrap(shares)
        against = int((shares < 0.5).sum())
        sentences.append(
            f"{cohort}: of a held-out subject's windows {100 * shares.mean():.1f} % agree with its label on average "
            f"(95 % {100 * low:.1f} to {100 * high:.1f}; single subjects {100 * shares.min():.1f} to "
            f"{100 * shares.max():.1f} %); {against} of {counted(len(shares), 'subject')} "
            f"{'has' if against == 1 else 'have'} most windows against their label."
        )
    return sentences


def _not_above_chance(context: StudyContext, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where the vote itself is not shown to know anything, neither agreement nor Top-K can speak of labels."""
    sentences = []
    for cohort in context.cohorts:
        level = 100 * chance(cohort.labels)[0]
        row = next(row for row in rows if row["cohort"] == context.name(cohort) and row["rule"] == "all")
        if row["ci95_low"] <= level:
            sentences.append(
                f"{context.name(cohort)}: with all windows the vote is not better than chance ({row['accuracy']:.1f} %"
                f", 95 % {row['ci95_low']:.1f} to {row['ci95_high']:.1f}; chance level {level:.1f} %), so what follows "
                "and the agreement say little of the labels here."
            )
    return sentences


def _compared(trained: Mapping[Choice, Trained]) -> dict[Pair, Comparison]:
    """Each choice against all windows, and each Top-K against as many of the lowest and of random ones: one family.

    A choice that leaves no window out compares nothing.
    """
    reduced = [choice for choice, mine in trained.items() if any(outer.kept for outer in mine.rounds)]
    pairs = [(choice, ALL) for choice in reduced]
    for choice in (choice for choice in reduced if choice.rule == "top"):
        pairs += [(choice, choice._replace(rule="bottom")), (choice, Choice("none", "random", choice.k))]
    found = [scores.compared(trained[a].results, trained[b].results, (a.words, b.words)) for a, b in pairs]
    return dict(zip(pairs, corrected(found), strict=True))


def _sentences(name: str, trained: Mapping[Choice, Trained], against: Mapping[Pair, Comparison]) -> list[str]:
    """Each Top-K against all windows, the same number of the lowest, and of random ones."""
    sentences = []
    for choice in (choice for choice in trained if choice.rule == "top"):
        compared = [comparison for (one, _), comparison in against.items() if one == choice]
        apart = [c.corrected_sentence for c in compared if c.p < LEVEL]
        others = ", ".join(
            f"{c.other} ({points(c.difference)} points, {p_text(c.p)})" for c in compared if c.p >= LEVEL
        )
        if compared:
            rest = [f"No significant difference to {others}."] if others else []
            sentences.append(f"{name}, top {choice.k} by {choice.gates} gates: {' '.join([*apart, *rest])}")
        elif choice.gates == "plain":
            sentences.append(f"{name}: no subject has more than {choice.k} windows; nothing is left out.")
    return sentences


def _footnotes(context: StudyContext, cases: Sequence[Case], chosen: Sequence[Choice]) -> list[str]:
    notes = [
        "Agreement: each window's likeliest class, by a majority vote that held the subject out. Where a window "
        "disagrees, its label may be unfit or the vote wrong: agreement alone does not tell which.",
        "Only training windows are left out; validation and test bags are whole. Channels are normalised by the "
        "training windows that stay.",
        "Plain gates (the paper's) come from the bridgemil run that held the training subject out; but that run "
        "trained or selected on the test subjects of the round at hand, with their labels: top K may look too good. "
        "With several seeds they are the mean over them: all votes of a split have the same windows.",
        "random K is ours: it has as many windows, and so as many steps an epoch, as top K and bottom K; all may "
        "have more.",
    ]
    if any(choice.gates == "nested" for choice in chosen):
        whole, unranked = sum(c.split.k for c in cases), 1 + context.experiment(cases[0].cohort, VOTE).settings.selects
        inner = sum(c.split.k * (c.split.k - unranked) for c in cases)
        notes.append(
            "Nested gates (ours) come from bridgemil models of the folds without the round's test fold, which neither "
            f"trained nor selected on it: {counted(inner * len(context.seeds), 'run')} more of bridgemil, where plain "
            f"gates need {whole * len(context.seeds)}. These models have fewer training subjects."
        )
    return notes + _few_windows(context, chosen)


def _few_windows(context: StudyContext, chosen: Sequence[Choice]) -> list[str]:
    """Where K windows are all that a subject has, or top and bottom share some."""
    notes = []
    for cohort in context.cohorts:
        counts = np.array([cohort.records[subject].n_windows for subject in cohort.subjects])
        for k in sorted({choice.k for choice in chosen if choice.k}):
            whole, shared = int((counts <= k).sum()), int(((counts > k) & (counts < 2 * k)).sum())
            if whole:
                notes.append(
                    f"{context.name(cohort)}, K = {k}: {whole} of {counted(len(counts), 'subject')} "
                    f"{'has' if whole == 1 else 'have'} no more windows, and {'keeps' if whole == 1 else 'keep'} all."
                )
            if shared:
                notes.append(
                    f"{context.name(cohort)}, K = {k}: {shared} of {counted(len(counts), 'subject')} "
                    f"{'has' if shared == 1 else 'have'} fewer than {2 * k} windows: top and bottom share some."
                )
    return notes
