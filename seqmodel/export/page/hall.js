/* A small hall, in which an instrument plays; nothing clips. */

class Hall extends Sound {
  build(context) {
    this.input = new GainNode(context, { gain: 0.8 });
    this.output = new WaveShaperNode(context, { curve: bend() }); /* so that nothing clips */
    const mixed = new DynamicsCompressorNode(context, { threshold: -15, ratio: 6, attack: 0.002 });
    const hall = new ConvolverNode(context, { buffer: echoes(context) });
    this.input.connect(mixed);
    this.input.connect(hall).connect(new GainNode(context, { gain: 0.35 })).connect(mixed);
    mixed.connect(this.output).connect(this.master);
  }
}

/* A curve that leaves quiet samples as they are and keeps loud ones below full scale. */
function bend() {
  return Float32Array.from({ length: 1025 }, (_, k) => Math.tanh((k - 512) / 512));
}

/* The answer of a hall to a clap: noise in two channels that dies away and grows duller. */
function echoes(context) {
  const count = Math.round(1.6 * context.sampleRate);
  const buffer = context.createBuffer(2, count, context.sampleRate);
  for (const channel of [0, 1]) {
    const samples = buffer.getChannelData(channel);
    let smooth = 0;
    for (let n = 0; n < count; n += 1) {
      const share = n / count;
      smooth += (0.6 - 0.5 * share) * (2 * Math.random() - 1 - smooth);
      samples[n] = smooth * Math.exp(-6 * share);
    }
  }
  return buffer;
}
