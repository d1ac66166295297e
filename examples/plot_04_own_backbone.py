"""
A backbone of your own
======================

A backbone is a PyTorch module that maps windows to embeddings. It is named by its file, and its source is part of
a run's identity: an edited
network never gets the results of its earlier code.
"""

import tempfile
from pathlib import Path

import bridgemil

folder = Path(tempfile.mkdtemp())
(folder / "mine.py").write_text('''
from torch import nn


class Shallow(nn.Module):
    """Temporal and spatial convolution, log power (after Schirrmeister et al., 2017)."""

    def __init__(self, n_channels, n_times, width=16):
        super().__init__()
        self.embedding_dim = width
        self.time = nn.Conv1d(1, width, 25)
        self.space = nn.Conv2d(width, width, (n_channels, 1), bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):  # N x C x T
        n, channels, times = x.shape
        h = self.time(x.reshape(n * channels, 1, times)).reshape(n, channels, self.embedding_dim, -1)
        h = self.norm(self.space(h.transpose(1, 2)))  # N x width x 1 x T
        return h.square().mean(dim=(2, 3)).clamp(min=1e-6).log()
''')
address = f"{folder / 'mine.py'}:Shallow"

# %%
# Test it
# -------

bridgemil.backbones.create(address, 19, 200, width=8)

# %%
# Evaluate it
# -----------
# On 16 synthetic subjects; every method accepts it. From the command line: ``--backbone mine.py:Shallow --set
# backbone_options.width=8``.

from bridgemil.cohort.synthetic import SynthSettings, synthesise

recordings = synthesise(folder / "recordings", SynthSettings(subjects=16, seconds=60), progress=False)
cohort = bridgemil.prepare(recordings, folder / "cohort", label="group", progress=False)
results = bridgemil.evaluate(
    cohort, "attention", address, budget="demo", folds=3, settings={"backbone_options.width": 8},
    baselines=False, progress=False,
)  # fmt: skip
results.plot("subjects")
results

# %%
# The identity contains the source.

print(results.settings.code)
