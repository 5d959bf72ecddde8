/* Music, drawn as it plays, and openings played by hand. */

const MAX_NOTES = 200000; /* remembered for the saved file */

/* The model's `grid` has the length of a frame at the tempo of train; `framesPerBeat`, null if
   frames are of real time; and `metre`: the units in a frame, a beat and a bar, and the parts of a
   beat. */
class NotePlayer extends Player {
  pace = 1;
  below = false; /* whether to draw voices below the opening, rather than what follows it */

  constructor(model, sound) {
    super(model, sound);
    this.beat = beatOf(model);
  }

  /* Restart with a seed's first piece, which may have a given opening: [key, first, length] of each
     note, in frames. */
  restart(seed, given = []) {
    this.interrupted?.music.source.end();
    super.restart(seed, { given, below: this.below && given.length > 0 });
    this.given = given;
    this.notes = []; /* {key, first, late, last, velocity, part, given, byHand, voice}: `late` in
      frames, `part` from 1 on, last null if sounding */
    this.pieces = []; /* {first, number} */
    this.paces = []; /* {first, seconds}: the length of frames from `first` on */
    this.opening = null; /* where an opening played by hand begins */
    this.interrupted = null; /* the music before it */
  }

  get secondsPerFrame() {
    return this.model.grid.secondsPerFrame / this.pace;
  }

  run(from, delay) {
    super.run(from, delay);
    const seconds = this.secondsPerFrame;
    if (this.paces.at(-1)?.seconds !== seconds) this.paces.push({ first: from, seconds });
  }

  setPace(pace) {
    const { position, running } = this;
    this.pace = pace;
    if (running) this.run(position, 0);
  }

  /* Play on from where it stopped; or continue the opening played by hand. */
  start() {
    if (this.listening) this.endOpening();
    super.start();
    for (const note of this.sounding())
      if (!this.isDrum(note)) this.startVoice(note, this.timeOf(this.next)); /* hits have rung */
  }

  cut(frame) {
    super.cut(frame);
    this.notes = this.notes.filter((note) => note.first < frame);
    for (const note of this.notes)
      if (note.last > frame && !note.byHand) note.last = null; /* it still sounds */
    this.pieces = this.pieces.filter((piece) => piece.first < frame);
  }

  /* A frame, of which all, none or some keys are given. */
  play({ frame, marks, number, place, given }) {
    const { model, next } = this;
    const drawnNotes = this.sounding().filter((note) => !note.byHand);
    const held = new Map(drawnNotes.map((note) => [note.key, note]));
    const first = next - place;
    if (place !== undefined && this.pieces.at(-1)?.first !== first)
      this.pieces.push({ first, number });
    const struck = new Map();
    for (let key = 0; key < model.notes; key += 1) {
      const note = held.get(key);
      const isGiven = given?.[key] ?? given;
      const goesOn = note?.given === isGiven && !(model.onsets && frame[model.notes + key]);
      const drawn = isGiven ? null : marks;
      const [late, part, velocity] = ["timing", "part", "velocity"].map(
        (name) => drawn?.[name]?.[key] ?? 0);
      if (note && !(frame[key] && goesOn)) this.end(note, next + Math.min(0, late));
      if (frame[key] && !goesOn) struck.set(key, { late, part, velocity, given: isGiven });
    }
    const voices = frame.slice(0, model.notes).map((on, key) =>
      on && !(model.apart && this.isDrum(struck.get(key) ?? held.get(key))));
    for (const [key, note] of struck) {
      note.velocity ||= velocity(key, voices, place, this);
      this.begin(key, next, note);
    }
    if (this.notes.length > MAX_NOTES) this.notes.splice(0, MAX_NOTES / 2);
  }

  sounding() {
    return this.notes.slice(-1000).filter((note) => note.last === null);
  }

  begin(key, first, how, byHand = false) {
    const note = { key, first, last: null, byHand, ...how };
    this.notes.push(note);
    this.startVoice(note, this.timeOf(first + note.late));
    if (this.model.kit) this.end(note, first + 1); /* a hit is not held */
  }

  startVoice(note, time) {
    note.begins = time; /* even if the tempo changes before */
    note.voice = this.sound.strike(this.pitch(note), note.velocity, time, this.isDrum(note));
  }

  /* The drums, by MIDI key, on the rows of a note's part, if it is one of drums; a note without a
     part is of the last, as in files. */
  drums({ given, part }) {
    return given ? null : this.model.parts.at(part - 1)?.drums;
  }

  isDrum(note) {
    return this.model.kit || Boolean(this.drums(note));
  }

  pitch(note) {
    return this.drums(note)?.[note.key] ?? note.key + LOWEST_PITCH;
  }

  end(note, last) {
    note.last = last;
    note.voice?.release(Math.max(note.begins, this.timeOf(last)));
    note.voice = null;
  }

  /* What was heard so far, of all pieces or of this one, whose first frame is then 0. */
  recording(all) {
    const { opening, position, pieces, paces } = this;
    const now = Math.ceil(position);
    const piece = opening ?? pieces.findLast(({ first }) => first <= position)?.first;
    const from = all ? 0 : piece ?? 0;
    const afterStart = (list) =>
      list.map((one) => ({ ...one, first: one.first - from })).filter(({ first }) => first >= 0);
    const notes = afterStart(this.notes.filter(({ first }) => first < now));
    for (const note of notes) {
      note.last = Math.min(note.last ?? now, now) - from;
      note.pitch = this.pitch(note);
    }
    const later = paces.filter((_, k) => !(paces[k + 1]?.first <= from));
    const kept = later.map(({ first, seconds }) => ({ first: Math.max(0, first - from), seconds }));
    return { notes, paces: kept, pieces: afterStart(pieces) };
  }

  /* What was heard, as a file: "mid" or "wav". */
  async file(suffix, all) {
    const { notes, paces, pieces } = this.recording(all);
    if (suffix === "mid")
      return new Blob([midiFile(notes, paces, pieces, this.model)], { type: "audio/midi" });
    const time = (frame) =>
      paces.reduce((sum, { first, seconds }, k) => {
        const frames = Math.min(frame, paces[k + 1]?.first ?? Infinity) - first;
        return sum + seconds * Math.max(0, frames);
      }, 0);
    const struck = notes.map((note) => {
      const { pitch, velocity, first, late, last } = note;
      const [begin, isDrum] = [time(first + late), this.isDrum(note)];
      return [pitch, velocity, begin, isDrum ? begin + ringing(pitch) : time(last), isDrum];
    });
    const from = Math.max(0, ...struck.slice(-1000).map(([, , , end]) => end - KEPT_SECONDS));
    const kept = struck.filter(([, , begin]) => begin >= from);
    const sound = await this.sound.record(
      kept.map(([pitch, velocity, begin, end, isDrum]) =>
        [pitch, velocity, begin - from, end - from, isDrum]));
    return wavFile([0, 1].map((channel) => sound.getChannelData(channel)), sound.sampleRate);
  }

  /* ---- what is played by hand: with the music, or as an opening if none plays ---- */

  get listening() {
    return this.opening !== null;
  }

  press(key, loudness) {
    if (!this.running) this.listen();
    this.release(key);
    const how = { velocity: loudness, late: 0, part: 0, given: true };
    this.begin(key, this.position, how, true);
  }

  release(key) {
    for (const note of this.sounding())
      if (note.byHand && note.key === key) this.end(note, this.position);
  }

  listen() {
    const { next, source, given, below } = this;
    const held = this.sounding();
    for (const note of held) note.last = next;
    const [notes, pieces, paces] = [[...this.notes], [...this.pieces], [...this.paces]];
    const music = { next, source, given, below, notes, pieces, paces };
    this.interrupted ??= { music, held };
    this.below = false;
    this.opening = next;
    this.run(next, 0);
  }

  /* Discard the opening, and resume the music where the opening began. */
  back() {
    const { interrupted, seed } = this;
    this.stop();
    this.below = false;
    if (!interrupted) return this.restart(seed);
    const { music, held } = interrupted;
    for (const note of held) note.last = null; /* they sound on */
    if (this.source !== music.source) this.source.end();
    Object.assign(this, music, { base: music.next, opening: null, interrupted: null });
  }

  /* The model answers an opening on its own after two silent beats. */
  fill() {
    if (this.listening) {
      const lasts = this.notes.filter(({ first }) => first >= this.opening).map(({ last }) => last);
      const silent = lasts.includes(null) ? 0 : this.position - Math.max(...lasts);
      if (silent >= 2 * this.beat) this.start();
    }
    super.fill();
  }

  /* Snap the opening to the grid, and make music that continues it. */
  endOpening() {
    const { model, opening, seed, source, interrupted } = this;
    this.sounding().forEach((note) => this.end(note, this.position));
    const notes = this.notes.filter((note) => note.first >= opening);
    const before = new Map();
    for (const note of notes) {
      note.first = Math.round(note.first);
      note.last = model.kit ? note.first + 1 : Math.max(note.first + 1, Math.round(note.last));
      const last = before.get(note.key);
      if (last) last.last = Math.min(last.last, note.first);
      before.set(note.key, note);
    }
    this.notes = this.notes.filter((note) => note.last > note.first);
    this.given = notes
      .filter((note) => note.last > note.first)
      .map(({ key, first, last }) => [key, first - opening, last - first]);
    this.opening = null;
    const old = source === interrupted.music.source ? null : source;
    this.startSource(old, { seed, given: this.given, alreadyPlayed: true });
    this.next = Math.max(...notes.map((note) => note.last));
  }
}

function beatOf({ grid: { framesPerBeat, secondsPerFrame } }) {
  return framesPerBeat ?? Math.max(1, Math.round(0.5 / secondsPerFrame)); /* in frames */
}

/* Pieces without end, frame by frame, with two beats of silence after each. */
function* draws(model, piece) {
  for (let number = 0; ; number += 1) {
    yield* piece.below && !number ? voiced(model, piece) : composed(model, piece, number);
    const silent = { frame: new Float64Array(model.frameSize), number };
    for (let k = 0; k < 2 * beatOf(model); k += 1) yield silent;
  }
}

/* The opening belongs to the first piece, and is among its frames unless it was heard. */
function* composed(model, piece, number) {
  model.begin(piece.seed, BigInt(number));
  const given = number ? [] : openingFrames(model, piece.given);
  for (const [place, frame] of given.entries()) {
    model.read(frame);
    if (!piece.alreadyPlayed) yield { frame, number, place, given: true };
  }
  for (let place = given.length, ended = false; !ended; place += 1) {
    const drawn = model.draw(piece.temperature);
    ended = drawn.ended;
    const { frame, marks } = drawn;
    if (frame) yield { frame, marks, number, place, given: false };
  }
}

function openingFrames(model, given) {
  const count = Math.max(0, ...given.map(([, first, length]) => first + length));
  const frames = Array.from({ length: count }, () => new Float64Array(model.frameSize));
  for (const [key, first, length] of given) {
    for (let k = first; k < first + length; k += 1) frames[k][key] = 1;
    if (model.onsets) frames[first][model.notes + key] = 1;
  }
  return frames;
}

/* How loud a note is, by the rules of seqmodel/media/music/writing.py; `voices` are the notes that
   sound, except drums that have rows of their own. */
function velocity(key, voices, place, { model, secondsPerFrame }) {
  const { framesPerBeat, metre } = model.grid;
  const voice = key === voices.lastIndexOf(1) ? 10 : key === voices.indexOf(1) ? 4 : 0;
  const elapsed = place * metre.frame;
  const phrase = framesPerBeat ? elapsed / (4 * metre.bar) : (place * secondsPerFrame) / 8;
  const arch = Math.round(8 * Math.sin(Math.PI * (phrase % 1)));
  return 68 + voice + arch + (framesPerBeat ? accent(elapsed % metre.bar, metre) : 0);
}

function accent(place, { beat, bar, parts }) {
  if (place === 0) return 14;
  if (bar === 4 * beat && 2 * place === bar) return 9;
  if (place % beat === 0) return 6;
  return (parts * place) % beat === 0 ? 2 : 0;
}
