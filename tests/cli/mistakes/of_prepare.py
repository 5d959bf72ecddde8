"""Mistakes in `prepare`."""

from mistakes.said import EXISTS, HELP, KINDS, NO_MIDI, NOTHING_ELSE

PREPARE = {
    "prepare": (2, f"Missing argument 'SOURCE' {HELP.format('prepare')}"),
    "prepare {music}": (2, f"Missing option '--out' / '-o' {HELP.format('prepare')}"),
    "prepare {bad}/empty -o d": (1, f"{{bad}}/empty: contains no file that can be read ({KINDS})"),
    "prepare {bad}/other -o d": (1, f"{{bad}}/other: contains no file that can be read ({KINDS})"),
    "prepare {bad}/nope.mid -o d": (1, "{bad}/nope.mid: no such file or folder"),
    "prepare {bad}/nope* -o d": (1, "{bad}/nope*: no such file or folder"),
    "prepare {bad}/gone.mid -o d": (1, "{bad}/gone.mid: no such file or directory"),
    "prepare {music} {bad}/nope -o d": (1, "{bad}/nope: no such file or folder"),
    "prepare - -o d": (2, "there are no paths on stdin, where - reads them, one per line"),
    "prepare {bad}/text.mid -o d": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "prepare {bad}/text.mid -o new/folder/d": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "prepare {bad}/line* -o d": (1, f"{{bad}}/line\\nbreak \\x1b[31m.mid: {NO_MIDI}"),
    "prepare {bad}/nothing.mid -o d": (1, "{bad}/nothing.mid: is empty"),
    "prepare {bad}/header.mid -o d": (1, "{bad}/header.mid: is cut short within its header"),
    "prepare {bad}/division-0.mid -o d": (
        1,
        "{bad}/division-0.mid: has a division of 0 ticks per beat, so its notes have no time",
    ),
    "prepare {bad}/tick-2-31.mid -o d": (
        1,
        "{bad}/tick-2-31.mid: has a time too late to be music (a damaged delta)",
    ),
    "prepare {bad}/long.mid -o d": (
        1,
        "{bad}/long.mid: has 1073741820 frames at 4 steps per beat, more than the 1000000 a piece "
        "may have; use fewer --steps-per-beat",
    ),
    "prepare {bad}/drums.mid -o d": (
        1,
        "{bad}/drums.mid: has no notes but drums; use --drums keep",
    ),
    "prepare {bad}/text.mat -o d": (
        1,
        "{bad}/text.mat: is damaged or not a .mat file of version 7 or before",
    ),
    "prepare {bad}/text.pickle -o d": (1, "{bad}/text.pickle: is damaged or not a pickle"),
    "prepare {bad}/text.npz -o d": (
        1,
        "{bad}/text.npz: is a damaged .npz file (File is not a zip file)",
    ),
    "prepare {bad}/text.npy -o d": (1, "{bad}/text.npy: holds a damaged array in the array"),
    "prepare {bad}/text* -o d": (
        1,
        "none of the 5 files can be used; the first, {bad}/text.mat: is damaged or not a .mat file "
        "of version 7 or before",
    ),
    "prepare {music} {bad}/text.mid --strict -o d": (1, f"{{bad}}/text.mid: {NO_MIDI}"),
    "prepare {music} -o {data}": (1, f"{{data}} {EXISTS}"),
    "prepare {music} -o {run}": (1, f"{{run}} is not a prepared dataset, {NOTHING_ELSE}"),
    "prepare {music} -o {bad}/file --force": (
        1,
        f"{{bad}}/file is not a prepared dataset, {NOTHING_ELSE}",
    ),
    "prepare {music} -o {bad}/other --force": (
        1,
        f"{{bad}}/other is not a prepared dataset, {NOTHING_ELSE}",
    ),
    "prepare {music} -o {bad}/others-manifest --force": (
        1,
        f"{{bad}}/others-manifest is not a prepared dataset, {NOTHING_ELSE}",
    ),
    "prepare {music} -o {bad}/thesis-data --force": (
        1,
        "{bad}/thesis-data holds thesis.tex, which is not part of a prepared dataset; move it "
        "elsewhere or name another place",
    ),
    "prepare {music} -o {bad}/file/d": (
        1,
        "cannot write {bad}/file/d: {bad}/file is a file, not a folder",
    ),
    "prepare {music} -o {bad}/file/new/d": (1, "cannot write {bad}/file/new/d: not a directory"),
    "prepare {music} -o /proc/d": (1, "cannot write /proc/d: no such file or directory"),
    "prepare {music} -o d --steps-per-beat 0": (
        2,
        "--steps-per-beat must be from 1 to 32767, not 0",
    ),
    "prepare {music} -o d --step-seconds 0": (
        2,
        "--step-seconds must be above 0 and at most 60, not 0",
    ),
    "prepare {music} -o d --step-seconds=": (2, "--step-seconds must be a number, not ''"),
    "prepare {music} -o d --step-seconds 1 --steps-per-beat 1": (
        2,
        "--steps-per-beat and --step-seconds exclude each other",
    ),
    "prepare {music} -o d --drums loud": (
        2,
        "Invalid value for '--drums': 'loud' is not one of 'drop', 'keep' "
        f"{HELP.format('prepare')}",
    ),
}
