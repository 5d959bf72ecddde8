/* What the unit of sound reads: what adaptive predictors say of the next sample, as in
   seqmodel/model/sound/predictors.py, which says what each part is. Samples are in 16-bit levels. */

const FULL = 32768;
const FAINT = 1e-9;
const CLIP = 8;
const TAPS = 4;
const LEAST_PEAK = 1e-3;

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const inScale = (value) => clamp(value, -FULL, FULL - 1);

/* The latest values of something: at(0) is the latest. */
class Line {
  constructor(size) {
    this.mask = 2 ** Math.ceil(Math.log2(size + 1)) - 1;
    this.values = new Float64Array(this.mask + 1);
    this.head = 0;
  }

  push(value) {
    this.head = (this.head + 1) & this.mask;
    this.values[this.head] = value;
  }

  at(back) {
    return this.values[(this.head - back) & this.mask];
  }
}

/* Burg's lattice; see lattice.py. */
class Lattice {
  constructor({ order, forgetting }) {
    this.forgetting = forgetting;
    [this.k, this.b, this.num] = [0, 0, 0].map(() => new Float64Array(order));
    this.den = new Float64Array(order).fill(100);
    this.said = 0;
  }

  /* The error of what was said; says what comes next. */
  hear(sample) {
    const { k, b, num, den, forgetting } = this;
    const error = sample - this.said;
    let forward = sample;
    let backward = sample;
    let said = 0;
    for (let m = 0; m < k.length; m += 1) {
      const old = b[m];
      const reflection = k[m];
      num[m] = forgetting * num[m] + 2 * forward * old;
      den[m] = forgetting * den[m] + forward * forward + old * old + 2 / 12;
      b[m] = backward;
      backward = old - reflection * forward;
      forward -= reflection * old;
      k[m] = (0.995 * num[m]) / den[m];
      said += k[m] * b[m];
    }
    this.said = inScale(said);
    return error;
  }
}

/* Where the residual repeats itself; see pitch.py. */
class Pitch {
  constructor(told) {
    Object.assign(this, told, { energy: 1e4, lag: told.shortest, peak: LEAST_PEAK });
    this.acf = new Float64Array(told.longest - told.shortest + 1);
  }

  hear(line) {
    const { acf, step, shortest, forgetting } = this;
    const newest = line.at(0);
    this.energy = forgetting * this.energy + newest * newest + 1;
    let best = 0;
    for (let n = 0; n < acf.length; n += 1) {
      acf[n] = forgetting * acf[n] + newest * line.at((n + shortest) * step);
      if (acf[n] > acf[best]) best = n;
    }
    this.lag = acf[best] > LEAST_PEAK * this.energy ? best + shortest : shortest;
    this.peak = Math.max(acf[best] / this.energy, LEAST_PEAK);
  }

  /* The residual one period before the next, `tap` steps later. */
  ago(line, tap) {
    return line.at((this.lag - tap) * this.step - 1);
  }
}

class SoundInputs {
  constructor(model) {
    this.told = model.sound;
    this.rows = [new Float64Array(this.told.size)];
    const numbers = new Float64Array(decoded(this.told.known));
    const tables = numbers.subarray(4);
    const nodes = 16;
    const table = (n) => tables.subarray(n * nodes, (n + 1) * nodes);
    [this.share, this.usual, this.sharpest] = numbers;
    [this.pushes, this.voices, this.ranges] = [table(0), table(2), tables.subarray(4 * nodes)];
    this.nodes = nodes;
  }

  start() {
    const { lattices, levels, pitch } = this.told;
    this.lattices = lattices.map((lattice) => new Lattice(lattice));
    this.pitch = new Pitch(pitch);
    this.levels = Object.fromEntries(levels.map(({ name, start }) => [name, start]));
    this.lines = {};
    for (const [name, size] of this.told.lines) this.lines[name] = new Line(size);
    this.grid = this.usual;
    this.seen = 0;
    this.sample = 0;
  }

  append([sample]) {
    this.sample = FULL * sample;
  }

  read() {
    this.hear(this.sample);
    this.at = 0;
    for (const { kind, ...feature } of this.told.features) this[kind](feature);
  }

  hear(sample) {
    const { lines, levels, pitch } = this;
    this.hearGrid(sample);
    sample += FAINT;
    const newest = { sample, slope: sample - lines.sample.at(0) };
    this.lattices.forEach((lattice, n) => (newest[`residual ${n}`] = lattice.hear(sample)));
    for (const { name, of, forgetting } of this.told.levels)
      levels[name] = forgetting * levels[name] + (1 - forgetting) * Math.abs(newest[of]);
    for (const [name, line] of Object.entries(lines)) {
      if (name === "smooth") {
        newest.smooth = 0;
        for (let k = 0; k < pitch.step; k += 1)
          newest.smooth += lines["residual 0"].at(k) / pitch.step;
      }
      line.push(newest[name]);
    }
    pitch.hear(this.pitchLine);
  }

  get pitchLine() {
    return this.lines[this.told.pitchLine];
  }

  /* The largest power of two that all samples are multiples of; see grid.py. */
  hearGrid(sample) {
    if (sample === 0) return;
    const lowest = Number.isInteger(sample) ? sample & -sample : 1;
    this.grid = this.seen > 0 ? Math.min(this.grid, lowest) : lowest;
    this.seen = Math.min(this.seen + 1, 2);
  }

  level(name) {
    return this.levels[name] + this.told.levels.find((level) => level.name === name).floor;
  }

  put(value) {
    this.rows[0][this.at++] = value;
  }

  putOver(value, level, factor = 1) {
    this.put(factor * clamp(value / level, -CLIP, CLIP));
  }

  get anchor() {
    return this.lattices[0].said;
  }

  /* ---- features ---- */

  Recent({ line, size, level, factor }) {
    const over = this.level(level);
    const from = line === "sample" ? this.anchor : 0;
    for (let back = 0; back < size; back += 1)
      this.putOver(this.lines[line].at(back) - from, over, factor);
  }

  Rival({ lattice }) {
    this.putOver(this.lattices[lattice].said - this.anchor, this.level("slow"));
  }

  Reflections({ size }) {
    for (let m = 0; m < size; m += 1) this.put(this.lattices[0].k[m]);
  }

  Loudness({ level, offset }) {
    this.put(Math.log(this.level(level)) / 2 - offset);
  }

  Period() {
    const { pitch, pitchLine } = this;
    const slow = this.level("slow");
    for (let tap = -TAPS; tap <= TAPS; tap += 1) this.putOver(pitch.ago(pitchLine, tap), slow, 0.5);
    this.put(pitch.peak);
    this.put(Math.log2(pitch.lag / pitch.longest));
  }

  Grid() {
    const odds = this.share * this.grid ** this.seen;
    this.put(this.grid > 1 ? odds / (odds + 1 - this.share) : 0);
    this.put(this.grid / FULL);
  }

  /* The first prediction and its level, steered; see steering.py. */
  Anchor() {
    const { pitch, nodes, told } = this;
    const [loud, sharp, slow] = ["loud", "sharp", "slow"].map((name) => this.level(name));
    const { k, b } = this.lattices[0];
    const stages = this.ranges.length / nodes / 2;
    const place = Math.log2(loud);
    let pull = 0;
    for (let m = 0; m < stages; m += 1) {
      const low = this.between(this.ranges, place, 2 * stages, m);
      const high = this.between(this.ranges, place, 2 * stages, stages + m);
      pull += 0.1 * (clamp(k[m], low, high) - k[m]) * b[m];
    }
    const period = Math.log2(pitch.lag / pitch.longest) * 5 + nodes - 1;
    const voice = this.between(this.voices, period);
    pull += pitch.peak * (1 - pitch.peak) * voice * pitch.ago(this.pitchLine, 0);
    const blunted = this.anchor * Math.min(this.sharpest / sharp, 1) ** told.strength;
    this.put(inScale(blunted + told.strength * pull) / FULL);
    this.put((slow * Math.exp(told.strength * this.between(this.pushes, place))) / FULL);
  }

  /* A column of a table of rows of `width` at the nodes, in between. */
  between(table, place, width = 1, column = 0) {
    place = clamp(place, 0, this.nodes - 1);
    const node = Math.min(Math.floor(place), this.nodes - 2);
    const below = table[node * width + column];
    const above = table[(node + 1) * width + column];
    return below + (above - below) * (place - node);
  }
}
