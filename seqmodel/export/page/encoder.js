/* What the unit reads of the frames before: one row of inputs for each of its rows. */

/* Frame-wise: the previous frame, as in model/encoder.py. */
class FrameInputs {
  constructor(model) {
    this.rows = [new Float64Array(model.frameSize)];
  }

  start() {
    this.rows[0].fill(0);
  }

  read() {}

  append(frame) {
    this.rows[0].set(frame);
  }
}

const REACH = 12; /* semitones to either side, and pitch classes */
const BUMPS = 8;

/* Tied: a row for each note, as in model/notes.py and model/note_inputs.py. */
class NoteInputs {
  constructor(model) {
    this.model = model;
    this.window = 2 * REACH + 1;
    this.heard = this.window + REACH + 1 + BUMPS + REACH + (model.onsets ? this.window : 0);
    this.kinds = model.onsets ? 2 : 1;
    this.clockAt = this.heard + (model.echo ? (1 + this.kinds) * MATCHES.length : 0);
    this.size = this.clockAt + model.metre + model.clockSize;
    this.rows = Array.from({ length: model.notes }, (_, note) => this.pitch(note));
    this.frame = new Float64Array(model.frameSize);
  }

  /* A row with what never changes: the note's absolute pitch. */
  pitch(note) {
    const row = new Float64Array(this.size);
    const at = this.window + REACH + 1;
    for (let k = 0; k < BUMPS; k += 1) {
      const centre = (k * (this.model.notes - 1)) / (BUMPS - 1);
      row[at + k] = Math.exp(-0.5 * (((note - centre) * BUMPS) / this.model.notes) ** 2);
    }
    row[at + BUMPS + (note % REACH)] = 1;
    return row;
  }

  start() {
    this.frame.fill(0);
    this.elapsed = 0;
    this.echo = new Echo();
  }

  read() {
    const { notes, onsets, echo, metre, clock, clockSize, clockPeriod } = this.model;
    const sounding = this.frame.subarray(0, notes);
    const classes = new Float64Array(REACH);
    sounding.forEach((sounds, note) => (classes[note % REACH] += sounds));
    const count = classes.reduce((sum, some) => sum + some) / REACH;
    this.rows.forEach((row, note) => {
      around(sounding, note, row, 0);
      for (let k = 0; k < REACH; k += 1) row[this.window + k] = classes[(note + k) % REACH];
      row[this.window + REACH] = count;
      if (onsets) around(this.frame.subarray(notes), note, row, this.heard - this.window);
    });
    if (echo) {
      this.echo.remember(this.frame);
      this.echo.write(this.rows, this.heard, this.kinds);
    }
    for (let k = 0; k < metre; k += 1) {
      for (const row of this.rows) row[this.clockAt + k] = (this.elapsed >> k) & 1;
    }
    if (clock) {
      const last = clock.length / clockSize - clockPeriod + (this.elapsed % clockPeriod);
      const at = clockSize * Math.min(this.elapsed, last);
      const told = clock.subarray(at, at + clockSize);
      for (const row of this.rows) row.set(told, this.clockAt + metre);
    }
  }

  append(frame) {
    this.frame.set(frame);
    this.elapsed += 1;
  }
}

/* Writes the notes from REACH below to REACH above into a row from `at` on. */
function around(notes, note, row, at) {
  for (let k = -REACH; k <= REACH; k += 1) row[at + REACH + k] = notes[note + k] ?? 0;
}
