/* What was played, as a standard MIDI file. */

const TICKS_PER_BEAT = 480;
const TEXT = new TextEncoder();

/* The bytes of a file of notes {pitch, first, late, last, velocity, part, given}, in frames. Bars
   restart with each of the pieces. What is given has a track, and so has each part of the rest. */
function midiFile(notes, paces, pieces, { grid, parts }) {
  const { framesPerBeat, secondsPerFrame, metre } = grid;
  const whole = framesPerBeat && Math.max(1, Math.floor(TICKS_PER_BEAT / framesPerBeat));
  const ticksPerFrame = whole ?? 2 * TICKS_PER_BEAT * secondsPerFrame;
  const division = whole ? whole * framesPerBeat : TICKS_PER_BEAT;
  const tick = (frame) => Math.max(0, Math.round(frame * ticksPerFrame));
  const tempo = paces.map(({ first, seconds }) => {
    const microseconds = Math.min(0xffffff, Math.round((1e6 * seconds * division) / ticksPerFrame));
    return [tick(first), 0, [0xff, 0x51, 3, ...bytes(microseconds, 3)]];
  });
  const [beats, log2Unit] = [metre.beats, Math.log2(metre.frame)];
  const bars = pieces.filter(() => framesPerBeat).map(({ first }) =>
    [tick(first), 1, [0xff, 0x58, 4, beats, log2Unit, 24, 8]]);
  const tracks = [[[...tempo, ...bars], "tempo"]];
  const prefix = notes.some(({ given }) => given) ? "drawn" : ""; /* as in files of the command */
  const drawn = parts.map(({ name, program, drums }) =>
    [`${prefix} ${name}`.trim(), drums ? null : program, drums]);
  if (!parts.length) drawn.push([prefix, null]);
  const trackOf = ({ given, part }) => (given ? 0 : part || drawn.length);
  for (const [number, [name, program, drums]] of [["given", null], ...drawn].entries()) {
    const channel = drums ? 9 : CHANNELS[number];
    const own = notes.filter((note) => trackOf(note) === number);
    const events = own.flatMap(({ pitch, first, late, last, velocity }) => [
      [tick(first + late), 1, [0x90 | channel, pitch, velocity]],
      [Math.max(tick(last), tick(first + late) + 1), 0, [0x80 | channel, pitch, 0]],
    ]);
    if (program !== null) events.push([0, 0, [0xc0 | channel, program]]);
    if (own.length) tracks.push([events, name]);
  }
  const head = [...bytes(1, 2), ...bytes(tracks.length, 2), ...bytes(division, 2)];
  const chunks = tracks.map(([events, name]) => chunk("MTrk", track(events, name)));
  return Uint8Array.from([...chunk("MThd", head), ...chunks.flat()]);
}

/* Events [tick, rank, bytes] as the content of a track, which may be named; on a tick, lower ranks
   come first. */
function track(events, name) {
  const text = TEXT.encode(name);
  const content = name ? [0, 0xff, 0x03, ...quantity(text.length), ...text] : [];
  let now = 0;
  for (const [tick, , message] of events.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
    content.push(...quantity(tick - now), ...message);
    now = tick;
  }
  return [...content, 0, 0xff, 0x2f, 0];
}

function chunk(kind, content) {
  return [...TEXT.encode(kind), ...bytes(content.length, 4), ...content];
}

function bytes(number, count) {
  return Array.from({ length: count }, (_, k) => (number >>> (8 * (count - 1 - k))) & 0xff);
}

/* A number in groups of seven bits, all but the last marked (a variable-length quantity). */
function quantity(number) {
  const groups = [number & 0x7f];
  while ((number >>>= 7)) groups.unshift(0x80 | (number & 0x7f));
  return groups;
}
