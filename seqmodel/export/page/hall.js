/* A small concert hall in which an instrument plays; nothing clips. */

const RECORDED_RATE = 44100;
const AT_ONCE_SECONDS = 5;
const DYING_SECONDS = 1.5; /* after the end of the last note */

class Hall extends Sound {
  build(context) {
    this.input = new GainNode(context);
    const direct = new GainNode(context, { gain: 0.8 });
    this.output = new WaveShaperNode(context, { curve: bend() }); /* so that nothing clips */
    const mixed = new DynamicsCompressorNode(context, { threshold: -15, ratio: 6, attack: 0.002 });
    const hall = new ConvolverNode(context, { buffer: echoes(context) });
    this.input.connect(direct).connect(mixed);
    direct.connect(hall).connect(new GainNode(context, { gain: 0.35 })).connect(mixed);
    mixed.connect(this.output).connect(this.master);
  }

  /* Two channels of samples in which [pitch, velocity, begin, end, isDrum] are struck and released at
     these seconds. A few notes at a time are rendered without the hall, since a context slows down with
     each note that it knows of; the sum is then played in the hall. */
  async record(notes) {
    const span = (some) => some.reduce((most, [, , , end]) => Math.max(most, end), 0) + DYING_SECONDS;
    const offlineInstrument = (seconds) => {
      const offline = Object.assign(new this.constructor(), { kind: this.kind });
      offline.open(new OfflineAudioContext(2, Math.ceil(seconds * RECORDED_RATE), RECORDED_RATE));
      return offline;
    };
    const { context, input } = offlineInstrument(span(notes));
    const buffer = context.createBuffer(2, context.length, RECORDED_RATE);
    for (let from = 0; from < span(notes); from += AT_ONCE_SECONDS) {
      const some = notes.filter(([, , begin]) => begin >= from && begin < from + AT_ONCE_SECONDS);
      if (!some.length) continue;
      const dry = offlineInstrument(span(some) - from);
      dry.input.disconnect();
      dry.input.connect(dry.context.destination);
      for (const [pitch, velocity, begin, end, isDrum] of some)
        dry.strike(pitch, velocity, begin - from, isDrum).release(end - from);
      const played = await dry.context.startRendering();
      const first = Math.round(from * RECORDED_RATE);
      for (const channel of [0, 1]) {
        const sum = buffer.getChannelData(channel).subarray(first);
        played.getChannelData(channel).subarray(0, sum.length).forEach((x, n) => (sum[n] += x));
      }
    }
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(input);
    source.start();
    return context.startRendering();
  }
}

/* A curve that leaves quiet samples unchanged and keeps loud ones below full scale. */
function bend() {
  return Float32Array.from({ length: 1025 }, (_, k) => Math.tanh((k - 512) / 512));
}

/* Noise from -1 to 1, always the same. */
function hashed(n) {
  const number = 43758.5453 * Math.sin(12.9898 * n);
  return 2 * (number - Math.floor(number)) - 1;
}

/* The impulse response of the hall: noise in two channels that decays and grows duller. */
function echoes(context) {
  const count = Math.round(1.6 * context.sampleRate);
  const buffer = context.createBuffer(2, count, context.sampleRate);
  for (const channel of [0, 1]) {
    const samples = buffer.getChannelData(channel);
    let smooth = 0;
    for (let n = 0; n < count; n += 1) {
      const share = n / count;
      smooth += (0.6 - 0.5 * share) * (hashed(channel * count + n) - smooth);
      samples[n] = smooth * Math.exp(-6 * share);
    }
  }
  return buffer;
}
