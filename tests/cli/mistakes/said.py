"""Parts of error messages that several mistakes share."""

KINDS = (
    "MIDI files (.mid .midi .kar .rmi), published rolls (.mat .pickle .npz .npy), "
    "audio (.wav .flac .mp3 ...)"
)
UNITS = (
    "tanh, lstm, gru, gru1, gru2, gru3, mgu, lstm-nopeephole, gru-reset-after, one more that "
    "`seqmodel units` lists, or a file NAME.unit; did you mean mgu?"  # of gnu
)
HELP = "(see seqmodel {} --help)"
NO_RUN = "no run in runs/; train one with `seqmodel train`, or name its folder"
NO_ZIP = "is not a run: name a run folder, or a zip that `seqmodel export` wrote"
BOTH = "--hidden and --params exclude each other: give the size or the budget"
DAMAGED = "is damaged (cut short or changed); use another checkpoint or train again"
EXISTS = "exists already; add --force to replace it"
NOTHING_ELSE = "so it is never replaced; name another place"
NO_DATASET = "is not a prepared dataset (no manifest.json); make one with `seqmodel prepare SOURCE"
NEITHER = "is neither a media file that can be inspected nor a prepared dataset nor a run folder"
NO_ROLL = "holds an array of shape (32, 11) in the array, not (T, 88)"
NO_MIDI = "is not a MIDI file (it does not begin with MThd)"
