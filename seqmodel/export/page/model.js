/* The model: what it reads, the unit that remembers it, and how frames are drawn. All of it
   computes in float64, as `seqmodel sample` does, so that the same seed gives the same notes. */

class Model {
  /* `told` is what seqmodel/export/page/content.py wrote. */
  constructor(told) {
    const numbers = new Float32Array(decoded(told.numbers));
    const array = ({ at, size }) => Float64Array.from(numbers.subarray(at, at + size));
    const arrays = (some) =>
      Object.fromEntries(Object.entries(some).map(([name, place]) => [name, array(place)]));
    const stack = ({ unit, layers }, rows) => {
      const made = layers.map(({ hidden, weights }) =>
        new Layer(UNITS[unit], hidden, arrays(weights), rows));
      return Object.assign(new Stack(made), { inputs: layers[0].inputs });
    };
    Object.assign(this, told.shape);
    this.frameSize = this.onsets ? 2 * this.notes : this.notes;
    this.sound = told.sound;
    this.clock = told.clock && new Float64Array(decoded(told.clock));
    this.output = arrays(told.output);
    if (told.noteUnit) this.output.unit = stack(told.noteUnit, 1);
    if (this.sound) this.encoder = new SoundInputs(this);
    else this.encoder = this.tied ? new NoteInputs(this) : new FrameInputs(this);
    this.unit = stack(told.unit, this.encoder.rows.length);
    if (this.sound) this.drawing = new SampleOutput(this);
    else this.drawing = this.tied ? new NotesOutput(this) : new FrameOutput(this);
  }

  /* Begin piece `number` of a seed. */
  begin(seed, number) {
    this.uniforms = new Uniforms(seed, number);
    this.past = new Float64Array(this.frameSize);
    this.drawn = 0;
    this.encoder.start();
    this.unit.start();
  }

  /* Read a frame of an opening, that is given and not drawn. */
  read(frame) {
    this.advance();
    this.append(frame);
  }

  /* The next frame, or sample of one, and whether the piece ends with it. */
  draw(temperature) {
    const uniforms = this.uniforms.take(this.uniformsPerStep);
    const { frame, ended } = this.drawing.draw(this.advance(), this.past, uniforms, temperature);
    this.append(frame);
    this.drawn += 1;
    const whole = this.drawn % this.steps === 0;
    const last = this.end && this.drawn >= this.longest;
    return { frame, ended: whole && (ended || last) };
  }

  /* The rows that the output reads: h, and beside it what the encoder tells output and unit. */
  advance() {
    this.encoder.read();
    return this.encoder.rows.map((x, row) => {
      const h = this.unit.step(row, x);
      if (!this.beside) return h;
      const both = new Float64Array(h.length + this.beside);
      both.set(h);
      both.set(x.subarray(x.length - this.beside), h.length);
      return both;
    });
  }

  append(frame) {
    this.past = frame;
    this.encoder.append(frame);
  }
}

/* The bytes of a text in base64. */
function decoded(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
}
