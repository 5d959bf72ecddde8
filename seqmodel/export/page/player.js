/* What is heard when. Time is counted in frames of the grid: 12.5 is in the middle of frame 12. */

const AHEAD_SECONDS = 0.35;
const AHEAD_HIDDEN_SECONDS = 2.5; /* browsers slow down the timers of pages that are not seen */
const AT_ONCE_MS = 40;
const MOST_NOTES = 200000; /* remembered, for the file that is saved */

/* The grid: how long a frame is, now; `framesPerBeat` is null where frames are of real time. */
class Grid {
  constructor({ framesPerBeat, secondsPerFrame }) {
    this.framesPerBeat = framesPerBeat;
    this.plainSeconds = secondsPerFrame; /* at 120 beats per minute, or as they are */
    this.beat = framesPerBeat ?? Math.max(1, Math.round(0.5 / secondsPerFrame));
    this.pace = 1;
  }

  get secondsPerFrame() {
    return this.plainSeconds / this.pace;
  }
}

class Player {
  constructor(model, sound, grid) {
    Object.assign(this, { model, sound, grid, temperature: 1 });
    this.restart(1n);
  }

  /* Forget what was played, and begin with the first piece of a seed. */
  restart(seed) {
    this.stop();
    this.seed = seed;
    this.notes = []; /* {key, first, last, velocity, given, voice}: last is null while it sounds */
    this.pieces = []; /* {first, number} */
    this.paces = []; /* {first, seconds}: from frame `first` on, a frame lasts so long */
    this.opening = null; /* where one begins that is played by hand */
    this.base = this.next = 0;
    this.music = this.draws([]);
    this.waiting = []; /* frames drawn and not heard yet */
  }

  /* Pieces without end, frame by frame; null while there is still none. */
  *draws(opening) {
    const { model, grid } = this;
    for (let number = 0; ; number += 1) {
      model.begin(this.seed, BigInt(number));
      const given = number ? [] : opening;
      for (const frame of given) {
        model.read(frame);
        yield null;
      }
      for (let place = given.length, ended = false; !ended; place += 1) {
        const drawn = model.draw(this.temperature);
        ended = drawn.ended;
        yield { frame: drawn.frame, number, place, begins: place === given.length };
      }
      const silent = new Float64Array(model.frameSize);
      for (let k = 0; k < 2 * grid.beat; k += 1) yield { frame: silent, number };
    }
  }

  /* ---- the clock ---- */

  get position() {
    if (!this.running) return this.base;
    const since = Math.max(0, this.sound.now() - this.since);
    const reached = this.base + since / this.grid.secondsPerFrame;
    return this.playing ? Math.min(reached, this.next) : reached; /* no further than it was drawn */
  }

  timeOf(frame) {
    return this.since + (frame - this.base) * this.grid.secondsPerFrame;
  }

  run(from, delay) {
    this.base = from;
    this.since = this.sound.now() + delay;
    this.running = true;
    const seconds = this.grid.secondsPerFrame;
    if (this.paces.at(-1)?.seconds !== seconds) this.paces.push({ first: from, seconds });
  }

  setPace(pace) {
    const { position, running } = this;
    this.grid.pace = pace;
    if (running) this.run(position, 0);
  }

  /* ---- playing ---- */

  get playing() {
    return Boolean(this.running) && this.opening === null;
  }

  get listening() {
    return this.opening !== null;
  }

  /* Play on from where it stopped; or the opening played by hand, continued. */
  start() {
    if (this.listening) this.take();
    this.late = 0; /* how often, lately, a frame was not drawn in time */
    this.coming = []; /* frames given to the sound and perhaps not heard yet */
    this.run(this.next, 0.08);
    for (const note of this.sounding()) this.sing(note, this.timeOf(this.next));
    this.fill();
  }

  stop() {
    if (!this.running) return;
    const { position } = this;
    const cut = Math.ceil(position);
    this.running = false;
    this.base = position;
    this.sound.silence();
    if (this.listening) return;
    this.notes = this.notes.filter((note) => note.first < cut);
    for (const note of this.notes) if (note.last > cut) note.last = null; /* it still sounds */
    this.pieces = this.pieces.filter((piece) => piece.first < cut);
    const unheard = this.coming.filter(({ at }) => at >= cut).map(({ drawn }) => drawn);
    this.waiting.unshift(...unheard);
    this.next = cut;
  }

  /* Draw and give to the sound what is heard within the next moments; called by a timer. */
  fill() {
    if (!this.playing) return;
    const ahead = document.hidden ? AHEAD_HIDDEN_SECONDS : AHEAD_SECONDS;
    const began = performance.now();
    while (this.timeOf(this.next) < this.sound.now() + ahead) {
      const drawn = this.waiting.shift() ?? this.music.next().value;
      if (drawn) this.play(drawn);
      if (performance.now() - began > AT_ONCE_MS) break;
    }
    this.late *= 0.99;
    if (this.timeOf(this.next) < this.sound.now()) {
      if (this.coming.length) this.late += 1;
      this.run(this.next, 0.05);
    }
    this.coming = this.coming.filter(({ at }) => at >= Math.floor(this.position));
    if (this.notes.length > MOST_NOTES) this.notes.splice(0, MOST_NOTES / 2);
  }

  play(drawn) {
    const { model, grid, next } = this;
    const { frame, number, place } = drawn;
    const held = new Map(this.sounding().map((note) => [note.key, note]));
    if (drawn.begins) this.pieces.push({ first: next - place, number });
    for (let key = 0; key < model.notes; key += 1) {
      const note = held.get(key);
      const begins = frame[key] && (!note || (model.onsets && frame[model.notes + key]));
      if (note && (begins || !frame[key])) this.end(note, next);
      if (begins) this.begin(key, next, velocity(key, frame, model.notes, place, grid), false);
    }
    this.coming.push({ at: next, drawn });
    this.next += 1;
  }

  sounding() {
    return this.notes.slice(-1000).filter((note) => note.last === null);
  }

  begin(key, first, loudness, given) {
    const note = { key, first, last: null, velocity: loudness, given };
    this.notes.push(note);
    this.sing(note, this.timeOf(first));
  }

  sing(note, time) {
    note.voice = this.sound.strike(note.key + LOWEST_PITCH, note.velocity, time);
  }

  end(note, last) {
    note.last = last;
    note.voice.release(this.timeOf(last));
    note.voice = null;
  }

  /* Whether lately frames were not drawn in time. */
  get slow() {
    return this.late > 8;
  }

  /* The file of what was heard so far. */
  file() {
    const now = Math.ceil(this.position);
    const notes = this.notes
      .filter((note) => note.first < now)
      .map((note) => ({ ...note, last: Math.min(note.last ?? now, now) }));
    return new Blob([midiFile(notes, this.paces, this.grid)], { type: "audio/midi" });
  }

  /* ---- an opening, played by hand ---- */

  press(key, loudness) {
    if (!this.listening) {
      this.stop();
      for (const note of this.sounding()) note.last = this.next;
      this.opening = this.next;
      this.run(this.next, 0);
    }
    this.release(key);
    this.begin(key, this.position, loudness, true);
  }

  release(key) {
    for (const note of this.sounding())
      if (note.given && note.key === key) this.end(note, this.position);
  }

  /* Move the opening to the grid, and make music that continues it. */
  take() {
    const { model, opening } = this;
    this.sounding().forEach((note) => this.end(note, this.position));
    const notes = this.notes.filter((note) => note.given && note.first >= opening);
    const last = new Map();
    for (const note of notes) {
      note.first = Math.round(note.first);
      note.last = Math.max(note.first + 1, Math.round(note.last));
      const before = last.get(note.key);
      if (before) before.last = Math.min(before.last, note.first);
      last.set(note.key, note);
    }
    const end = Math.max(opening, ...notes.map((note) => note.last));
    const frames = Array.from({ length: end - opening }, () => new Float64Array(model.frameSize));
    for (const { key, first, last } of notes) {
      for (let k = first; k < last; k += 1) frames[k - opening][key] = 1;
      if (model.onsets && last > first) frames[first - opening][model.notes + key] = 1;
    }
    this.notes = this.notes.filter((note) => note.last === null || note.last > note.first);
    this.opening = null;
    this.waiting = [];
    this.music = this.draws(frames);
    this.next = end;
  }
}
