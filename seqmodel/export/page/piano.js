/* The piano: its keys, and a soft tone of eight partials, of which the high ones fade sooner. */

const LOWEST_PITCH = 21;
const CHANNELS = [0, 1]; /* in a file, of what is given and of what is drawn */
const OCTAVE = 4; /* where computer keys begin */
const NAMES = "C,C sharp,D,E flat,E,F,F sharp,G,A flat,A,B flat,B".split(",");
const BLACK = [1, 3, 6, 8, 10];
const WHITE_KEYS = 52;

/* Where each key is: its left edge and width as shares of the keyboard's width. */
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

const PARTIALS = 8;
const RELEASE_SECONDS = 0.08;

class Instrument extends Hall {
  build(context) {
    super.build(context);
    const loudness = Float32Array.from({ length: PARTIALS + 1 }, (_, k) => k && k ** -1.5);
    this.wave = context.createPeriodicWave(new Float32Array(PARTIALS + 1), loudness);
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
