/* How a sample is drawn: a 16-bit level from a mixture of logistics around the anchor, as in
   outputs/logistic.py, or one of 256 mu-law levels, as in outputs/categorical.py. */

const STEP = 1 / FULL;

class SampleOutput {
  constructor(model) {
    Object.assign(this, model.output);
    this.model = model;
    this.outputs = new Float64Array(this.bias.length);
  }

  draw([row], past, uniforms, temperature) {
    multiply(this.weight, row, this.outputs);
    this.outputs.forEach((_, k) => (this.outputs[k] += this.bias[k]));
    const { levels, end } = this.model;
    const sample = levels
      ? levels[choose(this.outputs, uniforms[0], temperature)]
      : this.logistic(row, uniforms, temperature);
    const ended = end && isOne(uniforms.at(-1), dot(this.endWeight, 0, row) + this.endBias[0], 1);
    return { frame: [sample], ended };
  }

  logistic(row, [choice, u, third], temperature) {
    const [certainty, spacing, anchor, level] = row.subarray(row.length - 4);
    const count = this.outputs.length / 3;
    const part = (n) => this.outputs.subarray(n * count, (n + 1) * count);
    const logits = part(0);
    const means = part(1).map((offset) => level * offset);
    const scales = part(2).map((logScale) => STEP / 10 + level * Math.exp(logScale));
    const chosen = choose(logits, choice, temperature);
    const above = Math.max(u, 2 ** -54);
    const noise = temperature && temperature * (Math.log(above) - Math.log1p(-above));
    const size = (at) => meanSize(logits, means, scales, at);
    let deviation = means[chosen] + noise * scales[chosen];
    if (temperature > 0 && temperature !== 1) deviation *= size(1) / size(temperature);
    const fine = spacing > STEP ? Math.max(1 - certainty, 2 ** -20) : 1;
    return nearest(anchor + deviation, temperature === 0 || third < fine ? STEP : spacing);
  }
}

/* The first component whose cumulative weight exceeds the uniform number; at 0 the likeliest. */
function choose(logits, uniform, temperature) {
  const most = Math.max(...logits);
  if (temperature === 0) return logits.indexOf(most);
  const weights = logits.map((logit) => Math.exp((logit - most) / temperature));
  let left = uniform * weights.reduce((sum, weight) => sum + weight);
  const chosen = weights.findIndex((weight) => (left -= weight) < 0);
  return chosen < 0 ? weights.length - 1 : chosen;
}

/* The mean size of what is drawn. */
function meanSize(logits, means, scales, temperature) {
  const most = Math.max(...logits);
  let [sum, total] = [0, 0];
  logits.forEach((logit, k) => {
    const weight = Math.exp((logit - most) / temperature);
    const scale = temperature * scales[k];
    const size = Math.abs(means[k]);
    total += weight;
    sum += weight * (size + 2 * scale * softplus(-size / scale));
  });
  return sum / total;
}

/* The nearest multiple of the spacing in [-1, 1); ties go to the even one. */
function nearest(sample, spacing) {
  const place = sample / spacing;
  let whole = Math.round(place);
  if (Math.abs(place % 1) === 0.5 && whole % 2) whole -= 1;
  const found = Math.max(whole * spacing, -1);
  return found >= 1 ? 1 - spacing : found;
}
