"""Small cohorts in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridgemil.cohort.cohort import Cohort


def people(
    n: int = 12,
    *,
    classes: Sequence[str] = ("control", "patient"),
    n_channels: int = 4,
    n_times: int = 200,
    windows: int = 6,
    effect: float = 0.0,
    seed: int = 0,
) -> Cohort:
    """Noise of ``n`` people in two recordings each, bags of unequal length; patients get ``effect`` of slow waves.

    Electrodes get unequal parts of it: what all have alike is the reference's.
    """
    rng = np.random.default_rng(seed)
    time = np.arange(n_times) / 200
    gains = np.linspace(0, 2, n_channels)[:, None] if n_channels > 1 else np.ones((1, 1))
    bags, labels = [], []
    for i in range(n):
        number = i % len(classes)
        recordings = []
        for part in range(2):
            size = windows + (i + part) % 3
            phase = rng.uniform(0, 2 * np.pi, (size, 1, 1))
            slow = effect * number * gains * np.sin(2 * np.pi * 5 * time + phase)
            recordings.append((10 * (rng.normal(size=(size, n_channels, n_times)) + slow)).astype(np.float32))
        bags.append(recordings)
        labels.append(classes[number])
    names = [f"E{c + 1}" for c in range(n_channels)]
    return Cohort.from_arrays(bags, labels, sfreq=200.0, channels=names, burn_in=1)
