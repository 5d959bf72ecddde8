/* The voices below a melody, drawn as by `seqmodel sample --fill MELODY --below --particles 16` at
   temperature 1: see seqmodel/sampling/filling.py. All arithmetic is that command's own, compiled;
   this file only decides which particle continues from which past. */

const NONE_FIT = "No voices fit below this tune: it is continued instead.";

/* The opening as a melody, with voices below it. */
function* voiced(model, piece) {
  const melody = openingFrames(model, piece.given);
  const free = below(melody, model);
  const frames = fill(model, piece.seed, melody, free);
  if (!frames)
    for (const drawn of composed(model, piece, 0)) yield { ...drawn, remark: NONE_FIT };
  const key = seedKey(model.stream[0]);
  model.begin(piece.seed, 0n);
  if (model.levels) model.markStream[0] = key;
  for (const [place, frame] of frames?.entries() ?? []) {
    const marks = model.levels && model.read(frame, 1);
    yield { frame, marks, number: 0, place, given: Array.from(free[place], (one) => !one) };
  }
}

/* The frames of a melody with all notes below its highest voice drawn; null if that is impossible.
   `free` marks the numbers to be drawn, frame by frame. */
function fill(model, seed, melody, free) {
  const { voices, frameSize: F, arena, last } = model;
  const { particles: N, candidates: M, by } = voices;
  const array = (Type, name, count) => new Type(arena.buffer, voices[name], count);
  const run = (number, before = 0) => model.step(before, ...voices.steps[number]);
  const drawn = array(Uint8Array, "drawn", M * F); /* of one particle */
  const frames = array(Uint8Array, "frames", N * M * F);
  const scores = array(Float64Array, "scores", M * (F + 1));
  const logits = array(Float64Array, "logits", N * M * (F + 1));
  const [chosen, ancestors] = ["chosen", "ancestors"].map((name) => array(BigInt64Array, name, N));
  const forced = array(Float64Array, "forced", M * (F + 1));
  const copied = array(Float64Array, "copied", F);
  const past = arena.subarray(0, voices.past);
  model.begin(seed, 0n);
  let particles = Array(N).fill({ before: past.slice(), frame: new Uint8Array(F) });
  const history = melody.map((x, t) => {
    array(Uint8Array, "x", F).set(x);
    array(Uint8Array, "free", F).set(free[t]);
    const force = (one, j) => (free[t][j] ? by.free : one ? by.on : by.off);
    for (let m = 0; m < M; m += 1) forced.set(x.map(force), m * (F + 1));
    const steps = new Map(); /* by past and previous frame: particles that share both share it */
    let inArena = null;
    const after = particles.map(({ before, frame }, k) => {
      if (!steps.has(before)) steps.set(before, new Map());
      const cached = steps.get(before).get(String(frame));
      if (!cached || cached !== inArena) past.set(cached ?? before);
      last.set(frame);
      copied.set(frame);
      run(0, cached ? 0 : model.before);
      inArena = cached ?? past.slice();
      steps.get(before).set(String(frame), inArena);
      frames.set(drawn, k * M * F);
      logits.set(scores, k * M * (F + 1));
      return inArena;
    });
    run(t === melody.length - 1 ? 2 : 1);
    const [effective] = array(Float64Array, "facts", 1);
    let from = [...after.keys()];
    if (effective < N / 2) {
      run(3);
      from = Array.from(ancestors, Number);
      array(Float64Array, "weights", N).fill(0);
    }
    particles = from.map((k) => {
      const place = (k * M + Number(chosen[k])) * F;
      return { before: after[k], frame: frames.slice(place, place + F) };
    });
    particles.forEach(({ frame }, k) => array(Uint8Array, "before", N * F).set(frame, k * F));
    return { from, frames: particles.map(({ frame }) => frame) };
  });
  run(4);
  if (array(Float64Array, "facts", 2)[1] === -Infinity) return null;
  let k = Number(array(BigInt64Array, "picked", 1)[0]);
  const path = [];
  for (const one of history.reverse()) {
    path.unshift(one.frames[k]);
    k = one.from[k];
  }
  return path;
}

/* Which numbers of a melody's frames are below its highest voice or, while that rests, below its
   last note. Strikes of notes held over from there are free as well. */
function below(melody, { notes: D, onsets }) {
  const tops = melody.map((x) => x.lastIndexOf(1, D - 1));
  let top = tops.find((key) => key >= 0);
  let before = null;
  return melody.map((x, t) => {
    if (tops[t] >= 0) top = tops[t];
    const free = Uint8Array.from(x, (_, j) => j % D < top);
    for (let j = D; before && onsets && j < 2 * D; j += 1)
      if (before[j - D] && x[j - D] && !x[j]) free[j] = 1;
    return (before = free);
  });
}
