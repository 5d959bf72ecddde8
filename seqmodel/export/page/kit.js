/* The drum kit: its sounds as keys, each a decaying tone and noise, following the rule and the
   SOUNDS of seqmodel/media/music/kit.py. */

const LOWEST_PITCH = 35;
const CHANNELS = [9, 9];
const OCTAVE = 2;
const KEYS = SOUNDS.map(([name], key) => {
  const width = 1 / SOUNDS.length;
  return { left: key * width, width, kind: "sound", name, label: name };
});

const SKIN = 450;
const GLIDE = 0.015;
const AUDIBLE = 9.5; /* time constants */

class Instrument extends Hall {
  build(context) {
    super.build(context);
    this.noise = context.createBuffer(1, context.sampleRate, context.sampleRate);
    const samples = this.noise.getChannelData(0);
    samples.forEach((_, n) => (samples[n] = hashed(n)));
  }

  /* Strike a sound by its MIDI key, at a time of `now`; a hit that has begun rings on when
     released. */
  strike(pitch, velocity, time) {
    const { context } = this;
    const [, frequency, toneSeconds, noise, cutoff, noiseSeconds] = SOUNDS[pitch - LOWEST_PITCH];
    const begin = Math.max(time, this.now());
    const loud = 0.5 * (velocity / 98) ** 1.5;
    const tone = new OscillatorNode(context, { frequency });
    if (frequency < SKIN) {
      tone.frequency.setValueAtTime(2 * frequency, begin);
      tone.frequency.setTargetAtTime(frequency, begin, GLIDE);
    }
    const hiss = new AudioBufferSourceNode(context, { buffer: this.noise, loop: true });
    const filter = new BiquadFilterNode(context, { type: "highpass", frequency: cutoff });
    this.fade(tone, tone, begin, (1 - noise) * loud, toneSeconds);
    this.fade(hiss, hiss.connect(filter), begin, noise * loud, noiseSeconds);
    const release = (at) => at <= begin && [tone, hiss].forEach((source) => source.stop());
    return this.voice(toneSeconds > noiseSeconds ? tone : hiss, release);
  }

  /* Play a source through a node, fading from full level. */
  fade(source, node, begin, level, seconds) {
    const fading = new GainNode(this.context, { gain: 0 });
    node.connect(fading).connect(this.input);
    fading.gain.setValueAtTime(level, begin);
    fading.gain.setTargetAtTime(0, begin, seconds);
    source.start(begin);
    source.stop(begin + AUDIBLE * seconds);
  }
}
