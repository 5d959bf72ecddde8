/* What is heard when, for both notes and samples. Time is counted in frames: 12.5 is in the middle
   of frame 12. */

const AHEAD_HIDDEN_SECONDS = 2.5; /* browsers slow down the timers of hidden pages */

/* Sound output through an AudioContext that `build` sets up; its `rate` is that of samples, if any:
   at another one browsers resample each buffer by itself. */
class Sound {
  voices = new Set(); /* what sounds now or later, each with `release(time)` */
  level = 1;

  /* Browsers allow sound only after a click or a key. */
  async wake() {
    const options = { latencyHint: "interactive", sampleRate: this.rate };
    if (!this.context) this.open(new AudioContext(options));
    this.waking = true; /* for ever if there is no device */
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

  /* A voice that exists until its source ends. */
  voice(source, release) {
    const voice = { release };
    source.onended = () => this.voices.delete(voice);
    this.voices.add(voice);
    return voice;
  }

  silence() {
    for (const voice of this.voices) voice.release(this.now());
  }
}

/* Plays what `draws` yields in a Worker, frame by frame: `play` passes one frame to the sound at
   `timeOf(next)`. */
class Player {
  lead = 0.08; /* seconds from the start, or from a gap, until something is heard */
  tolerance = 8; /* recent frames that were not drawn in time */

  constructor(model, sound) {
    Object.assign(this, { model, sound, temperature: 1 });
  }

  /* Forget what was played, and start with the first piece of a seed; `options` describe it. */
  restart(seed, options) {
    this.stop();
    this.seed = seed;
    this.base = this.next = 0;
    this.startSource(this.source, { seed, ...options });
  }

  /* From now on, draw this piece and those that follow it. */
  startSource(old, piece) {
    old?.end();
    this.source = new Source(this.model, { ...piece, labels: this.labels }, () => this.fill());
  }

  get playing() {
    return Boolean(this.running) && !this.listening;
  }

  get position() {
    if (!this.running) return this.base;
    const elapsed = Math.max(0, this.sound.now() - this.startTime);
    const reached = this.base + elapsed / this.secondsPerFrame;
    return this.playing ? Math.min(reached, this.next) : reached; /* only as far as it was drawn */
  }

  /* Seconds of sound that are scheduled in advance. */
  get ahead() {
    return 0.35;
  }

  timeOf(frame) {
    return this.startTime + (frame - this.base) * this.secondsPerFrame;
  }

  run(from, delay) {
    this.base = from;
    this.startTime = this.sound.now() + delay;
    this.running = true;
  }

  start() {
    this.lateFrames = 0; /* how often, recently, a frame was not drawn in time */
    this.scheduled = []; /* frames passed to the sound that may not have been heard yet */
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

  /* Requeue what was drawn but not heard, for when playing resumes. */
  cut(frame) {
    const unheard = this.scheduled.filter(({ at }) => at >= frame).map(({ drawn }) => drawn);
    this.source.waiting.unshift(...unheard);
    this.next = frame;
  }

  /* Pass to the sound what will be heard within the next moments; called by a timer, and whenever
     something was drawn. */
  fill() {
    if (!this.playing) return;
    const ahead = document.hidden ? Math.max(this.ahead, AHEAD_HIDDEN_SECONDS) : this.ahead;
    /* First, since what is drawn after a stall would otherwise sound all at once. */
    if (this.timeOf(this.next) < this.sound.now()) {
      if (this.next > this.base) this.onUnderrun();
      this.run(this.next, this.lead);
    }
    const { source } = this;
    while (source.waiting.length && this.timeOf(this.next) < this.sound.now() + ahead) {
      const drawn = source.waiting.shift();
      this.play(drawn);
      this.remark = drawn.remark;
      this.scheduled.push({ at: this.next, drawn });
      this.next += 1;
    }
    source.request(Math.ceil(AT_HAND_SECONDS / this.secondsPerFrame), this.temperature);
    this.lateFrames *= 0.99;
    this.scheduled = this.scheduled.filter(({ at }) => at >= Math.floor(this.position));
  }

  onUnderrun() {
    this.lateFrames += 1;
  }

  /* Whether frames have recently not been drawn in time. */
  get slow() {
    return this.lateFrames > this.tolerance;
  }
}
