/* The model: the compiled code that `seqmodel sample` runs, with the memory that it works in, so
   that the same seed gives the same notes or samples. */

class Model {
  /* What seqmodel/export/page/program.py wrote, ready for the constructor, here or in a Worker. */
  static async unpack({ program, ...content }) {
    const packed = new Blob([Uint8Array.from(atob(program), (c) => c.charCodeAt(0))]);
    const unpacked = packed.stream().pipeThrough(new DecompressionStream("deflate"));
    const data = await new Response(unpacked).arrayBuffer();
    const module = await WebAssembly.compile(data.slice(content.code));
    return { ...content, data: data.slice(0, content.code), module };
  }

  constructor(content) {
    const { base, widened, data, module, pages } = content;
    const memory = new WebAssembly.Memory({ initial: pages });
    const stack = new WebAssembly.Global({ value: "i32", mutable: true }, base);
    const env = { __linear_memory: memory, __stack_pointer: stack };
    const { step } = new WebAssembly.Instance(module, { env }).exports;
    new Float64Array(memory.buffer, base, widened).set(new Float32Array(data, 0, widened));
    new Uint8Array(memory.buffer, base + 8 * widened).set(new Uint8Array(data, 4 * widened));
    Object.assign(this, content, { step });
    this.arena = new Uint8Array(memory.buffer, ...content.arena);
    this.start = this.arena.slice();
    this.stream = new BigUint64Array(memory.buffer, content.stream, 1);
    this.ended = new BigInt64Array(memory.buffer, content.ended, 1);
    this.last = new Float64Array(memory.buffer, ...content.last);
    const { marking, marks, notes, frames: [place, bytes] } = content;
    const kind = bytes === 1 ? Uint8Array : Float64Array;
    this.drawing = new kind(memory.buffer, place, content.frameSize);
    const slot = (Type, name, count = 1) => new Type(memory.buffer, marking[name], count);
    if (marking.step) {
      this.markStream = slot(BigUint64Array, "stream");
      this.markGiven = slot(Float64Array, "given");
      this.markTemperature = slot(Float64Array, "temperature");
      this.levels = slot(BigInt64Array, "levels", marks.length * notes);
    }
  }

  /* Begin piece `number` of a seed. */
  begin(seed, number) {
    this.arena.set(this.start);
    this.stream[0] = this.key = seedKey(seed, number);
    if (this.levels) this.markStream[0] = seedKey(this.key);
    this.given = this.drawn = this.unchanged = 0;
    this.frame = null;
  }

  /* Another piece of sound begins, within this one. */
  beginAnother() {
    this.arena.set(this.start);
    this.stream[0] = this.key = seedKey(this.key);
    this.unchanged = 0;
  }

  /* What pieces are from the next on: 1 for each value that a label has, 0 for the others. */
  setLabels(columns) {
    const start = new Float64Array(this.start.buffer);
    for (const [place] of this.labels) start[place] = 0;
    for (const [place, value, added] of this.labels) start[place] += columns[value] * added;
  }

  /* Read a frame that is given and not drawn. Its marks, if there are any: see `mark`. */
  read(frame, temperature) {
    this.step(this.before, 0, -1);
    this.last.set(frame);
    this.given += 1;
    return this.mark(temperature);
  }

  /* The marks of the notes that begin in the last frame, by name: drawn at a temperature, or all
     unknown, which is 0. */
  mark(temperature) {
    const { levels, marks, marking, notes } = this;
    if (!levels) return undefined;
    this.markGiven[0] = temperature === undefined;
    this.markTemperature[0] = temperature ?? 1;
    this.step(0, ...marking.step);
    const value = (q, table) => (_, key) => table[Number(levels[q * notes + key])] ?? 0;
    return Object.fromEntries(marks.map(([name, table], q) =>
      [name, Array.from({ length: notes }, value(q, table))]));
  }

  /* The next frame, or sample of one, with its marks if there are any, and whether the piece ends
     with it; no frame if it ended before, where it had frozen. */
  draw(temperature) {
    const [fields, kind] = this.draws[Math.round(20 * temperature)];
    this.step(this.before, fields, kind);
    const before = this.frame;
    const frame = (this.frame = this.drawing.slice());
    if (this.freeze && this.freezes(frame, before)) return { ended: true };
    this.drawn += 1;
    if (this.pause && this.pauses(frame)) this.beginAnother();
    const ended = this.ended[0] && this.given + this.drawn >= this.least;
    const last = ended || (this.end && this.drawn >= this.longest);
    const marks = this.mark(temperature);
    return { frame, marks, ended: Boolean(last) && this.drawn % this.steps === 0 };
  }

  /* Whether a chord outlasts any in train: see Freeze in seqmodel/sampling/sampler.py. */
  freezes(frame, before) {
    const stays = (one, k) => one === (k < this.notes ? before[k] : 0);
    const holds = before && !this.kit && frame.every(stays);
    this.unchanged = frame.indexOf(1) < 0 ? 0 : holds ? this.unchanged + 1 : 1;
    return this.unchanged > this.freeze.chord && this.drawn >= this.freeze.piece;
  }

  /* Whether a pause lasts too long: see Pause in seqmodel/sampling/sampler.py. */
  pauses(frame) {
    const { level, frames } = this.pause;
    this.unchanged = frame.every((sample) => Math.abs(sample) <= level) ? this.unchanged + 1 : 0;
    return this.unchanged >= (frames + 1) * this.steps && this.drawn % this.steps === 0;
  }
}

/* The key of the stream of a piece of a seed, or of one apart from a key, all whole numbers of any
   size (BigInt): the first 64 bits of NumPy's SeedSequence (O'Neill's seed_seq), as in
   seqmodel/kernels/uniforms.py. */

function seedKey(...numbers) {
  const entropy = numbers.flatMap(words);
  let constant = 0x43b0d7e5;
  const hash = (word, factor) => {
    word ^= constant;
    constant = Math.imul(constant, factor);
    word = Math.imul(word, constant);
    return word ^ (word >>> 16);
  };
  const mix = (x, y) => {
    const mixed = Math.imul(x, 0xca01f9dd) - Math.imul(y, 0x4973f715);
    return mixed ^ ((mixed | 0) >>> 16);
  };
  const absorb = (word) => hash(word, 0x931e8875);
  const pool = [0, 1, 2, 3].map((k) => absorb(entropy[k] ?? 0));
  for (let from = 0; from < 4; from += 1)
    for (let to = 0; to < 4; to += 1) if (from !== to) pool[to] = mix(pool[to], absorb(pool[from]));
  for (const word of entropy.slice(4))
    for (let to = 0; to < 4; to += 1) pool[to] = mix(pool[to], absorb(word));
  constant = 0x8b51f9dd;
  const [low, high] = pool.slice(0, 2).map((word) => hash(word, 0x58f38ded) >>> 0);
  return (BigInt(high) << 32n) | BigInt(low);
}

/* A whole number as 32-bit words, the lowest first; 0 has one. */
function words(number) {
  const result = [];
  do {
    result.push(Number(number & 0xffffffffn));
    number >>= 32n;
  } while (number);
  return result;
}
