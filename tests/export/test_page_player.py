"""A page in a real browser: what is heard, shown, saved and played by hand, and that it is safe."""

from dataclasses import replace
from unittest.mock import ANY

import mido
import numpy as np
import pytest
from calling import call_ok
from chrome import Chrome
from midi_tracks import timed
from playing import MARKS, NOTES, STATUS, notes_in

from seqmodel.export.bundle import bundle
from seqmodel.export.page.render import export_page
from seqmodel.media.music.frames import marks_in, notes_of
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import Signature
from seqmodel.media.music.writing import velocities
from seqmodel.sampling.sampler import Sampler

pytestmark = pytest.mark.usefixtures("silent_console")

PLAY = "document.querySelector('#play').textContent"


def expected(run, seed, frames, metre=None):
    """The notes [first, last, pitch, velocity, given] of pieces, and where each begins."""
    notes, begins, begin = [], [], 0
    while begin < frames:
        drafts = Sampler(run.model).piece(64, seed=seed, number=len(begins))
        piece = np.concatenate([*drafts])
        found = notes_of(piece)
        loud = velocities(found, piece, run.frame.grid, metre=metre)
        for (first, last, pitch), velocity in zip(found.tolist(), loud.tolist(), strict=True):
            notes.append([begin + first, begin + last, pitch, velocity, False])
        begins.append(begin)
        begin += len(piece) + 2 * run.frame.grid.steps_per_beat
    return [note for note in notes if note[0] < frames], begins


def test_it_plays_the_pieces_of_a_seed_however_often_it_stops(chrome, piano, page):
    """Guards against frames lost or played twice where it stops, and between pieces."""
    chrome.open(page)
    assert chrome.run(PLAY) == "Play"
    for frame in (7, 23, 24, 90):
        heard = chrome.play_until(frame)
        chrome.run(  # before anything is heard
            """((now) => { page.sound.now = () => now; page.player.start(); page.player.stop();
              delete page.sound.now; })(page.sound.now())"""
        )
        assert chrome.run("page.player.next") == heard
    assert chrome.run(STATUS) == "Paused."
    notes, _ = expected(piano, 1, heard)
    assert chrome.run("page.player.pieces.length") > 1
    for ours, right in zip(chrome.run(NOTES), notes, strict=True):
        cut = right[1] if ours[1] is not None else ANY  # it still sounds
        assert ours == [right[0], ours[1] and cut, *right[2:]]


def test_another_seed_starts_over_with_its_own_piece(chrome, piano, page):
    chrome.open(page)
    chrome.play_until(5)
    chrome.choose("seed", "77777777777777777777")
    assert chrome.run(NOTES) == []
    heard = chrome.play_until(5)
    right, _ = expected(piano, 77777777777777777777, heard)
    assert [note[0::2] for note in chrome.run(NOTES)] == [note[0::2] for note in right]
    chrome.run("document.querySelector('#seed').value = '-1<b>'")
    chrome.click("#over")
    assert chrome.run("document.querySelector('#seed').value") == "77777777777777777777"
    pasted = "8" * 120
    chrome.choose("seed", f" {pasted} ")
    assert chrome.run("String(page.player.seed)") == pasted
    chrome.run("(location.hash = page.linkParams(), page.open())")
    assert chrome.run("String(page.player.seed)") == pasted
    chrome.click("#another")
    assert chrome.run("String(page.player.seed) === document.querySelector('#seed').value")


def test_it_sounds_lights_its_keys_and_falls_silent(chrome, page):
    """Within full scale, as often as the browser draws; the roll is drawn, nothing is loaded."""
    Chrome.open(chrome, page)
    chrome.wait("typeof page === 'object'")
    chrome.click("#play")
    chrome.wait("document.querySelectorAll('.key.on').length > 1")
    assert chrome.run("document.querySelectorAll('.key').length") == 88
    chrome.measure_loudness()
    chrome.wait("loudest > 0.05 && page.player.position > 6")
    assert chrome.run("loudest") < 1
    colours = """new Set(new Uint32Array(document.querySelector('#roll').getContext('2d')
      .getImageData(0, 200, 2000, 200).data.buffer)).size"""
    assert chrome.run(colours) > 10
    chrome.click("#play")
    chrome.wait(
        "(loudest = 0, analyser.getFloatTimeDomainData(samples), Math.max(...samples) < 1e-3)"
    )
    chrome.wait("document.querySelectorAll('.key.on').length === 0")
    assert chrome.run("performance.getEntriesByType('resource').map((e) => e.name)") == []


def test_a_page_is_small_always_the_same_and_all_of_it_has_a_name(chrome, page, piano):
    """Guards screen readers, and what the page's policy allows."""
    chrome.open(page)
    assert page.stat().st_size < 172_000
    assert export_page(piano, seed=1) == page.read_bytes()
    policy = chrome.run("document.querySelector('meta[http-equiv]').content")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.count("unsafe") == policy.count("'wasm-unsafe-eval'") == 1
    named = chrome.accessible("button", "slider", "textbox", "checkbox", "image")
    assert {name.strip() for _, name in named} >= {
        *("Play", "Start over", "Copy link", "Save as MIDI", "Save as WAV", "New seed", "Seed"),
        *("Temperature", "Tempo", "C 4", "F sharp 3"),
    }
    assert all(name.strip() for _, name in named)
    assert len([kind for kind, _ in named if kind == "button"]) >= 88 + 4


def test_metre_and_tempo_are_those_of_train(chrome, tmp_path, piano, write_page):
    """Accents of 6/8, and a file that states it where each piece begins, at 90 bpm."""
    jig = replace(piano, frame=replace(piano.frame, metre=(6, 8), tempo=90.0))
    chrome.open(write_page(jig))
    assert chrome.run("page.player.secondsPerFrame") == pytest.approx(60 / 90 / 4)
    chrome.run("page.player.restart(1n)")
    heard = chrome.play_until(70)
    right, begins = expected(jig, 1, heard, [Signature(0, 6, 8)])
    assert len(right) > 30
    assert [[note[0], *note[2:]] for note in chrome.run(NOTES)] == [
        [note[0], *note[2:]] for note in right
    ]
    file = mido.MidiFile(file=chrome.saved(tmp_path / "saved"))
    stated = [
        (tick / 120, message.numerator, message.denominator)
        for tick, message in timed(file.tracks[0])
        if message.type == "time_signature"
    ]
    assert stated == [(begin, 6, 8) for begin in begins]


@pytest.mark.usefixtures("unoptimised")
def test_frames_of_real_time_keep_their_length(chrome, tmp_path, make_run, write_page):
    """Frames of 0.13 s, at 100 % and at 200 %."""
    run = make_run(tmp_path / "run", unit="tanh", grid=Grid.of_seconds("0.13"))
    chrome.open(write_page(run))
    assert chrome.run("page.player.secondsPerFrame") == pytest.approx(0.13)
    chrome.choose("tempo", 200)
    chrome.play_until(12)
    file = mido.MidiFile(file=chrome.saved(tmp_path / "saved"))
    times = {round(tick / 960 / 0.13, 3) for tick, *_ in notes_in(file, "")}
    assert all(abs(time - round(time)) < 0.01 for time in times)
    assert [m.tempo for m in file.tracks[0] if m.type == "set_tempo"] == [250_000]


def test_learned_marks_are_played_and_saved(chrome, tmp_path, make_run, write_page):
    """Guards strikes that cut off what begins early, and tracks of parts."""
    run = make_run(tmp_path, model="tied", unit="gru", onsets=True, **MARKS)
    chrome.open(write_page(run))
    strike = "(...how) => (struck.push(how), { release() {} })"
    chrome.run(f"(window.struck = [], window.mute = () => (page.sound.strike = {strike}), 0)")
    chrome.play_until(40)
    ours = chrome.run(
        "page.player.notes.map((n) => [n.first, n.last, n.key + 21, n.velocity, n.late, n.part])"
    )
    frames = np.concatenate([*Sampler(run.model).piece(64, seed=1)])
    end = chrome.run("page.player.next")
    notes = notes_of(frames[:end])
    marks = {name: of[notes[:, 0], notes[:, 2] - 21] for name, of in marks_in(frames).items()}
    late = np.minimum((marks["timing"] - 64.0) / 126, 58 / 120)  # it stays in its frame
    assert [[n[0], *n[2:4], n[5]] for n in ours] == sorted(
        [first, pitch, velocity, part]
        for (first, _, pitch), velocity, part in zip(
            notes.tolist(), marks["velocity"].tolist(), marks["part"].tolist(), strict=True
        )
    )
    assert sorted(n[4] for n in ours) == pytest.approx(sorted(late))
    seconds = 60 / 120 / 4
    played = [[seconds * (first + by), pitch, part == 2] for first, _, pitch, _, by, part in ours]
    silence = "({ getChannelData: () => new Float32Array(1), sampleRate: 8000 })"
    chrome.run(f"(page.sound.record = async (all) => (window.saved = all, {silence}), 0)")
    chrome.run("page.player.file('wav', true).then(() => 0)")
    saved = chrome.run("saved.map(([pitch, , time, , drum]) => [time, pitch, drum])")
    assert saved == [[pytest.approx(max(0, time)), *of] for time, *of in played]
    seconds = "time - page.player.startTime"
    times = chrome.run(f"struck.map(([pitch, , time, drum]) => [{seconds}, pitch, drum])")
    assert times[: len(ours)] == [[pytest.approx(time), *of] for time, *of in played]
    loudest = """Promise.all([[36, true], [36, false], [90, true]].map(async ([pitch, drum]) => {
      const hit = [pitch, 100, 0, 0.5, drum];
      const sound = await new Instrument().record([hit]);
      return Math.max(...sound.getChannelData(0).map(Math.abs)); }))"""
    kick, bass, nothing = chrome.run(loudest)
    assert kick != bass
    assert min(kick, bass) > 0.01 > nothing == 0
    file = mido.MidiFile(file=chrome.saved(tmp_path / "saved"))
    names = [track.name.encode("latin-1").decode() for track in file.tracks]
    assert names == ["tempo", "Flöte", "other"]
    programs = [m.program for track in file.tracks for m in track if m.type == "program_change"]
    assert programs == [73]
    channels = [{m.channel for m in track if m.type == "note_on"} for track in file.tracks[1:]]
    assert channels == [{1}, {9}]  # the last part is drums
    pitch, *_, is_drum = chrome.run("(mute(), page.player.press(15, 90), struck.at(-1))")
    assert (pitch, is_drum) == (36, False)  # by hand
    assert chrome.run("CHANNELS") == [*range(9), *range(10, 16)]  # one each, but for the drums'
    step = file.ticks_per_beat // 4
    for k, track in enumerate(file.tracks[1:], 1):
        of_part = sorted(
            (max(0, round(step * (n[0] + n[4]))), n[2], n[3]) for n in ours if n[5] == k
        )
        saved = [(first, *of) for first, _, *of in notes_in(file, track.name)]
        assert sorted(saved) == of_part != []


def test_an_opening_by_computer_keys_is_continued(chrome, tmp_path, piano, page):
    chrome.open(page)
    chrome.play_until(3)
    chrome.run("lasting(3.2)")  # each key is down for so many frames
    for key in "agag":
        chrome.press(key)
    assert chrome.run(STATUS) == "Listening: two beats after your last note the model goes on."
    assert chrome.run(PLAY) == "Continue my opening"
    chrome.play_until(60)
    notes = chrome.run(NOTES)
    given = [note for note in notes if note[4]]
    assert [note[2] for note in given] == [60, 67, 60, 67]
    assert all(isinstance(edge, int) for note in given for edge in note[:2])
    start, end = given[0][0], max(note[1] for note in given)
    lasting = [(first - start, last - start) for first, last, *_ in given]
    assert lasting == [(0, 3), (3, 6), (6, 10), (10, 13)]  # the grid's nearest frames
    prime = np.zeros((end - start, 176), np.uint8)
    for first, last, pitch, *_ in given:
        prime[first - start : last - start, pitch - 21] = 1
        prime[first - start, 88 + pitch - 21] = 1
    drafts = Sampler(piano.model).piece(64, seed=1, prime=prime)
    drawn = np.concatenate([*drafts])
    drawn[0, 88:] = drawn[0, :88]  # what is held over from the opening is struck again
    right = [(end + a, pitch) for a, _, pitch in notes_of(drawn).tolist()]
    ours = [(note[0], note[2]) for note in notes if end <= note[0] < end + len(drawn)]
    assert len(ours) > 10
    assert ours == right[: len(ours)]
    file = mido.MidiFile(file=chrome.saved(tmp_path / "saved"))
    assert [note[2] for note in notes_in(file, "given")] == [60, 67, 60, 67]
    assert {note[2] for note in notes_in(file, "drawn")} >= {pitch for _, pitch in ours}


def test_keys_on_screen_play_by_mouse_by_keyboard_and_by_screen_reader(chrome, page):
    chrome.open(page)
    chrome.run("(page.sound.now = () => 0, 0)")  # or the model answers
    chrome.click('[data-key="40"]', 0.5, 0.9)
    chrome.wait("page.player.notes.length === 1 && page.player.notes[0].last !== null")
    chrome.run("page.keyboard.focus(39)")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        chrome.press(key)
    assert chrome.run("document.activeElement.ariaLabel") == "D 5"
    chrome.press("Enter")
    chrome.wait("page.player.notes.length === 2")
    chrome.run("page.keyboard.buttons[44].click()")
    chrome.wait("page.player.notes.at(-1).key === 44 && page.player.notes.at(-1).last !== null")
    assert chrome.run("page.player.notes.map((note) => note.key)") == [40, 53, 44]
    assert (
        chrome.run("[...document.querySelectorAll('.key')].filter((k) => k.tabIndex === 0).length")
        == 1
    )
    chrome.run("document.querySelector('#typing').click()")
    chrome.press("a")
    assert chrome.run("page.player.notes.length") == 3


def test_a_first_touch_of_a_key_does_not_keep_the_page_silent(chrome, page):
    """Browsers let no page sound before the finger is lifted, and then only if asked again."""
    Chrome.open(chrome, page, width=360, height=640)
    chrome.wait("typeof page === 'object'")
    chrome.click('[data-key="39"]', y=0.8, by="touch")
    chrome.messages()  # that it did
    chrome.wait("page.player.notes.length === 1 && page.player.notes[0].last !== null")
    chrome.click("#play", by="touch")
    chrome.wait("page.player.position > 2")


def test_a_midi_keyboard_plays(chrome, page):
    """A device that is not there cannot be tested: its messages can."""
    chrome.open(page)
    chrome.run("(page.player.beat = 1e6, 0)")  # or the model answers
    chrome.run(
        """(window.one = {}, navigator.requestMIDIAccess = async () =>
          ({ inputs: new Map([['one', one]]) }))"""
    )
    chrome.click("#midi")
    chrome.wait(f"{STATUS} === 'MIDI keyboard connected.'")
    chrome.run("one.onmidimessage({ data: [0x93, 64, 33] })")
    chrome.wait("page.player.notes.length === 1 && page.player.position > 0")
    chrome.run("one.onmidimessage({ data: [0x93, 64, 0] })")
    chrome.run("one.onmidimessage({ data: [0x90, 5, 99] })")  # no key of a piano
    chrome.run("one.onmidimessage({ data: [0xb0, 64, 127] })")  # a pedal
    assert chrome.run("page.player.notes.map((n) => [n.key, n.velocity, n.last > 0])") == [
        [43, 33, True]
    ]


def test_keys_that_sound_are_lit_in_forced_colours(chrome, page):
    """Of Windows' contrast themes, which replace all others; black keys stay black, too."""
    chrome.open(page)
    chrome.run("(page.keyboard.light(new Set([39, 40])), 0)")
    colours = """[39, 40, 41, 42].map((key) =>
      getComputedStyle(page.keyboard.buttons[key]).backgroundColor)"""
    usual = chrome.run(colours)
    assert len({*usual}) == 4
    forced = {"name": "forced-colors", "value": "active"}
    chrome._command("Emulation.setEmulatedMedia", features=[forced])
    assert chrome.run("matchMedia('(forced-colors: active)').matches")
    assert chrome.run(colours) == usual


@pytest.mark.parametrize(
    ("width", "height", "dark"),
    [(360, 640, True), (1200, 800, False), (844, 390, False), (720, 450, True)],
)
def test_no_page_scrolls_sideways_and_the_keys_are_in_view(chrome, page, width, height, dark):
    """On a phone, either way up, too, and magnified twice; Play is, wherever one scrolls."""
    chrome.open(page, width=width, height=height, dark=dark)
    assert chrome.run("document.documentElement.scrollWidth") <= width
    box = "document.querySelector('%s').getBoundingClientRect().toJSON()"
    chrome.wait(f"{box % '#keys'}.bottom <= {height}")  # once it has been laid out
    assert chrome.run(f"{box % '#roll'}.height") > 100
    if width < 500:
        assert chrome.run(f"{box % '.key.white'}.width") >= 24
        assert chrome.run(f"{box % '#stage'}.width") >= 14 * 23.3
    chrome.run("window.scrollTo(0, 1e6)")
    play = chrome.run(box % "#play")
    assert 0 <= play["top"] < play["bottom"] <= height
    assert chrome.covered() == []
    assert chrome.run("getComputedStyle(document.querySelector('.key')).filter") == "none"
    ground = "getComputedStyle(document.body).backgroundColor"
    assert (chrome.run(ground) == "rgb(20, 23, 27)") == dark


HOSTILE = (
    "<!--<script></script><script>window.hacked = 1</script>"
    "<img src=x onerror='hacked=1'>\" onload=\"hacked=1"
)


@pytest.mark.usefixtures("unoptimised")
def test_hostile_names_run_nothing(chrome, tmp_path, make_run, write_page):
    """Of folder and data; a unit's name has no such signs, its comments are not on the page."""
    unit = f"# {HOSTILE} */ hacked = 1; /*\nsource: {HOSTILE}\nh = phi(W x + U h')\n"
    folder = tmp_path / HOSTILE.replace("/", "\u2044")
    run = make_run(folder, unit=unit, model="tied", data=str(tmp_path / HOSTILE / "<!--"))
    page = write_page(run)
    chrome.open(page)
    assert chrome.run("window.hacked === undefined")
    assert chrome.run("document.title") == "Music by a neural network"
    assert chrome.run("page.name") == folder.name
    assert page.read_text("utf-8").count("</script>") == 2
    chrome.click("#play")
    chrome.wait("page.player.position > 2")


def test_a_model_that_cannot_keep_up_says_so(chrome, page):
    chrome.open(page)
    chrome.run("(mute(), page.player.setPace(4))")
    chrome.slow_down(100)
    chrome.click("#play")
    chrome.wait(f"{STATUS}.startsWith('Playing slowly')")
    chrome.click("#play")
    assert chrome.run(STATUS) == "Paused."


def test_after_a_stall_the_music_goes_on_in_time(chrome, page):
    """Guards against frames whose time has passed, which a browser plays all at once."""
    chrome.open(page)
    chrome.run("freeze()")
    chrome.run(
        """(page.leads = [], page.player.real = page.player.play, page.player.play = (drawn) => {
          page.leads.push(page.player.timeOf(page.player.next) - page.player.sound.now());
          page.player.real(drawn);
        })"""
    )
    chrome.click("#play")
    chrome.wait("page.player.playing")
    chrome.run("advance(() => page.leads.length > 3)")
    chrome.run("(page.leads.length = 0, page.clock += 1.2, advance(() => page.leads.length > 6))")
    assert chrome.run("Math.min(...page.leads)") > 0
    chrome.click("#play")


def test_a_faster_tempo_loses_no_note_that_is_due(chrome, page):
    """Guards against the end of a note, at the new tempo, before its scheduled beginning."""
    chrome.open(page)
    chrome.run("freeze()")
    chrome.run(
        """(page.begins = [], page.sound.strike = (pitch, velocity, begin) => {
          page.begins.push(begin);
          return { release: (end) => { page.lost = page.lost || end < begin; } };
        })"""
    )
    chrome.click("#play")
    chrome.wait("page.player.playing")
    chrome.run("advance(() => page.begins.some((begin) => begin > page.clock + 0.2))")
    chrome.run("(page.player.setPace(4), advance(() => page.player.position > 30))")
    assert not chrome.run("page.lost")
    chrome.run("delete page.sound.strike")
    chrome.click("#play")


def test_a_stalled_page_draws_on(chrome, page):
    """Guards against drawing on the page's own thread, which a layout or a long task holds up."""
    chrome.open(page)
    chrome.run("(Model.prototype.draw = () => { throw new Error('drawn by the page'); }, 0)")
    chrome.run("page.player.source.request(1, 1)")
    chrome.wait("page.player.source.waiting.length === 1")
    drawn = chrome.run(  # in a pause that is long enough for this machine
        """(async () => {
          const { source } = page.player;
          const turn = () => new Promise((done) => setTimeout(done, 5));
          for (let pause = 300; pause < 20_000 && source.waiting.length < 80; pause *= 2) {
            while (source.requested) await turn();
            source.waiting.length = 0;
            source.request(80, 1);
            const until = performance.now() + pause;
            while (performance.now() < until);
            await turn();
          }
          return source.waiting.length;
        })()"""
    )
    assert drawn == 80


def address(chrome, frame):
    """The page's address, and the notes [first, pitch, given] that it has played by a frame."""
    chrome.wait("location.hash === `#${page.linkParams()}`")
    return chrome.run("location.href"), [
        [first, pitch, given] for first, _, pitch, _, given in chrome.run(NOTES) if first < frame
    ]


def test_a_link_leads_to_the_same_notes(chrome, page):
    """With its seed, temperature and tempo, also where it is opened from another page."""
    chrome.open(page)
    entries = chrome.run("history.length")
    for name, value in (("seed", 77777777777777777777), ("temperature", 0.8), ("tempo", 96)):
        chrome.choose(name, value)
    frame = chrome.play_until(30)
    link, notes = address(chrome, frame)
    assert link.endswith("#seed=77777777777777777777&t=0.8&bpm=96")
    assert chrome.run("history.length") == entries
    chrome.open(page)
    chrome.run(f"(location.href = '{link}', 0)")  # which loads nothing
    chrome.wait("String(page.player.seed) === '77777777777777777777'")
    chrome.play_until(30)
    assert address(chrome, frame) == (link, notes)
    wrong_openings = (f"opening={notes}" for notes in ("60.0.3_", "7.0.3", "60.0.0"))
    for wrong in ("seed=-1&t=warm&bpm=", "seed=1.5&t=5&bpm=999", *wrong_openings):
        chrome.run(f"(location.hash = '{wrong}', 0)")
        chrome.wait("location.hash === '#seed=1&t=1&bpm=120' || page.player.seed === 1n")
        assert chrome.run("page.linkParams()") == "seed=1&t=1&bpm=120"


def test_an_opening_is_answered_and_its_link_plays_the_same(chrome, page):
    """Two beats after its last note, not before; `Back to the music` goes on where it was."""
    chrome.open(page)
    before = chrome.play_until(20)
    music = chrome.run(NOTES)
    chrome.run("freeze()")
    chrome.press("a")
    cluster = "for (let key = 0; key < 88; key += 1) if (key !== 39)"
    chrome.run(f"(() => {{ {cluster} page.player.press(key, 80); }})()")
    chrome.run(f"(() => {{ {cluster} page.player.release(key); }})()")
    chrome.run("(page.clock += 7.9 * page.player.secondsPerFrame, page.player.fill())")
    assert chrome.run("page.player.listening")
    chrome.run("(page.clock += 0.2 * page.player.secondsPerFrame, page.player.fill())")
    assert chrome.run("page.player.playing")
    chrome.run(
        """advance(() => page.player.position >= page.player.pieces.at(-1)?.first + 30)
        .then(() => { page.stop(); delete page.sound.now; })"""
    )
    link, notes = address(chrome, 10**6)
    answer = [[first - before, *rest] for first, *rest in notes if first >= before]
    assert [given for *_, given in answer[:88]] == [True] * 88
    assert len(answer) > 93
    chrome.click("#back")
    assert chrome.run("[page.linkParams(), page.player.next]") == ["seed=1&t=1&bpm=120", before]
    assert chrome.run(NOTES) == music  # those that sounded sound on
    sounding = f"({NOTES}).filter(([, last]) => last === null || last > {before})"
    chrome.play_until(60)
    onward = [[note[0], note[2]] for note in chrome.run(sounding)]
    chrome.open(page)
    chrome.play_until(60)
    right = [[note[0], note[2]] for note in chrome.run(sounding)]
    assert len(right) > 5
    assert right[0][0] < before
    assert onward == right
    chrome.run(f"(location.href = '{link}', 0)")
    chrome.wait("page.player.given.length === 88")
    chrome.play_until(29)
    link_again, again = address(chrome, 28)
    assert link_again == link
    assert sorted(again) == sorted(note for note in answer if note[0] < 28)


@pytest.mark.usefixtures("unoptimised")
def test_voices_below_what_was_played_are_those_of_fill(chrome, tmp_path, piano, page):
    """As the command draws them; so does a link to them, and a new tune is answered as before."""
    chrome.open(page)
    assert chrome.run("document.querySelector('#voices').hidden")
    chrome.run("lasting(3.2)")  # each key is down for so many frames
    for key in "gah":
        chrome.press(key)
    chrome.click("#voices")
    chrome.wait("page.player.playing")
    chrome.run("advance(() => page.player.position >= 10)")
    chrome.click("#play")
    melody, zipped, out = (tmp_path / name for name in ("melody.mid", "run.zip", "out.npy"))
    track = mido.MidiTrack()
    for pitch, length in ((67, 3), (60, 3), (69, 4)):
        track.append(mido.Message("note_on", note=pitch))
        track.append(mido.Message("note_off", note=pitch, time=24 * length))
    mido.MidiFile(type=0, ticks_per_beat=96, tracks=[track]).save(melody)
    zipped.write_bytes(bundle(piano))
    options = ("--below", "--particles", 16, "--seed", 1, "--run", zipped)
    call_ok("sample", out, "--fill", melody, *options)
    right = notes_of(np.load(out)).tolist()
    notes = chrome.run(NOTES)
    assert sorted(note[:3] for note in notes) == sorted(right)
    assert [note[:3] for note in notes if note[4]] == [[0, 3, 67], [3, 6, 60], [6, 10, 69]]
    assert len(right) > 20
    link, _ = address(chrome, 0)
    assert link.endswith("&opening=67.0.3_60.3.3_69.6.4&voices=below")
    chrome.open(page)
    chrome.run(f"(location.href = '{link}', 0)")
    chrome.wait("page.player.below")
    chrome.play_until(10)
    assert [note for note in chrome.run(NOTES) if note[0] < 10] == notes
    chrome.press("a")
    assert not chrome.run("page.player.below")


def test_keys_sound_with_the_music(chrome, piano, page):
    """Guards against keys that end the music, or drawn notes that end what is held by hand."""
    chrome.open(page)
    chrome.click("#play")
    chrome.wait("page.player.playing")
    chrome.run(
        """(page.player.press(39, 80), page.player.press(40, 80),
        advance(() => page.player.position >= 40).then(() => {
          page.player.release(39); page.stop(); }))"""
    )
    notes = chrome.run(NOTES)
    assert [[pitch, given] for *_, pitch, _, given in notes if given] == [[60, True], [61, True]]
    drawn = [[first, pitch] for first, _, pitch, _, given in notes if not given]
    notes_then, _ = expected(piano, 1, chrome.run("page.player.next"))
    right = [[note[0], note[2]] for note in notes_then]
    assert drawn == right
    assert [note[1] is None for note in notes if note[4]] == [False, True]


def test_space_plays_and_pauses_where_no_control_has_the_focus_of_keys(chrome, page):
    chrome.open(page)
    chrome.run("mute()")
    chrome.press(" ")
    chrome.wait("page.player.playing")
    chrome.click("#over")
    chrome.wait("page.player.playing")
    chrome.press(" ")
    chrome.wait(f"{STATUS} === 'Paused.'")
    assert chrome.run("window.scrollY") == 0
    in_menu = """['Space', 'KeyA'].map((code) => document.querySelector('#part').dispatchEvent(
      new KeyboardEvent('keydown', { code, key: code === 'KeyA' ? 'a' : ' ', bubbles: true,
                                     cancelable: true })))"""
    assert chrome.run(in_menu) == [True, True]
    assert chrome.run("page.player.notes.filter((note) => note.byHand).length") == 0
    chrome.run("document.querySelector('#another').focus({ focusVisible: true })")
    chrome.press(" ")
    assert chrome.run("[page.player.playing, page.linkParams() === 'seed=1&t=1&bpm=120']") == [
        *(False, False)
    ]


def test_a_click_while_it_plays_is_one_in_safari_too(chrome, page):
    """It drops a click on a text that is replaced between press and release."""
    chrome.open(page)
    chrome.click("#play")
    chrome.wait("page.player.position > 0")
    chrome.run("(window.text = document.querySelector('#play span').firstChild, 0)")
    chrome.wait("page.player.position > 2")
    assert chrome.run("text.isConnected")


def test_letters_on_the_keys_are_those_of_the_layout(chrome, page):
    """As AZERTY has them; Z and X, there W and X, move them."""
    chrome.open(page)
    shown = """[...document.querySelectorAll('.key')].filter((key) => key.dataset.letter)
      .map((key) => `${key.ariaLabel} ${key.dataset.letter}`)"""
    assert chrome.run(shown)[:3] == ["C 4 A", "C sharp 4 W", "D 4 S"]
    chrome.run("(page.press = () => {}, 0)")
    for code, key in (("KeyA", "q"), ("KeyX", "x")):
        event = f"new KeyboardEvent('keydown', {{bubbles: true, code: '{code}', key: '{key}'}})"
        chrome.run(f"document.body.dispatchEvent({event})")
    assert chrome.run(shown)[:3] == ["C 5 Q", "C sharp 5 W", "D 5 S"]
    assert chrome.run("document.querySelector('#lowest').value") == "C 5"
