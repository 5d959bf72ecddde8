/* Recurrent units. Their steps, in UNITS, are generated from their equations at export. */

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const hardSigmoid = (x) => Math.min(Math.max(x + 3, 0), 6) / 6;
const { tanh, exp } = Math;
const relu = (x) => Math.max(x, 0);
const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/* The first number from `k` on that is not 0, or the end. */
function nextOf(x, k) {
  while (k < x.length && x[k] === 0) k += 1;
  return k;
}

/* out = matrix x, the matrix stored column by column. Most numbers of x are often 0; of the others
   four are taken at once, as reading and writing `out` takes longer than sums. */
function multiply(matrix, x, out) {
  const rows = out.length;
  const inputs = x.length;
  out.fill(0);
  for (let k = nextOf(x, 0); k < inputs; ) {
    const k1 = nextOf(x, k + 1);
    const k2 = nextOf(x, k1 + 1);
    const k3 = nextOf(x, k2 + 1);
    const at = k * rows;
    const at1 = Math.min(k1, inputs - 1) * rows;
    const at2 = Math.min(k2, inputs - 1) * rows;
    const at3 = Math.min(k3, inputs - 1) * rows;
    const x0 = x[k];
    const x1 = k1 < inputs ? x[k1] : 0;
    const x2 = k2 < inputs ? x[k2] : 0;
    const x3 = k3 < inputs ? x[k3] : 0;
    for (let j = 0; j < rows; j += 1) {
      const more = x1 * matrix[at1 + j] + x2 * matrix[at2 + j] + x3 * matrix[at3 + j];
      out[j] += x0 * matrix[at + j] + more;
    }
    k = nextOf(x, k3 + 1);
  }
}

/* A layer of a unit, of `rows` rows with states of their own. */
class Layer {
  constructor(unit, hidden, weights, rows) {
    const zeros = (names) =>
      Object.fromEntries(names.map((name) => [name, new Float64Array(hidden)]));
    this.unit = unit;
    this.weights = weights;
    this.now = zeros(unit.names);
    this.products = zeros(unit.products);
    this.rows = Array.from({ length: rows }, () => zeros(unit.states));
  }

  start() {
    for (const row of this.rows) for (const state of Object.values(row)) state.fill(0);
  }

  /* h of a row after it has read x; a view, until the next step. */
  step(row, x) {
    const state = this.rows[row];
    this.unit.step(x, state, this.now, this.weights, this.products);
    for (const name of this.unit.states) state[name].set(this.now[name]);
    return state.h;
  }
}

/* Layers, each of which reads the one below it. */
class Stack {
  constructor(layers) {
    this.layers = layers;
  }

  start() {
    for (const layer of this.layers) layer.start();
  }

  step(row, x) {
    return this.layers.reduce((h, layer) => layer.step(row, h), x);
  }
}
