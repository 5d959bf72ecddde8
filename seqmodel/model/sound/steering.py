"""What draws free running back to the sound of train: how loud, how sharp, how voiced.

A model that reads its own samples drifts, however well it predicts: being a tenth too loud in every
sample costs about 0.005 nats, and adds 14 dB in a tenth of a second. So the output's starting point
is moved a little, which costs the likelihood about as little:

    anchor <-  anchor min(1, sharpest / sharp)^s
    anchor <-  anchor + s (OUTSIDE sum_m (nearest_m - k_m) b_m + peak (1 - peak) voice echo)
               + s OUTSIDE (min(|dc|, most_dc) sign(dc) - dc)
               - s min(level, OUTSIDE |anchor| max(0, 1 - loudest / loud)) sign(anchor)
    level  <-  min(level, roughest + initial) exp(s push)

and, if a piece's labels are known and train's recordings differ by label, also

    level  <-  level exp(s f LOUDER (usual - loudness))
    anchor <-  anchor + s f min(MAX_FOLLOWED level, |off|) sign(off),
    off = sum_m (course_m - k_m) b_m.

s is the strength, 0 in training: otherwise the unit would learn to undo the steering.

push is that of Langevin's equation: if loudness diffuses, a drift in proportion to the slope of log
p, p its density, makes p the density of what is drawn. It starts from the density in train. What is
then drawn still differs from train, so after each epoch push moves on in proportion to the
difference of the two slopes: iterative Boltzmann inversion (Reith, Puetz, Mueller-Plathe 2003,
"Deriving effective mesoscale potentials from atomistic simulations").

sharp is the recent mean difference of neighbouring samples, sharpest what it hardly exceeds in
train: adaptive predictors that read their own samples may ring ever louder, within milliseconds.
At high rates even loud low tones are not sharp, and their errors too small for push to soften them:
loud is the recent mean size of the samples, loudest what it hardly exceeds in train. This pull
is at most a level, so that recordings louder than train cost little.

roughest is what the level hardly exceeds in train. Without this limit, large errors lead to larger
ones until the sound clips, where nearly all of it is predictable: in chords of a piano the level is
a hundredth of the loudness, and each error leaves a ring that the next ones are measured by.
initial leaves out the beginning of a piece, which predictors do not know yet: it falls from 1000 as
fast as the level from its start, 200, by which units learn to scale.

dc is the recent mean of the samples, most_dc what its size hardly exceeds in train. At high rates
predictors follow the lowest frequencies so closely that they nearly integrate: small errors of one
sign, which hardly cost the likelihood anything, add up.

k and b are the first lattice's reflection coefficients and backward errors. nearest is k limited to
the range from low to high that is usual in train at the present loudness: what leaves it, such as a
whistle, is drawn back.

peak and echo belong to the pitch: how periodic the residual is, and the residual one period ago.
voice is how strongly the present period is kept up. It starts from lag / longest, since any
resonance makes a residual somewhat periodic at short lags. After each epoch it also moves on by the
log of how much more usual the period is in train than in what is drawn, and is reduced to what the
likelihood can afford: the better the unit knows what comes next, the more a pull costs.

course is k limited to `WIDE` standard deviations around the mean of train's recordings with the
same labels at this time since they began, usual the mean logarithm of their loudness: a digit is
its course of resonances, which a unit that reads single samples is slow to learn. At most
`MAX_LOUDER` is added to the logarithm of the level. f is what the likelihood can afford of both,
at most 1; in samples `--guidance` multiplies it. While there is a course, voice is multiplied too,
by `MAX_KEPT_UP` at most, because resonances drawn towards a course leave sound hoarse. A label that
is not given matches any value; if none is given, and at the end of the first second, there is no
course.

What this takes from the training split is `TrainingStatistics`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seqmodel.model.sound.predictors import FULL

OUTSIDE = 0.1
"""How strongly coefficients, the mean and the loudness are drawn back into the usual range."""
MAX_FOLLOWED, LOUDER, MAX_LOUDER = 0.15, 0.05, 0.3
"""The most the anchor moves towards the labels' course, as a share of its level; how much the
level's logarithm is raised per factor e by which the sound is too soft for it, and the most."""
GUIDANCE, MAX_KEPT_UP = 4.0, 3.0
"""The guidance of samples by default, and the most by which it multiplies voices; chosen by figures
in docs/results/labels.md."""
WIDE = 0.7
"""Standard deviations on either side of the course within which nothing is corrected."""
MOMENTS, FADING = 50, 10
"""Moments of each course, one every `MOMENT` seconds; its pull fades over the last `FADING`."""
MAX_COURSES = 256
"""With more combinations of labels there are no courses."""
NODES = 16
"""Loudness is distinguished at 1, 2, 4, ..., 32768 levels, and the period at as many nodes."""
AN_OCTAVE = 5
"""Nodes in an octave of the period; the last node is the longest period."""
PUSHES, VOICES, RANGES = 4, 4 + 2 * NODES, 4 + 4 * NODES
"""Where these begin in the packed numbers."""


class TrainingStatistics(NamedTuple):
    """Statistics of the training split's recordings, and how strongly they steer."""

    share: float
    """The share with a grid coarser than 1, with half a recording of each kind added."""
    grid: float
    """The most common grid coarser than 1; 1 if there are none."""
    sharpest: float
    """What the level `sharp` hardly exceeds."""
    roughest: float
    """What the level hardly exceeds; twice full scale, no limit, where it was not measured."""
    pushes: Tensor
    """(NODES,), the push at each loudness."""
    slopes: Tensor
    """(NODES,), the slope of log p at each loudness."""
    voices: Tensor
    """(NODES,), how strongly each period is kept up."""
    periods: Tensor
    """(NODES,), log of how usual each period is."""
    ranges: Tensor
    """(NODES, 2 M) for M coefficients: low and high at each loudness."""
    afforded: Tensor = torch.zeros(0, dtype=torch.float64)
    """(1,), the share of the pull towards `courses` that is applied; empty without labels."""
    courses: Tensor = torch.zeros(0, dtype=torch.float64)
    """(1 + R, MOMENTS, M + 1) for R combinations of labels, M coefficients and the logarithm of the
    loudness: the widths on either side, then the means of each; empty without labels."""
    strength: float = 0.0
    """The strength of the steering, see `steering.py`; not packed, but set where it is used."""
    guidance: float = 1.0
    """How many times as strongly `courses` are followed; likewise."""
    most_dc: float = 2 * FULL
    """What the size of the recent mean hardly exceeds; twice full scale, no limit, where it was not
    measured; likewise, but stored beside the packed numbers."""
    loudest: float = 2 * FULL
    """What the level `loud` hardly exceeds; likewise."""

    def packed(self) -> Tensor:
        """All numbers but the last four in one line, float64."""
        scalars = self.pushes.new_tensor(self[:4])
        return torch.cat([scalars, *(table.flatten() for table in self[4:-4])])

    def strengths(self) -> Tensor:
        """(4,), the strength, the guidance, `most_dc` and `loudest`, float64."""
        return self.pushes.new_tensor(self[-4:])


def unpacked(numbers: Tensor, stages: int) -> TrainingStatistics:
    """The statistics that `packed` packed, for a first lattice with `stages` stages as features."""
    roughest = float(numbers[3]) or 2 * FULL  # runs from before it was measured store 0
    tables = numbers[4:RANGES].view(4, NODES)
    ranges, rest = numbers[RANGES:].tensor_split([NODES * 2 * stages])
    courses = rest[1:].view(-1, MOMENTS, stages + 1)
    known = ranges.view(NODES, -1), rest[:1], courses, 0.0, 1.0, 2 * FULL, 2 * FULL
    return TrainingStatistics._make([*numbers[:3].tolist(), roughest, *tables, *known])


def no_statistics(stages: int, combinations: int = 0) -> TrainingStatistics:
    """The statistics before training, for a first lattice with `stages` stages as features."""
    nothing = torch.zeros(NODES, dtype=torch.float64)
    ranges = torch.ones(NODES, 2 * stages, dtype=torch.float64)
    ranges[:, :stages] = -1
    afforded = nothing[: min(combinations, 1)]
    courses = nothing.new_zeros(combinations and 1 + combinations, MOMENTS, stages + 1)
    tables = nothing, nothing, nothing, nothing, ranges, afforded, courses
    return TrainingStatistics(0.5, 1.0, 2 * FULL, 2 * FULL, *tables)
