/* How the next frame is drawn, given h: numbers below their probabilities are ones. A frame has
   D notes, which sound or not, and with onsets D more numbers: which of them are struck. */

/* Whether a uniform number is below the probability; at temperature 0, whether 1 is likelier. */
function isOne(uniform, logit, temperature) {
  if (temperature === 0) return logit > 0;
  return uniform * (1 + Math.exp(-logit / temperature)) < 1;
}

/* A strike is free only if the note also sounded before; see outputs/notes/onsets.py. */
function strike(drawn, sounds, sounded) {
  return sounds && (!sounded || drawn) ? 1 : 0;
}

/* Frames from a single h: notes independent of each other, or each given those below (NADE). */
class FrameOutput {
  constructor(model) {
    Object.assign(this, model.output);
    this.model = model;
    this.outputs = new Float64Array(this.bias.length);
    this.hidden = new Float64Array(this.U ? this.bias.length - model.frameSize - model.end : 0);
  }

  draw([h], past, uniforms, temperature) {
    const { notes, frameSize, end } = this.model;
    const { outputs, hidden } = this;
    multiply(this.weight, h, outputs);
    outputs.forEach((_, k) => (outputs[k] += this.bias[k]));
    hidden.forEach((_, k) => (hidden[k] = outputs[frameSize + k]));
    const frame = new Float64Array(frameSize);
    for (let j = 0; j < frameSize; j += 1) {
      const logit = outputs[j] + this.ofLower(j);
      const drawn = isOne(uniforms[j], logit, temperature);
      frame[j] = j < notes ? Number(drawn) : strike(drawn, frame[j - notes], past[j - notes]);
      if (frame[j]) hidden.forEach((_, k) => (hidden[k] += this.V[j * hidden.length + k]));
    }
    return { frame, ended: end && isOne(uniforms[frameSize], outputs.at(-1), 1) };
  }

  /* What the numbers drawn so far add to the logit of number j. */
  ofLower(j) {
    const { hidden, U } = this;
    return hidden.reduce((sum, a, k) => sum + U[j * hidden.length + k] * sigmoid(a), 0);
  }
}

/* Frames from an h for each note, read by the same layer; where there is a unit along pitch, it
   reads them from low to high, each with the notes drawn below it. */
class NotesOutput {
  constructor(model) {
    Object.assign(this, model.output);
    this.model = model;
    if (this.unit) this.x = new Float64Array(this.unit.inputs);
  }

  draw(h, past, uniforms, temperature) {
    const { notes, frameSize, onsets, end } = this.model;
    const frame = new Float64Array(frameSize);
    this.classes = new Float64Array(REACH);
    this.unit?.start();
    for (let note = 0; note < notes; note += 1) {
      const read = this.unit ? this.unit.step(0, this.inputs(h[note], frame, note)) : h[note];
      const drawn = (column, j) => isOne(uniforms[j], this.logit(read, column), temperature);
      frame[note] = Number(drawn(0, note));
      this.classes[note % REACH] += frame[note];
      if (onsets) {
        const j = notes + note;
        frame[j] = strike(drawn(1, j), frame[note], past[note]);
      }
    }
    return { frame, ended: end && isOne(uniforms[frameSize], this.endLogit(h), 1) };
  }

  /* The inputs of the unit along pitch, as in outputs/notes/below.py. */
  inputs(h, frame, note) {
    const { x, classes } = this;
    const { notes, onsets } = this.model;
    x.set(h);
    let at = h.length;
    for (let k = note - REACH; k < note; k += 1) x[at++] = k < 0 ? 0 : frame[k];
    for (let k = 0; k < REACH; k += 1) x[at++] = classes[(note + k) % REACH];
    x[at++] = classes.reduce((sum, some) => sum + some) / REACH;
    if (onsets) for (let k = note - REACH; k < note; k += 1) x[at++] = k < 0 ? 0 : frame[notes + k];
    return x;
  }

  logit(read, column) {
    return dot(this.weight, column * read.length, read) + this.bias[column];
  }

  /* The log of the mean of the odds that the notes give. */
  endLogit(h) {
    const odds = h.map((of) => dot(this.endWeight, 0, of));
    const most = Math.max(...odds);
    const sum = odds.reduce((total, one) => total + Math.exp(one - most), 0);
    return most + Math.log(sum / odds.length) + this.endBias[0];
  }
}

function dot(weights, at, x) {
  let sum = 0;
  for (let k = 0; k < x.length; k += 1) sum += weights[at + k] * x[k];
  return sum;
}
