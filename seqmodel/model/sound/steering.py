"""What draws free running back to the sound of train: how loud, how sharp, how voiced.

A model that hears itself drifts, however well it predicts: to be a tenth too loud in every sample
costs about 0.005 nats, and adds 14 dB in a tenth of a second. So what the output starts from is
moved a little, which costs a likelihood about as little:

    level  <-  level exp(s push)
    anchor <-  anchor min(1, sharpest / sharp)^s
               + s (OUTSIDE sum_m (nearest_m - k_m) b_m + peak (1 - peak) voice echo)

s is the strength, 0 in training: otherwise the unit would learn to undo it.

push is that of Langevin's equation: if loudness diffuses, a drift in proportion to the slope of
log p, p its density, makes p the density of what is drawn. It starts from the density in train.
What is then drawn differs from train still, so that after each epoch push moves on in proportion to
the difference of the two slopes: iterative Boltzmann inversion (Reith, Puetz, Mueller-Plathe 2003,
"Deriving effective mesoscale potentials from atomistic simulations").

sharp is the recent mean difference of neighbouring samples, sharpest what it hardly exceeds in
train: adaptive predictors that hear themselves may ring ever louder, within milliseconds.

Of the first lattice, k are the reflection coefficients and b the backward errors; nearest is k
limited to the range from low to high that is usual in train at the present loudness: what leaves
it, such as a whistle, is drawn back.

peak and echo are the pitch's: how periodic the residual is, and the residual one period ago. voice
is how strongly the present period is kept up. It starts from lag / longest, since any resonance
makes a residual somewhat periodic at short lags. After each epoch it moves on, too, by the log of
how much more usual the period is in train than in what is drawn, and is reduced to what a
likelihood can afford: the better the unit knows what comes next, the more a pull costs.
"""

OUTSIDE = 0.1
"""How strongly coefficients are drawn back into the usual range."""
NODES = 16
"""Loudness is told apart at 1, 2, 4, ..., 32768 levels, the period at as many."""
AN_OCTAVE = 5
"""Nodes in an octave of the period; the last is that of the longest."""
