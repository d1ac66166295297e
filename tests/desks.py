"""Desks for tests of studies: small cohorts, few epochs, and runs in this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bridgemil.cohort.store import Cohort
from bridgemil.engine.benchmark import Where
from bridgemil.engine.here import ThisProcess
from bridgemil.runs import RunStore
from bridgemil.studies import Desk

QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}


@dataclass(frozen=True)
class InThisProcess(Where):
    """Spares the start of workers, who would open the cohorts themselves."""

    cohorts: tuple[Cohort, ...] = ()

    def workers(self, out: Path) -> ThisProcess:
        return ThisProcess({cohort.hash: cohort for cohort in self.cohorts}, RunStore(out), torch.device("cpu"))


def quick_desk(cohort: Cohort, out: Path, **more: Any) -> Desk:
    """Three folds of a demo that ends at once, trained as the paper does."""
    usual: dict[str, Any] = {"backbone": "eegnet", "recipe": "paper", "budget": "demo", "folds": 3, "changes": QUICK}
    where = InThisProcess(device="cpu", cohorts=(cohort,))
    return Desk((cohort,), out, **usual | more, where=where, progress=False)


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder that is not hidden."""
    shown = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in shown}
