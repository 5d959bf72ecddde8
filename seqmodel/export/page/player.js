/* What is heard when, of notes and samples alike. Time is counted in frames: 12.5 is in the middle
   of frame 12. */

const AHEAD_HIDDEN_SECONDS = 2.5; /* browsers slow down the timers of pages that are not seen */
const AT_ONCE_MS = 32; /* of every 40 */

/* What is heard, through an AudioContext that `build` makes ready. */
class Sound {
  voices = new Set(); /* what sounds now or later, each with `release(time)` */
  level = 1;

  /* Browsers allow sound only after a click or a key. */
  async wake() {
    if (!this.context) this.open(new AudioContext({ latencyHint: "interactive" }));
    this.waking = true; /* for ever where there is no device */
    await this.context.resume();
    this.waking = false;
  }

  open(context) {
    this.context = context;
    this.master = new GainNode(context, { gain: this.level });
    this.master.connect(context.destination);
    this.build(context);
  }

  set volume(level) {
    this.level = level;
    this.master?.gain.setTargetAtTime(level, this.now(), 0.02);
  }

  now() {
    return this.context ? this.context.currentTime : 0;
  }

  silence() {
    for (const voice of this.voices) voice.release(this.now());
  }
}

/* Plays what `draws` gives, frame by frame: `play` gives one to the sound at `timeOf(next)`. */
class Player {
  lead = 0.08; /* seconds from the start, or from a gap, until something is heard */
  tolerance = 8; /* of frames not drawn in time, lately */

  constructor(model, sound) {
    Object.assign(this, { model, sound, temperature: 1 });
  }

  /* Forget what was played, and begin with the first piece of a seed. */
  restart(seed) {
    this.stop();
    this.seed = seed;
    this.base = this.next = 0;
    this.waiting = []; /* frames drawn and not heard yet */
    this.frames = this.draws();
  }

  get playing() {
    return Boolean(this.running) && !this.listening;
  }

  get position() {
    if (!this.running) return this.base;
    const since = Math.max(0, this.sound.now() - this.since);
    const reached = this.base + since / this.secondsPerFrame;
    return this.playing ? Math.min(reached, this.next) : reached; /* no further than it was drawn */
  }

  /* Seconds of sound that are given to it in advance. */
  get ahead() {
    return 0.35;
  }

  timeOf(frame) {
    return this.since + (frame - this.base) * this.secondsPerFrame;
  }

  run(from, delay) {
    this.base = from;
    this.since = this.sound.now() + delay;
    this.running = true;
  }

  start() {
    this.late = 0; /* how often, lately, a frame was not drawn in time */
    this.coming = []; /* frames given to the sound and perhaps not heard yet */
    this.run(this.next, this.lead);
  }

  stop() {
    if (!this.running) return;
    const { position } = this;
    this.running = false;
    this.base = position;
    this.sound.silence();
    if (!this.listening) this.cut(Math.ceil(position));
  }

  /* What was drawn and is not heard is heard when it goes on. */
  cut(frame) {
    const unheard = this.coming.filter(({ at }) => at >= frame).map(({ drawn }) => drawn);
    this.waiting.unshift(...unheard);
    this.next = frame;
  }

  /* Draw and give to the sound what is heard within the next moments; called by a timer. */
  fill() {
    if (!this.playing) return;
    const ahead = document.hidden ? Math.max(this.ahead, AHEAD_HIDDEN_SECONDS) : this.ahead;
    const until = performance.now() + AT_ONCE_MS;
    /* First: what is drawn after a stall would sound all at once. */
    if (this.timeOf(this.next) < this.sound.now()) {
      if (this.next > this.base) this.stumble();
      this.run(this.next, this.lead);
    }
    while (this.timeOf(this.next) < this.sound.now() + ahead && performance.now() < until) {
      const drawn = this.waiting.shift() ?? this.frames.next().value;
      if (!drawn) continue;
      this.play(drawn);
      this.coming.push({ at: this.next, drawn });
      this.next += 1;
    }
    this.late *= 0.99;
    this.coming = this.coming.filter(({ at }) => at >= Math.floor(this.position));
  }

  stumble() {
    this.late += 1;
  }

  /* Whether lately frames were not drawn in time. */
  get slow() {
    return this.late > this.tolerance;
  }
}
