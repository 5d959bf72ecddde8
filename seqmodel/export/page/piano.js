/* The sound: a soft tone of eight partials, of which the high ones fade sooner, in a small hall. */

const PARTIALS = 8;
const RELEASE_SECONDS = 0.08;

class Piano extends Sound {
  build(context) {
    const loudness = Float32Array.from({ length: PARTIALS + 1 }, (_, k) => k && k ** -1.5);
    this.wave = context.createPeriodicWave(new Float32Array(PARTIALS + 1), loudness);
    this.input = new GainNode(context, { gain: 0.8 });
    this.output = new WaveShaperNode(context, { curve: bend() }); /* so that nothing clips */
    const mixed = new DynamicsCompressorNode(context, { threshold: -15, ratio: 6, attack: 0.002 });
    const hall = new ConvolverNode(context, { buffer: echoes(context) });
    this.input.connect(mixed);
    this.input.connect(hall).connect(new GainNode(context, { gain: 0.35 })).connect(mixed);
    mixed.connect(this.output).connect(context.destination);
  }

  /* Strike a pitch, 69 is A4, at a time of `now`; returns the voice, to be released. */
  strike(pitch, velocity, time) {
    const { context, wave } = this;
    const frequency = 440 * 2 ** ((pitch - 69) / 12);
    const fading = 1.5 * 2 ** ((60 - pitch) / 18);
    const begin = Math.max(time, this.now());
    const tone = new OscillatorNode(context, { periodicWave: wave, frequency });
    const bright = Math.min(9 * frequency, 12000);
    const filter = new BiquadFilterNode(context, { Q: 0.3, frequency: bright });
    filter.frequency.setTargetAtTime(Math.min(2 * frequency, 12000), begin, fading / 2);
    const level = new GainNode(context, { gain: 0 });
    level.gain.setValueAtTime(0, begin);
    level.gain.linearRampToValueAtTime(0.35 * (velocity / 98) ** 1.5, begin + 0.008);
    level.gain.setTargetAtTime(0, begin + 0.008, fading);
    const place = new StereoPannerNode(context, { pan: (pitch - 64) / 88 });
    tone.connect(filter).connect(level).connect(place).connect(this.input);
    tone.start(begin);
    tone.stop(begin + 8 * fading);
    const voice = {
      release: (at) => {
        const end = Math.max(at, this.now());
        level.gain.setTargetAtTime(0, end, RELEASE_SECONDS / 3);
        tone.stop(end < begin ? end : end + 4 * RELEASE_SECONDS);
      },
    };
    tone.onended = () => this.voices.delete(voice);
    this.voices.add(voice);
    return voice;
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
