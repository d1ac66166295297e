"""A fitted model: the same numbers in another process, nothing executes, and what does not fit is a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgemil import methods
from bridgemil.cohort.folds import SubjectKFold
from bridgemil.errors import BadData, BadUse
from bridgemil.models import fit, load
from leaky import resealed
from people import people

QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}
EVERY = [*methods.names(), *methods.ablations()]


def quick(method: str) -> dict[str, Any]:
    return {key: value for key, value in QUICK.items() if methods.has_setting(method, key)}


def fitted(method: str, folder: Path, backbone: str = "eegnet") -> Any:
    cohort = people(9, windows=4)
    settings = methods.for_cohort(cohort, method, backbone, "demo", quick(method))
    subjects = SubjectKFold(3).plan(cohort.subjects, cohort.labels).cv_folds(settings.selects)[0]
    model = fit(cohort, subjects.train, subjects.validation, settings).model
    model.save(folder / method)
    np.save(folder / "bag.npy", cohort.windows(subjects.test[0]))
    return model


ELSEWHERE = """
import json, sys
from pathlib import Path
import numpy as np
from bridgemil.models import load
folder = Path(sys.argv[1])
bag, said = np.load(folder / "bag.npy"), {}
for name in sys.argv[2:]:
    model = load(folder / name)
    p = model.predict(bag)
    parts = {"gates": p.gates, "contributions": p.contributions, "windows": p.window_probabilities}
    said[name] = {key: None if value is None else value.tolist() for key, value in parts.items()}
    said[name] |= {"predicted": p.predicted, "p": p.probabilities.tolist(), "embedding": model.embed(bag).tolist()}
print(json.dumps(said))
"""


def test_every_method_says_the_same_in_another_process(tmp_path: Path) -> None:
    models = {method: fitted(method, tmp_path) for method in EVERY if method != "masked"}
    models["masked"] = fitted("masked", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path), *models], capture_output=True, text=True, check=True
    )
    bag = np.load(tmp_path / "bag.npy")
    for method, said in json.loads(done.stdout).items():
        here = models[method].predict(bag)
        assert said["p"] == here.probabilities.tolist(), method
        assert said["predicted"] == here.predicted
        assert said["embedding"] == models[method].embed(bag).tolist()
        for key, values in (
            ("gates", here.gates),
            ("contributions", here.contributions),
            ("windows", here.window_probabilities),
        ):
            assert said[key] == (None if values is None else values.tolist()), (method, key)
        kinds = [key for key in ("gates", "contributions", "windows") if said[key] is not None]
        expected = {"majority_vote": ["windows"], "additive": ["gates", "contributions"]}
        expected |= {"millet": ["gates", "contributions"], "bandpower": ["contributions"], "tangent": ["contributions"]}
        assert kinds == expected.get(method, ["gates"]), method


def test_a_model_knows_what_it_takes(tmp_path: Path) -> None:
    model = fitted("attention", tmp_path)
    assert model.facts.classes == ("control", "patient")
    with pytest.raises(BadData, match=r"takes windows x 4 channels x 200 samples.*got 3 x 5 x 200"):
        model.predict(np.zeros((3, 5, 200), dtype=np.float32))
    again = load(tmp_path / "attention")
    assert again.facts.signal == model.facts.signal
    assert again.facts.settings == model.facts.settings


def test_a_damaged_model_is_a_sentence(tmp_path: Path) -> None:
    fitted("attention", tmp_path)
    folder = tmp_path / "attention"
    with pytest.raises(BadData, match="no model there"):
        load(tmp_path / "nothing")
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(about | {"classes": ["a", "b", "c"]}))
    with pytest.raises(BadData, match=r"model\.json: was changed since it was written"):
        load(folder)
    (folder / "model.json").write_text(json.dumps(about | {"classes": ["a", "b", "c"]}))
    resealed(folder, "model")
    with pytest.raises(BadData, match="does not fit its settings"):
        load(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(BadData, match=r"model\.safetensors: was changed"):
        load(folder)


TINY = """
from torch import nn

class Tiny(nn.Module):
    def __init__(self, n_channels, n_times, depth=1):
        super().__init__()
        self.embedding_dim = 3
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 3))

    def forward(self, x):
        return self.net(x) * SCALE

SCALE = 1.0
"""


def test_a_model_on_ones_own_code_is_loaded_by_naming_the_code_again(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(TINY)
    model = fitted("attention", tmp_path, f"{file}:Tiny")
    bag = np.load(tmp_path / "bag.npy")
    with pytest.raises(BadUse, match="never makes code run: name it again"):
        load(tmp_path / "attention")
    again = load(tmp_path / "attention", backbone=f"{file}:Tiny")
    assert np.array_equal(again.predict(bag).probabilities, model.predict(bag).probabilities)
    file.write_text(TINY.replace("SCALE = 1.0", "SCALE = 2.0"))
    with pytest.raises(BadData, match="is not the code the model was trained with"):
        load(tmp_path / "attention", backbone=f"{file}:Tiny")


@pytest.mark.parametrize("recipe", methods.recipes())
def test_validation_subjects_are_there_exactly_where_an_epoch_is_selected(recipe: str) -> None:
    """Nobody is unused, and nothing is selected on nobody."""
    cohort = people(9, windows=4)
    settings = methods.for_cohort(cohort, "attention", "eegnet", "demo", quick("attention"), recipe=recipe)
    wrong = SubjectKFold(3).plan(cohort.subjects, cohort.labels).cv_folds(not settings.selects)[0]
    message = "no validation subjects" if settings.selects else "selects nothing, so that its validation subjects"
    with pytest.raises(BadUse, match=message):
        fit(cohort, wrong.train, wrong.validation, settings)
