/* The sounds of a drum kit as keys. */

const LOWEST_PITCH = 35;
const SOUND_COUNT = 47;
const CHANNELS = [9, 9];
const OCTAVE = 2;
const KEYS = Array.from({ length: SOUND_COUNT }, (_, key) => {
  const [name] = SOUNDS[key + LOWEST_PITCH];
  return { left: key / SOUND_COUNT, width: 1 / SOUND_COUNT, kind: "sound", name, label: name };
});

class Instrument extends Kit {}
