/* The piano: its keys, and how its notes sound. */

const LOWEST_PITCH = 21;
const CHANNELS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15]; /* of a file's tracks */
const OCTAVE = 4; /* where computer keys begin */
const NAMES = "C,C sharp,D,E flat,E,F,F sharp,G,A flat,A,B flat,B".split(",");
const BLACK = [1, 3, 6, 8, 10];
const WHITE_KEYS = 52;

/* The position of each key: its left edge and width as shares of the keyboard's width. */
const KEYS = (() => {
  let whites = 0;
  return Array.from({ length: 88 }, (_, key) => {
    const pitch = key + LOWEST_PITCH;
    const kind = BLACK.includes(pitch % 12) ? "black" : "white";
    const width = (kind === "black" ? 0.62 : 1) / WHITE_KEYS;
    const left = whites / WHITE_KEYS - (kind === "black" ? width / 2 : 0);
    if (kind === "white") whites += 1;
    const name = `${NAMES[pitch % 12]} ${Math.floor(pitch / 12) - 1}`;
    return { left, width, kind, name, label: pitch % 12 ? "" : name.replace(" ", "") };
  });
})();

const SUSTAINED = 1e4;

/* Instruments by rule. A tone is several strings (or pipes, or tines), each [ratio to the pitch,
   detuning in cents, level, decay], all with these `partials`. Decays are multiples of how long
   middle C `lasts`, in seconds; higher tones fade sooner. A filter goes from `bright` partials to
   `mellow` ones. The first string lasts longest. A piano's are struck an eighth from their end; the
   second fades soon, the first sings on. */
const INSTRUMENTS = {
  Piano: {
    partials: Array.from({ length: 20 }, (_, k) => Math.sin((Math.PI * (k + 1)) / 8) / (k + 1) ** 1.2),
    strings: [[1, 0.8, 0.4, 2], [1, -0.8, 0.6, 0.5]],
    ...{ attack: 0.004, release: 0.12, lasts: 1.6, bright: 7, mellow: 2, level: 0.42 },
  },
  Organ: {
    partials: [1, 0.75, 0.35, 0.4, 0.08, 0.12, 0, 0.15],
    strings: [[1, 0, 0.6, SUSTAINED], [1, 2.5, 0.4, SUSTAINED]],
    ...{ attack: 0.03, release: 0.18, lasts: 1, bright: 9, mellow: 9, level: 0.2 },
  },
  "Music box": {
    partials: [1],
    strings: [[1, 0, 0.7, 1], [4, 3, 0.2, 0.25], [6.27, 0, 0.1, 0.08]],
    ...{ attack: 0.001, release: 0.6, lasts: 1.1, bright: 20, mellow: 20, level: 0.3 },
  },
};
const MAX_HZ = 12000; /* of filters and strings */

class Instrument extends Kit {
  kind = "Piano"; /* of INSTRUMENTS */

  build(context) {
    super.build(context);
    const wave = ({ partials }) => {
      const levels = Float32Array.of(0, ...partials);
      return context.createPeriodicWave(new Float32Array(levels.length), levels);
    };
    const waves = Object.entries(INSTRUMENTS).map(([kind, rule]) => [kind, wave(rule)]);
    this.waves = Object.fromEntries(waves);
  }

  /* Strike a pitch (69 is A4), or a drum, at a time of `now`; returns the voice, which must be
     released. */
  strike(pitch, velocity, time, isDrum) {
    if (isDrum) return super.strike(pitch, velocity, time);
    const { context, waves, kind } = this;
    const { strings, attack, release, lasts, bright, mellow, level } = INSTRUMENTS[kind];
    const frequency = 440 * 2 ** ((pitch - 69) / 12);
    const fading = lasts * 2 ** ((60 - pitch) / 18);
    const begin = Math.max(time, this.now());
    const loud = velocity / 98;
    const filter = new BiquadFilterNode(context, { Q: 0.3 });
    filter.frequency.value = Math.min((mellow + (bright - mellow) * loud) * frequency, MAX_HZ);
    filter.frequency.setTargetAtTime(Math.min(mellow * frequency, MAX_HZ), begin, fading / 2);
    const whole = new GainNode(context, { gain: level * loud ** 1.5 });
    const place = new StereoPannerNode(context, { pan: (pitch - 64) / 88 });
    filter.connect(whole).connect(place).connect(this.input);
    const audible = strings.filter(([ratio]) => ratio * frequency < MAX_HZ);
    const tones = audible.map(([ratio, detune, share, decay]) => {
      const options = { periodicWave: waves[kind], frequency: ratio * frequency, detune };
      const tone = new OscillatorNode(context, options);
      const envelope = new GainNode(context, { gain: 0 });
      envelope.gain.setValueAtTime(0, begin);
      envelope.gain.linearRampToValueAtTime(share, begin + attack);
      envelope.gain.setTargetAtTime(0, begin + attack, decay * fading);
      tone.connect(envelope).connect(filter);
      tone.start(begin);
      tone.stop(begin + 8 * decay * fading);
      return tone;
    });
    return this.voice(tones[0], (at) => {
      const end = Math.max(at, this.now());
      whole.gain.setTargetAtTime(0, end, release / 3);
      for (const tone of tones) tone.stop(end < begin ? end : end + 4 * release);
    });
  }
}
