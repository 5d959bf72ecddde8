/* Sound that is drawn while it plays: some is drawn ahead, and twice as much wherever that was not
   enough. Time is counted in samples. */

const BLOCK_SECONDS = 0.05;
const [LEAST_AHEAD, MOST_AHEAD] = [20, 120]; /* blocks */
const DRAWING_MS = 32; /* of every 40 */
const KEPT_SECONDS = 600; /* for the file that is saved */

class Speaker {
  async wake() {
    if (!this.context) {
      this.context = new AudioContext();
      this.output = new GainNode(this.context);
      this.output.connect(this.context.destination);
    }
    await this.context.resume();
  }

  now() {
    return this.context ? this.context.currentTime : 0;
  }

  /* Play a block of samples at a time of `now`; returns what can be stopped. */
  play(samples, rate, time) {
    const buffer = this.context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(this.context, { buffer });
    source.connect(this.output);
    source.start(time);
    return source;
  }
}

class Stream {
  constructor(model, sound, rate) {
    Object.assign(this, { model, sound, rate, temperature: 1 });
    this.block = Math.round(BLOCK_SECONDS * rate);
    this.restart(1n);
  }

  restart(seed) {
    this.stop();
    this.seed = seed;
    this.blocks = []; /* all that was drawn, one after another; null where it is kept no longer */
    this.drawing = [];
    this.played = 0; /* blocks given to the speaker */
    this.base = 0;
    this.samples = this.draws();
  }

  *draws() {
    for (let number = 0; ; number += 1) {
      this.model.begin(this.seed, BigInt(number));
      for (let ended = false; !ended; ) {
        const drawn = this.model.draw(this.temperature);
        ended = drawn.ended;
        yield* drawn.frame;
      }
    }
  }

  get playing() {
    return Boolean(this.running);
  }

  /* Samples heard; it stands still where those drawn are used up. */
  get position() {
    if (!this.sources?.length) return this.base;
    const since = Math.max(0, this.sound.now() - this.since) * this.rate;
    return Math.min(this.base + since, this.played * this.block);
  }

  start() {
    this.running = true;
    this.cushion = 4; /* blocks to draw before anything is heard */
    this.slow = false;
    this.sources = [];
    this.fill();
  }

  /* What was drawn and is not heard is heard when it goes on. */
  stop() {
    if (!this.running) return;
    const { position } = this;
    this.running = false;
    this.sources.forEach((source) => source.stop());
    this.sources = [];
    this.played = Math.ceil(position / this.block);
    this.base = this.played * this.block;
  }

  fill() {
    if (!this.running) return;
    const until = performance.now() + DRAWING_MS;
    const enough = Math.max(LEAST_AHEAD, 2 * this.cushion);
    while (performance.now() < until && this.ahead < enough) {
      for (let k = 0; k < 40 && this.drawing.length < this.block; k += 1)
        this.drawing.push(this.samples.next().value);
      if (this.drawing.length < this.block) continue;
      this.blocks.push(Float32Array.from(this.drawing));
      this.drawing = [];
      const old = this.blocks.length - MOST_AHEAD - KEPT_SECONDS / BLOCK_SECONDS;
      if (old > 0) this.blocks[old - 1] = null;
    }
    if (this.ahead >= enough) this.slow = false;
    this.hand();
  }

  /* Blocks drawn and not heard yet. */
  get ahead() {
    return this.blocks.length - this.position / this.block;
  }

  /* Give the speaker what was drawn; after a gap, first draw enough. */
  hand() {
    const { block, rate } = this;
    const over = this.position >= this.played * block;
    if (over && this.sources.length) {
      this.slow = true;
      this.cushion = Math.min(2 * this.cushion, MOST_AHEAD / 2);
      this.base = this.played * block;
      this.sources = [];
    }
    if (!this.sources.length) {
      if (this.blocks.length - this.played < this.cushion) return;
      this.since = this.sound.now() + 0.05;
    }
    for (; this.played < this.blocks.length; this.played += 1) {
      const time = this.since + (this.played * block - this.base) / rate;
      this.sources.push(this.sound.play(this.blocks[this.played], rate, time));
      this.sources = this.sources.slice(-2 * MOST_AHEAD); /* the others have ended */
    }
  }

  /* The file of what was heard, its last ten minutes. */
  file() {
    const heard = this.blocks.slice(0, Math.ceil(this.position / this.block));
    const blocks = heard.slice(-KEPT_SECONDS / BLOCK_SECONDS);
    return new Blob([wavHead(blocks.length * this.block, this.rate), ...blocks.map(pcm)]);
  }
}

/* The head of a WAV file of so many 16-bit samples in one channel. */
function wavHead(count, rate) {
  const head = new DataView(new ArrayBuffer(44));
  const put = (at, text) => [...text].forEach((c, k) => head.setUint8(at + k, c.charCodeAt(0)));
  put(0, "RIFF");
  head.setUint32(4, 36 + 2 * count, true);
  put(8, "WAVEfmt ");
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true); /* PCM */
  head.setUint16(22, 1, true);
  head.setUint32(24, rate, true);
  head.setUint32(28, 2 * rate, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  put(36, "data");
  head.setUint32(40, 2 * count, true);
  return head;
}

function pcm(samples) {
  const bytes = new DataView(new ArrayBuffer(2 * samples.length));
  samples.forEach((sample, k) => bytes.setInt16(2 * k, Math.round(sample * 32768), true));
  return bytes;
}
