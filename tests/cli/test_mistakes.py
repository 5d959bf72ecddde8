"""User mistakes: one line on stderr, the right exit status, and nothing left behind."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import call_main, call_ok, call_refused, listing, write_piece

from seqmodel.cli.progress import training_progress
from seqmodel.config import Config

MISTAKES = r"""
prepare -> 2 Missing argument 'SOURCE' (see seqmodel prepare --help)
prepare {music} -> 2 Missing option '--out' / '-o' (see seqmodel prepare --help)
prepare {bad}/empty -o d -> 1 {bad}/empty: contains no file that can be read
prepare {bad}/nope.mid -o d -> 1 {bad}/nope.mid: no such file or folder
prepare {bad}/gone.mid -o d -> 1 {bad}/gone.mid: no such file or directory
prepare - -o d -> 2 there are no paths on stdin, which - reads, one per line
prepare {bad}/line* -o d -> 1 {bad}/line\nbreak \x1b[31m.mid: is not a MIDI file
prepare {bad}/tick-2-31.mid -o d -> 1 {bad}/tick-2-31.mid: has a time too late to be music
prepare {music} {bad}/text.mid --strict -o d -> 1 {bad}/text.mid: is not a MIDI file
prepare {bad}/text.mid -o {data} -> 1 {data} already exists; add --force to replace it
prepare {data} -o d -> 1 {data}: contains no file that can be read ... is a prepared dataset
prepare {music} -o {run} -> 1 {run} is not a prepared dataset, so it is never replaced
prepare {music} -o {bad}/others-manifest --force -> 1 {bad}/others-manifest is not
prepare {music} -o {bad}/thesis-data --force -> 1 {bad}/thesis-data holds thesis.tex, which is not
prepare {music} -o {bad}/file/d -> 1 cannot write {bad}/file/d: {bad}/file is a file, not a folder
prepare {music} -o d --step-seconds 1 --steps-per-beat 1 -> 2 ... exclude each other
prepare {music} -o d --velocity --no-onsets -> 2 --velocity needs onsets: leave out --no-onsets
prepare {music} -o d --drums loud -> 2 Invalid value for '--drums': 'loud' ... 'drop', 'keep'
prepare {music} --parts --velocity -o d -> 2 --parts must be different names
prepare {music} --run r -o d -> 2 No such option: --run (...see seqmodel prepare --help)
train {data} --nade-hidden 9 -> 2 --nade-hidden is for --output nade, not for note-unit
train {data} --output nade --components 9 -> 2 --components is for --output gaussian or logistic,
train {bad}/future -> 1 {bad}/future/manifest.json ... version 9 ... version 1
train {bad}/cut-data -> 1 {bad}/cut-data is damaged: train cannot be read
train {bad}/no-index -> 1 cannot read {bad}/no-index/valid.jsonl: no such file or directory
train {bad}/one-data -> 1 {bad}/one-data has no pieces in valid, which training needs:
train {data} --hidden 1000000 -> 1 out of memory; try a smaller --hidden
train {data} --hidden many -> 2 --hidden must be a whole number (see seqmodel train --help)
train {data} --unit gnu => 2 there is no unit 'gnu'; ... tanh, lstm ... did you mean mgu?
train {data} --unit LSTM -> 2 there is no unit 'LSTM'; ... did you mean lstm?
train {data} --epochs auto -> 2 --epochs auto needs --schedule constant:
train {data} --lr fast -> 2 --learning-rate must be a number or search, not 'fast'
train {data} --lr 0.1 --trials 3 -> 2 --trials needs --lr search, not --lr 0.1
train {data} --nope -> 2 No such option: --nope (Possible options: ... --no-end
train {data} --preset best -> 2 --preset must be one of default, paper, not 'best'
train {run} -> 2 {run} is a run: `seqmodel train --resume --run {run}` continues it
train {bad}/p.mid -> 1 {bad}/p.mid is not a prepared dataset (a file); make one with `seqmodel
    prepare SOURCE --out DATA`
train {data} --config {bad}/nope -> 1 cannot read {bad}/nope: no such file or directory
train {data} --config {bad}/not.yaml -> 1 {bad}/not.yaml: not a YAML file:
train {data} --config {bad}/typo.yaml -> 1 {bad}/typo.yaml: there is no setting 'hiden'
train {data} --config {bad}/unit.yaml -> 1 {bad}/unit.yaml: there is no unit 'gnu'
train {data} --config {bad}/logistic.yaml -> 1 {bad}/logistic.yaml: --output logistic does
train lost => 1 lost is not a prepared dataset (no such folder)
train --config {bad}/lost.yaml -> 1 {bad}/lost.yaml: /nowhere is not a prepared dataset
train {data} --config {bad}/good.yaml --unit gnu -> 2 there is no unit 'gnu'; choose one of tanh,
train {data} --run {data} -> 1 {data} is not a run folder, so it is never replaced
train {data} --run {bad}/others-config --force -> 1 {bad}/others-config is not
train {data} --run {bad}/thesis-run --force -> 1 {bad}/thesis-run holds notes/thesis.tex, ... move
train {data} --run {bad}/file/run -> 1 cannot write {bad}/file/run: {bad}/file is a file,
train {data} --init-from {bad}/empty => 1 {bad}/empty has no checkpoint (best.safetensors)
train {data} --model frame-wise --no-end --init-from {run} --hidden 5
    -> 1 --init-from {run}: the checkpoint's weights do not fit the model: ... and data prepared as
train {data} --model frame-wise --no-end --init-from {run} --hidden 4 --activation relu
    -> 1 --init-from {run}: its weights are those of another unit: ... phi = tanh ... phi = relu
train --resume -> 1 no run in runs/; train one with `seqmodel train`, or name its folder
train --resume --run {bad}/nope -> 1 {bad}/nope is not a run folder (no config.yaml)
train --resume --run {bad}/no-checkpoint -> 1 {bad}/no-checkpoint has no checkpoint to resume
train --resume --run {bad}/cut-last -> 1 {bad}/cut-last/last.safetensors is damaged
train --resume --run {run} --unit gru => 2 --unit cannot change ... if its weights fit
train {music} --resume --run {run} -> 1 {music} is not a prepared dataset (no manifest.json)
train --resume --run {bad}/gnu -> 1 {bad}/gnu/config.yaml: there is no unit 'gnu'
train --resume --run {run} --lr search -> 2 --learning-rate cannot change on --resume
train --resume --run {run} --trials 3 -> 2 --trials cannot change on --resume
train --resume --run {run} --epochs 1 -> 2 --epochs 1 is less than the 2 done in {run}
train --resume --run {run} --force -> 2 --resume excludes --init-from, --config and --force
eval --run {run} -> 2 No such option: --run; name a run without it
eval {data} -> 1 {data} is a dataset: name a run that was trained on it
eval {bad} -> 1 {bad} has no checkpoint (best.safetensors); name a run in it, such as {bad}/bad-m
eval {bad}/changed -> 1 {bad}/changed/best.safetensors is damaged (cut short or changed)
    ... delete it to use {bad}/changed/last.safetensors, or train again
eval {run} --split dev -> 2 Invalid value for '--split': 'dev' ... 'valid', 'test'
eval {run} --data {bad}/nope => 1 {bad}/nope: no such file or folder
eval {run} --data {music} --split test -> 2 --split and --data {music}, which is not a dataset,
eval {run} --data {music} --samples 3 -> 2 --samples and --data {music}, which is not a dataset,
eval {run} --per-piece --samples 3 -> 2 --samples and --per-piece exclude each other
eval {run} --per-piece --per-frame -> 2 --per-piece and --per-frame exclude each other
eval {run} --plot x.png => 2 --plot draws one piece: name a file that holds one with --data FILE
eval {run} --plot x.pdf -> 2 --plot draws PNG only: x.pdf must end in .png
eval {run} --data {bad}/one-data -> 1 {bad}/one-data has no pieces in split 'valid' (available:
eval {run} --data {bad}/drums.mid -> 1 {bad}/drums.mid: has no notes but ... (run: {run})
eval {run} --batch-size 0 -> 2 --batch-size must be at least 1 (see seqmodel eval --help)
sample a.ogg --format mid -> 2 --format mid contradicts the suffix of a.ogg: leave one out
sample o.aac --run {run} -> 2 the suffix of o.aac must be one of mid, wav,
sample - --run {run} -> 2 - needs --format, which must be one of mid, wav, flac,
sample o.mid --format aac --run {run} -> 2 --format must be one of mid, wav, flac, ogg, mp3, npy,
sample - --format mid -n 3 --run {run} -> 2 -n above 1 needs a file name, not stdout
sample o.mid --length 3 --seconds 3 --run {run} -> 2 --length and --seconds exclude each other
sample o.mid --length 1000001 --run {run} -> 2 --length asks for more than the 1,000,000 frames
sample o.mid --include-prime --run {run} -> 2 --include-prime needs --prime FILE
sample o.mid --prime {bad}/nope --run {run} -> 1 --prime {bad}/nope: no such file or directory
sample o.mid --prime {bad}/empty --run {run} -> 1 --prime {bad}/empty: is a directory
sample o.mid --prime {bad}/text.mid --run {run} -> 1 --prime {bad}/text.mid: is not a MIDI file
sample new/o.mid --run {run} -> 1 new/o.mid: there is no folder new; create it first
sample o.mid --prime-frames 8 --run {run} -> 2 --prime-frames needs --prime FILE
sample o.mid --prime x --prime-frames 8 --prime-seconds 1 --run {run}
    -> 2 --prime-frames and --prime-seconds exclude each other
sample o.mid --no-end --min-length 9 --run {run} -> 2 --min-length and --no-end exclude each other
sample o.mid --min-length 9 --run {run} => 2 {run} was trained without --end ... leave out
sample - --format mid --json --run {run} -> 2 --json and OUT - exclude each other
sample {run} o.mid -> 2 Got unexpected extra argument(s) (o.mid): it takes the file to write; name
report --run {run} -> 2 No such option: --run; name a run without it
sample {bad}/file --format mid --run {run} -> 1 {bad}/file already exists
sample {bad}/p.mid --no-end --run {run} -> 2 {run} was trained without --end ... leave out
sample {bad}/p.mid --key H --run {run} -> 2 --key must be a note such as C, F# or Eb, not 'H'
sample {bad}/file/o.mid --run {run} -> 1 cannot write {bad}/file/o.mid: {bad}/file is a file,
sample {bad}/other --format mid --force --run {run} -> 1 cannot write {bad}/other: is a directory
sample /dev/full --format mid --force --run {run} -> 1 /dev/full is a device or a pipe,
sample o.mid --tempo 3 --run {run} -> 2 --tempo must be at least 4 (see seqmodel sample --help)
sample o.mid --run {bad}/no-checkpoint -> 1 {bad}/no-checkpoint has no checkpoint
inspect {bad}/nope -> 1 {bad}/nope: no such file or folder
inspect {bad}/empty -> 1 {bad}/empty is neither ... nor a run; name one in it
inspect {bad}/song.m4a -> 1 ... convert it first: ffmpeg -i {bad}/song.m4a
inspect {bad}/text.mid --plot new/p.png -> 1 new/p.png: there is no folder new; create it first
inspect {bad}/changed-data -> 1 {bad}/changed-data is damaged: {music}/valid/2.mid
inspect {bad}/bad-metrics -> 1 {bad}/bad-metrics/metrics.jsonl is damaged: line 1: epoch is missing
inspect {run} --plot {run}/learning-curve.png -> 1 {run}/learning-curve.png already exists
units gnu -> 2 there is no unit 'gnu'; ... tanh, lstm ... `seqmodel units` ... did you mean mgu?
units --params -> 2 Option '--params' requires an argument (see seqmodel units --help)
nope -> 2 No such command 'nope' (see seqmodel --help)
--nope -> 2 No such option: --nope (see seqmodel --help)
bench --seconds 0 => 2 --seconds must be at least 0.001 (see seqmodel bench --help)
bench --part fun -> 2 there is no part 'fun'; choose one of units, models, sampling, sound
train {audio} --model frame-wise --end -> 2 --end for audio needs --model sample-wise,
train {audio} --model tied -> 2 --model tied does not fit ... frame-wise and sample-wise
train {audio} --model sample-wise --output gaussian -> 2 --output gaussian does not fit --model
train {audio} --model frame-wise --input-noise 0.1 -> 2 --input-noise is for --model tied or
train {audio} --augment-keys -> 2 --augment-keys is for music, not for 16-bit audio
train {data} --output logistic -> 2 --output logistic does not fit music, which has note-unit,
train --run {audio_run} --resume --output logistic -> 2 --output cannot change on --resume
train {audio} --init-from {run} => 2 --init-from {run}: {audio} holds audio,
train {odd}/frame --init-from {audio_run} --unit lstm --hidden 6 --components 3
    -> 1 --init-from {audio_run}: {odd}/frame has frames of 20 samples, context 20
eval {run} --data {audio} => 2 {audio} holds audio, but {run} was trained on music:
eval {audio_run} --data {odd}/frame -> 1 {odd}/frame has frames of 20 samples, context 20
    ... prepare the audio with --frame 10 --context 20
eval {audio_run} --data {odd}/context -> 1 {odd}/context has frames of 10 samples, context 30
eval {audio_run} --seconds 2 -> 2 --seconds needs --samples N
eval {audio_run} --samples 1 --seconds 1e9 -> 2 --seconds asks for more than the 2,147,483,629
sample o.mp3 --run {audio_run} -> 2 {audio_run} was trained on audio ... cannot be written as mp3
sample o.wav --tempo 90 --run {audio_run} -> 2 --tempo is for music, and {audio_run} was trained on
sample o.wav --prime x.mid --run {audio_run} -> 2 ... cannot continue x.mid: --prime must be audio
sample o.mid --prime x.wav --run {run} -> 2 ... cannot continue x.wav: --prime must be music too
sample o.wav --prime {bad}/text.wav --run {audio_run} -> 1 ... cannot be read as audio
sample o.wav --prime {bad}/short.wav --run {audio_run} -> 1 ... is shorter than a frame
sample o.wav --prime {bad}/pickle.npy --run {audio_run} -> 1 ... is damaged or not a .npy
sample o.wav --prime {bad}/cut.npy --run {audio_run} -> 1 ... is damaged or not a .npy file
sample o.wav --prime {bad}/roll.npy --run {audio_run} -> 1 ... holds uint8 of shape (5, 88), such as
    a piano-roll, not samples of shape (T, 10)
sample o.wav --prime {bad}/nan.npy --run {audio_run} -> 1 ... holds values that are not
sample o.wav --prime {bad}/loud.npy --run {audio_run} -> 1 ... holds values that are not
sample o.wav --seconds inf --run {audio_run} -> 2 --seconds asks for more than the 2,147,483,629
sample o.flac --length 214748363 --run {audio_run} -> 2 --length asks for more than
sample o.wav --length 214748362 --prime {bad}/fine.wav --include-prime --run {audio_run}
    -> 2 --include-prime asks for more than the 2,147,483,629 samples of the longest WAV
sample o.wav --temperature inf --run {audio_run} -> 2 --temperature must be at most 100
sample o.wav --length 800000 --tempo 60 --run {run} -> 2 the music lasts 55:33:20, and
sample o.mp3 --seconds 48696 --run {run} -> 2 the music lasts 13:31:36, and the longest WAV
sample o.wav --length 389558 --prime {bad}/p.mid --include-prime --run {run}
    -> 2 the music lasts 13:31:39, and the longest WAV 13:31:36: shorten it or raise --tempo
inspect {bad}/p.mid --listen {bad}/a.wav -> 1 {bad}/a.wav already exists; add --force to replace it
inspect {bad}/p.mid --listen {bad}/p.mid --force -> 2 --listen writes sound only:
inspect {bad}/p.mid --tempo 90 -> 2 --tempo needs --listen
inspect {bad}/a.wav --listen o.wav -> 2 --listen renders files of music, and {bad}/a.wav is audio
inspect {bad}/loud.npy -> 1 ... holds float64 of shape (3, 10), such as sound, not (T, 88)
inspect {bad}/long.npy --listen o.wav --tempo 4 --steps-per-beat 1
    -> 2 the music lasts 13:45:00, and the longest WAV 13:31:36: shorten it or raise --tempo
sample o.mid --run {run} --below -> 2 --below needs --fill FILE
sample o.mid --run {run} --fill nope.flac --below -> 2 ... cannot fill nope.flac: --fill must be
sample o.mid --run {run} --fill nope.mid --below -> 1 --fill nope.mid: no such file or directory
sample o.mid --run {run} --fill {bad}/p.mid --below --length 9 -> 2 --fill and --length exclude
sample o.mid --run {run} --fill {bad}/p.mid --below --temperature 0
    -> 2 --fill and --temperature 0 exclude each other
sample o.mid --run {run} --metre 6/7 -> 2 --metre must be a time signature such as 3/4 or 6/8,
sample o.mid --key H => 2 --key must be a note such as C, F# or Eb, not 'H' (run: ...music.zip)
report {run} --fill {bad}/p.mid --bars 3:3 -> 2 --bars 3:3 must begin in ... (run: {run})
report {run} --fill {bad}/drums.mid --bars 1 => 1 ... has no notes but drums ... (run: {run})
sample o.mid --run {run} --key C --transpose 2 -> 2 --key and --transpose exclude each other
compare {data} --vary hiden=3 -> 2 --vary: there is no setting 'hiden'; did you mean hidden?
compare {data} --vary data=a,b -> 2 datasets are named as arguments, not with --vary data
compare {data} --set tpe_trials=3 -> 2 --set: tpe_trials is for train; see --search and --trials
compare {data} --vary hidden=3,x -> 2 --vary: hidden must be a whole number or nothing, not 'x'
compare {data} --units gru --vary unit=tanh -> 2 unit is varied twice
compare {data} --vary hidden -> 2 --vary takes KEY=A,B,..., not 'hidden'
compare {data} --storage nosql://me:secret@host/x
    -> 1 --storage nosql://me:***@host/x cannot be used:
compare {data} --units gru,gru -> 2 gru is listed twice
compare {data} --units gru,{bad}/gru.unit -> 2 two different units are named gru: rename one
compare {data} --units own:GRU,Own:gru -> 2 own:GRU and Own:gru have the same folder, ignoring case:
compare {data} --params 3 -> 2 --params 3 is too small for tanh
compare {data} --quick --trials 3 => 2 --trials needs a search, and there is none
compare {data} --search grid -> 2 --search must be one of bracket, paper, tpe, none, not 'grid'
compare {data} --search paper --tune hidden=2..3 -> 2 --tune needs --search tpe
compare {data} --search tpe --tune dropout=0..0.5 --vary dropout=0,0.1
    -> 2 dropout is varied and tuned: leave one out
compare {data} --set dropout=0.1 --vary dropout=0,0.1
    -> 2 dropout is varied and set for all: leave one out
compare {data} --params 900 --vary params=900,1800
    -> 2 params is varied and set for all: leave one out
compare {data} --search paper --vary learning_rate=0.001,0.01
    -> 2 --search paper tries rates, but learning_rate is varied: use --search none
compare {data} --epochs => 2 No such option: --epochs; write --set epochs=VALUE (see seqmodel
compare {data} --batch-size 3 => 2 No such option: --batch-size; write --set batch_size=VALUE
compare {data} --unit gru => 2 No such option: --unit (Possible options: ... --units
compare {data} --seed 3 => 2 No such option: --seed (Possible options: ... --seeds
compare {data} --tral 3 => 2 No such option: --tral (Possible options: --storage, --trials) (see
compare {data} --against tanh --all-pairs => 2 --against and --all-pairs exclude each other
compare {data} --artifacts shared => 2 --artifacts needs --storage URL
units --hidden 5 --params 100 => 2 --hidden and --params exclude each other
units --diff gru --json => 2 --diff and --json exclude each other
compare {data} --params 900 --tune hidden=2..4 -> 2 hidden and params exclude each other
compare {data} --params 900 --config {bad}/good.yaml
    -> 1 {bad}/good.yaml: hidden and params exclude each other
train {data} --hidden 8 --params 900 => 2 --hidden and --params exclude each other
compare {data} --tune dropout=0..1 -> 2 --dropout must be below 1, not 1.0
train {data} --valid-every often
    -> 2 --valid-every must be auto, epoch, a number of updates, or minutes like 10m
compare {data} --units gru --set minutes=3 --out e
    -> 2 minutes are for `train` only, as compared runs share a machine: set epochs
compare {data} --set epochs -> 2 --set takes KEY=VALUE, not 'epochs'
compare {bad}/one-data -> 1 {bad}/one-data has no pieces in valid, which training needs:
compare {data} --preset best => 2 --preset must be one of default, paper, not 'best'
compare {data} --status -> 1 results/data holds no experiment
compare {data} --status --storage sqlite:///new.db -> 1 experiment data has not begun
compare {data} --storage //me:secret@host/x -> 2 --storage is not a database URL, such as
compare {data} --storage postgresql://me:s@cret@host/x -> 2 --storage is not a database URL,
compare {data} --storage postgresql:///me:secret@host/x -> 2 --storage is not a database URL,
compare {data} --storage nosql://h/x?passwrod=secret
    -> 1 --storage nosql://h/x?passwrod=*** cannot be
compare {data} --storage sqlite:////no/x.db -> 1 --storage sqlite:////no/x.db cannot be used:
compare {data} --config {bad}/step.yaml -> 1 {bad}/step.yaml: --output must be one of auto,
export {run} -> 2 Missing argument 'FILE' (see seqmodel export --help)
export {run} page.htm -> 2 page.htm, the file to write, must end in one of .html, .onnx, .zip
export {run} {bad}/there.html -> 1 {bad}/there.html already exists; add --force to replace it
export {audio_run} {bad}/there.html --tempo 60 => 2 --tempo is for music, and {audio_run}
report {bad}/nope --out {bad}/there.html -> 1 there is no run {bad}/nope
report {bad}/compared -> 1 {bad}/compared has no checkpoint (best.safetensors); name a run in it,
    ... such as {bad}/compared/runs/tiny/gru/trial-0, or open {bad}/compared/report.html
eval {bad}/nope --plot {run}/learning-curve.png => 1 there is no run {bad}/nope
inspect {bad}/p.mid --verify --plot {run}/learning-curve.png -> 2 --verify is for datasets and runs,
export {run} page.html --temperature 0.93
    -> 2 page.html: --temperature goes from 0 to 2 in steps of 0.05, not 0.93
export {run} page.html --tempo 7 -> 2 page.html: --tempo goes from 40 to 240, not 7
export {run} run.zip --title x -> 2 --title is for pages, which end in .html, not for run.zip
train {data} --model frame-wise --clock -> 2 --clock is for --model tied
train {data} --note-unit grue -> 2 there is no unit 'grue'
train {data} --output bernoulli --note-hidden 3 -> 2 --note-hidden is for
train {data} --output bernoulli --first-change -> 2 --first-change is for the output note-unit
train {data} --model frame-wise --note-unit gru -> 2 --note-unit is for --model tied with
train {data} --model frame-wise --output note-unit -> 2 --output note-unit does not fit --model
train {data} --processes 3 -> 2 the number of processes must be a power of two, not 3
train {data} --processes 2 --parts 1 => 2 2 processes cannot share 1 part:
train {data} --processes 2 --lr search -> 2 a search for the learning rate, as with --lr search
train {data} --processes 2 --config {bad}/search.yaml => 2 a search for the learning rate,
train {data} --init-from {struck_run} --hidden 4 -> 1 --init-from {struck_run}: {data} has no
eval {struck_run} --data {data} -> 1 {data} has no onsets ... with --onsets
eval {run} --data {struck_data} => 1 {struck_data} has onsets ... with --no-onsets
report {run} --watch --samples=2 -> 2 --watch and --samples exclude each other
report {run} --out r.pdf -> 2 --out writes HTML only: r.pdf must end in .html
report {run} --samples 0 --fill {bad}/p.mid --bars 1 -> 2 --fill and --samples 0 exclude each other
report {run} --samples 0 --bars 1 -> 2 --bars needs --fill FILE (run: {run})
report {run} {data} --out r.html -> 1 {data} is a dataset: name a run that was trained on it
report {audio_run} --out r.html --fill x.mid --below -> 2 --fill is for music, and {audio_run}
train {bad}/mu-law --model frame-wise -> 2 --model frame-wise does not fit 8-bit mu-law audio
train {bad}/mu-law --output logistic -> 2 --output logistic ... mu-law audio, which has categorical
train {audio} --output categorical -> 2 --output categorical does not fit 16-bit audio
prepare {bad}/drums.mid --drums only --onsets -o d -> 2 --onsets cannot be combined with
    --drums only: every hit is an onset
sample o.npy --run {run} --fill {bad}/p.mid --below --into 1 -> 2 --into needs a MIDI file to write
sample o.mid --run {run} --prime {bad}/p.mid --into 1 -> 2 --into needs a MIDI file to write into
sample o.mid --run {run} --fill {bad}/p.mid --below --tempo 9 -> 2 --tempo would change {bad}/p.mid,
prepare {music} --parts a --tracks -o d -> 2 --parts and --tracks exclude each other
prepare {music} --parts a --no-onsets -o d -> 2 --parts needs onsets
prepare {bad}/drums.mid --drums only --tracks -o d -> 2 --tracks cannot be combined with
prepare {bad}/drums.mid --drums only --velocity -o d -> 2 --velocity cannot be combined with
    --drums only: hits are stored without parts, velocity or timing
prepare {bad}/p.mid --drums only -o d -> 1 {bad}/p.mid: has no drums
train {data} --note-unit torch.nn:GRU -> 2 --note-unit takes units with equations
"""
"""A command, its exit status and the words of its error, where "..." stands for others; after =>
instead of -> what is told before torch loads."""
ROWS = re.sub("\n +", " ", MISTAKES).strip().splitlines()


def midi(events):
    track = b"".join(events) + b"\0\xff\x2f\0"
    head = b"MThd" + struct.pack(">IHHH", 6, 0, 1, 480)
    return head + b"MTrk" + struct.pack(">I", len(track)) + track


@pytest.fixture(scope="module")
def bad(tmp_path_factory, data, run):
    """A folder of every kind of bad file, and of a few good ones."""
    bad = tmp_path_factory.mktemp("bad")
    note_on = b"\0\x90\x3c\x40"
    files = {
        "tick-2-31.mid": midi([note_on, b"\x88\x80\x80\x80\0\x80\x3c\0"]),
        "drums.mid": midi([b"\0\x99\x3c\x40", b"\x60\x89\x3c\0"]),
        "song.m4a": b"\0\0\0\x20ftypM4A ",
        "not.yaml": b"unit: [",
        "typo.yaml": b"hiden: 3",
        "unit.yaml": b"unit: gnu",
        "gru.unit": b"h = phi(W x + U h' + b)",
        "logistic.yaml": b"output: logistic\nunit: gnu\n",
        "lost.yaml": b"unit: gru\ndata: /nowhere\n",
        "good.yaml": b"hidden: 4\n",
        "step.yaml": b"hidden: 4\noutput: step\n",
        "search.yaml": b"bracket_trials: 3\n",
        "others-manifest/manifest.json": b'{"name": "an extension", "version": 1}',
        "others-config/config.yaml": b"unit: gru\n",
    }
    texts = ("text.mid", "text.wav", "line\nbreak \x1b[31m.mid", "file", "other/file", "there.html")
    for name, content in (files | dict.fromkeys(texts, b"hello\n")).items():
        (bad / name).parent.mkdir(exist_ok=True)
        (bad / name).write_bytes(content)
    (bad / "empty").mkdir()
    (bad / "gone.mid").symlink_to("/nowhere")
    write_piece(bad / "p.mid", seed=1)
    write_piece(bad / "one" / "train" / "0.mid", seed=0)
    call_ok("prepare", bad / "one", "--no-onsets", "--out", bad / "one-data")
    sound = np.random.default_rng(0).uniform(-0.3, 0.3, 800)
    for name, samples in (("a", 800), ("short", 9), ("fine", 40)):
        soundfile.write(bad / f"{name}.wav", sound[:samples], 8000)
    call_ok("prepare", bad / "a.wav", "-o", bad / "mu-law", "--levels", "mu-law")
    np.save(bad / "long.npy", np.zeros((3300, 88), np.uint8))
    np.save(bad / "roll.npy", np.zeros((5, 88), np.uint8))
    np.save(bad / "nan.npy", np.full((3, 10), np.nan, np.float32))
    np.save(bad / "loud.npy", np.full((3, 10), 1.5))
    np.save(bad / "pickle.npy", np.array([{}], object), allow_pickle=True)
    (bad / "cut.npy").write_bytes((bad / "loud.npy").read_bytes()[:-1])

    names = ("cut-data", "no-index", "future", "changed-data", "thesis-data")
    copies = (Path(shutil.copytree(data, bad / name)) for name in names)
    cut, no_index, future, changed, thesis = copies
    os.truncate(cut / "train.npy", 200)
    (no_index / "valid.jsonl").unlink()
    manifest = json.loads((data / "manifest.json").read_text())
    (future / "manifest.json").write_text(json.dumps({**manifest, "version": 9}))
    with (changed / "valid.npy").open("r+b") as shard:
        shard.seek(-1, os.SEEK_END)
        shard.write(b"\7")
    (thesis / "thesis.tex").write_text("years of work")

    names = ("changed", "no-checkpoint", "cut-last", "bad-metrics", "thesis-run", "gnu")
    copies = (Path(shutil.copytree(run, bad / name)) for name in names)
    changed, no_checkpoint, cut, metrics, thesis, gnu = copies
    content = bytearray((run / "best.safetensors").read_bytes())
    content[-50] ^= 1
    (changed / "best.safetensors").write_bytes(content)
    for name in ("best", "last"):
        (no_checkpoint / f"{name}.safetensors").unlink()
    os.truncate(cut / "last.safetensors", 1000)
    (metrics / "metrics.jsonl").write_text("{}\n")
    settings = (run / "config.yaml").read_text()
    (gnu / "config.yaml").write_text(settings.replace("unit: lstm", "unit: gnu"))
    (thesis / "notes").mkdir()
    (thesis / "notes" / "thesis.tex").write_text("years of work")
    shutil.copytree(run, bad / "compared/runs/tiny/gru/trial-0")
    (bad / "compared/report.html").touch()
    return bad


@pytest.fixture(scope="module")
def odd(tmp_path_factory, recordings):
    """The recordings of `audio_dataset`, as files in in/, in other frames and context."""
    odd = tmp_path_factory.mktemp("odd")
    for split in recordings:
        (odd / "in" / split).mkdir(parents=True)
        soundfile.write(odd / "in" / split / "0.wav", recordings[split][0], 8000)
    for name, value in (("frame", 20), ("context", 30)):
        call_ok("prepare", odd / "in", "--out", odd / name, f"--{name}", value)
    return odd


@pytest.fixture(scope="module")
def places(request):
    """The folders that commands name in braces, which no mistake changes."""
    names = ("bad", "odd", "music", "data", "run", "struck_data", "struck_run")
    found = {name: request.getfixturevalue(name) for name in names}
    found["audio"] = request.getfixturevalue("audio_dataset").folder
    found["audio_run"] = request.getfixturevalue("audio_run_folder")
    before = listing(*found.values())
    yield found
    assert listing(*found.values()) == before


@pytest.mark.parametrize("mistake", ROWS)
def test_a_mistake_is_a_one_line_error(mistake, places, here):
    """Guards against tracebacks, vague errors, wrong exit statuses and leftover files."""
    if any(not Path(path).exists() for path in re.findall("/dev/full", mistake)):
        pytest.skip("this system has no such path")
    command, expected = re.split(" [-=]> ", mistake, maxsplit=1)
    status, _, words = expected.partition(" ")
    command = (word.format(**places) for word in command.split())
    said = call_refused(*command, says=words.format(**places), status=int(status))
    assert "cret" not in said  # of a database's address
    assert not [*here.iterdir()]


EARLY = """
train --device tpu -> 2
train {data} --run {run} -> 1
eval --data nowhere -> 1
eval {run} --data {bad}/there.html -> 1
eval {run} --data {odd}/in -> 2
eval {run} --voices -> 1
eval {run} {audio_run} -> 2
eval {run} {struck_run} -> 2
eval --device tpu -> 2
bench --device tpu -> 2
export nowhere x.zip -> 1
export {run} x.html --label a=b -> 2
report {run} --out {bad}/there.html -> 1
report {run} {audio_run} --below -> 2
compare --units foo -> 2
compare {data} --units gru --against tanh -> 2
eval {run} --classify a -> 2
eval {run} --samples 3 --judge a -> 2
sample o.mid --run nowhere -> 1
sample o.mid --run {audio_run} -> 2
sample o.mid --run {run} --run {struck_run} -> 2
sample o.mid --prime nowhere -> 1
sample o.mid --fill nowhere --bars 1 -> 1
sample o.mid --fill {bad}/p.mid -> 2
sample o.mid --fill {bad}/p.mid --bars x:y -> 2
sample o.mid --bars 1:2 -> 2
sample o.mid --metre 9 -> 2
sample o.mid --into 1 -> 2
sample o.mid --label a=b -> 2
sample o.mid --length 1000001 -> 2
sample o.wav --tempo 90 -> 2
"""


def test_mistakes_are_told_before_torch_loads(places, here):
    """It takes seconds. Without a run, the one chosen instead was a line more."""
    script = """
import sys
from seqmodel.cli.main import main
for line in sys.argv[1:]:
    sys.argv = ['seqmodel', *line.partition(' -> ')[0].split()]
    try: main()
    except SystemExit as end: print(line, end.code, 'torch' in sys.modules, file=sys.stderr)
"""
    early = [re.sub(" => (.).*", r" -> \1", row) for row in ROWS if " => " in row]
    lines = [line.format(**places) for line in (*early, *EARLY.strip().splitlines())]
    command = [sys.executable, "-c", script, *lines]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    errors, ends = told[::2], told[1::2]
    assert ends == [f"{line} {line[-1]} False" for line in lines]
    assert all(error.startswith("seqmodel: ") for error in errors)
    assert not [*here.iterdir()]


def test_a_run_is_looked_for_in_runs_too(run, data):
    """But a dataset there, such as the bundled one, used to be called a run."""
    for name, folder in (("mine", run), ("tiny", data)):
        shutil.copytree(folder, f"runs/{name}")
    call_refused("eval", "mine", says="there is no run mine; there is one named runs/mine")
    assert call_main("eval", "tiny").err == "seqmodel: there is no run tiny\n"


def test_a_run_that_is_given_twice_is_told(call, run):
    """Guards against an average of two runs that is one, mistyped or copied."""
    said = "a run, or a copy of it, is given more than once; each counts in the average\n"
    call_ok("export", run, "run.zip")
    assert call("eval", run, "run.zip").err == said
    assert said in call("sample", "a.mid", "--length", 1, "--run", run, "--run", run).err


def test_an_interrupted_training_started_again_is_told_how_to_go_on(here):
    """Only --force was named, which loses the work; a name with a space can be pasted, too."""
    shutil.copytree(Path(__file__).resolve().parents[1] / "golden/stopped", "my run")
    goes_on = "`seqmodel train --resume --run 'my run'` continues it; --force replaces it"
    call_refused("train", "--run", "my run", says=f"my run has not finished training: {goes_on}")
    (here / "my run/last.safetensors").write_bytes(b"")  # cannot be resumed
    call_refused("train", "--run", "my run", says="... train again; --force replaces it")


def test_a_plan_is_announced_again_once_it_is_far_off(capsys):
    """Guards against a promise of ten times the epochs that fit, where compiling took long, and
    against one at each check of a speed that varies."""
    with training_progress(Config(minutes=0.5), "run") as listener:
        for epochs in (20.0, 18.0, 14.0, 2.0, 2.1):
            listener.planned(epochs, int(10 * epochs))
    expected = ("about 20 epochs, 200 updates", "about 2 epochs, 20 updates")
    assert capsys.readouterr().err.splitlines() == [f"planned for 0.5 min: {e}" for e in expected]
