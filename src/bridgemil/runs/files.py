"""What the JSON files and tables in a folder of runs must look like."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from bridgemil.stored.schema import Schema

PARTS = ("runs", "stage1", "features", "splits", "ensembles", "audits", "unfinished", "failed")
ABOUT = "run.json"
ADVICE = "delete it and run again"
RUN_ADVICE = "delete the whole folder it lies in, and run again"  # a run or encoder is whole or not there
PREDICTIONS = {"seed": "whole", "fold": "whole", "subject": "text", "label": "text", "predicted": "text"}
WINDOWS = {"subject": "text", "window": "whole", "second": "number"}
TABLES = ("predictions.parquet", "curves.parquet", "windows.parquet")


class RunSettings(Schema):
    """What every version's settings have."""

    method: str
    backbone: str | None
    budget: str | None


class RunCohort(Schema):
    """What a run says of its cohort."""

    hash: str
    path: str
    classes: list[str] = Field(min_length=2)


class RunFile(Schema):
    """run.json."""

    settings: RunSettings
    settings_hash: str
    cohort: RunCohort
    seed: int = Field(ge=0)
    fold: int = Field(ge=0)
    split: dict[str, Any] | None = None
    train: list[str]
    validation: list[str]
    test: list[str]
    kept: dict[str, list[int]] | None = None
    selected_epoch: int | None
    accuracy: float = Field(ge=0, le=1)
    seconds: FiniteFloat
    finished: str = ""  # when, in UTC
    device: str
    threads: int
    results_version: int
    identity: str | None = None
    files: dict[str, str] | None = None  # the hash of every file beside it; earlier versions wrote none


class SplitWarning(Schema):
    """A WARN of the cohort's quick audit, or a FAIL that was accepted."""

    check: str
    level: Literal["WARN", "FAIL"]
    message: str


class SplitFile(Schema):
    """A split that was planned, with the audit warnings of its cohort."""

    cohort: str
    folds: list[list[str]]
    split_seed: int | None = None
    kind: str = "file"
    groups: str | None = None
    warnings: list[SplitWarning] = Field(default_factory=list)  # of this cohort and split, from any call


class AuditFinding(BaseModel):
    """One of its findings, as ``bridgemil.audit`` reads it back: with all of its parts, and no more."""

    model_config = ConfigDict(extra="forbid")

    name: str
    status: Literal["PASS", "INFO", "WARN", "FAIL", "SKIP"]
    message: str
    evidence: list[str]
    fix: str
    numbers: dict[str, Any]


class AuditFile(Schema):
    """The quick audit of a cohort."""

    cohort: str
    findings: list[AuditFinding]


class FailureFile(Schema):
    """The record of a run that failed."""

    experiment: str
    error: str
