/* The drum kit: each sound a decaying tone and noise, following the rule and the SOUNDS, here by MIDI
   key, of seqmodel/media/music/kit.py. */

const SKIN = 450;
const GLIDE = 0.015;
const AUDIBLE = 9.5; /* time constants */

/* For how many seconds a hit is heard. */
function ringing(pitch) {
  const [, , toneSeconds, , , noiseSeconds] = SOUNDS[pitch] ?? [];
  return AUDIBLE * Math.max(toneSeconds, noiseSeconds) || 0;
}

class Kit extends Hall {
  build(context) {
    super.build(context);
    this.noise = context.createBuffer(1, context.sampleRate, context.sampleRate);
    const samples = this.noise.getChannelData(0);
    samples.forEach((_, n) => (samples[n] = hashed(n)));
  }

  /* Strike what a MIDI key stands for, if anything, at a time of `now`; a hit that has begun rings on
     when released. */
  strike(pitch, velocity, time) {
    const { context } = this;
    if (!SOUNDS[pitch]) return { release() {} };
    const [, frequency, toneSeconds, noise, cutoff, noiseSeconds] = SOUNDS[pitch];
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
