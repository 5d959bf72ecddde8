/* Sound that is drawn while it plays, in blocks of samples, which are the player's frames. After each
   gap more is drawn ahead. */

const BLOCK_SECONDS = 0.05;
const MOST_LEAD = 3;
const KEPT_SECONDS = 600; /* for the file that is saved */
const SHOWN_SECONDS = 3;

class Speaker extends Sound {
  build(context) {
    this.output = new GainNode(context);
    this.output.connect(this.master);
  }

  /* Play a block of samples at a time of `now`. */
  play(samples, rate, time) {
    const buffer = this.context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(this.context, { buffer });
    source.connect(this.output);
    source.start(time);
    const voice = { release: () => source.stop() };
    source.onended = () => this.voices.delete(voice);
    this.voices.add(voice);
  }
}

class SamplePlayer extends Player {
  tolerance = 0.5;

  constructor(model, sound, rate) {
    super(model, sound);
    this.rate = rate;
    this.block = Math.round(BLOCK_SECONDS * rate);
    this.secondsPerFrame = this.block / rate;
  }

  restart(seed) {
    super.restart(seed);
    this.blocks = []; /* all that was given to the sound; null where it is kept no longer */
  }

  /* Pieces without end, block by block; null while there is still none. */
  *draws() {
    let block = [];
    for (let number = 0; ; number += 1) {
      this.model.begin(this.seed, BigInt(number));
      for (let ended = false; !ended; ) {
        const drawn = this.model.draw(this.temperature);
        ended = drawn.ended;
        for (const sample of drawn.frame) {
          block.push(sample);
          if (block.length % 40 === 0) yield null;
          if (block.length < this.block) continue;
          yield Float32Array.from(block);
          block = [];
        }
      }
    }
  }

  start() {
    this.lead = 0.2;
    super.start();
  }

  get ahead() {
    return Math.max(1, 2 * this.lead);
  }

  stumble() {
    super.stumble();
    this.lead = Math.min(2 * this.lead, MOST_LEAD);
  }

  play(samples) {
    this.sound.play(samples, this.rate, this.timeOf(this.next));
    this.blocks.push(samples);
    const old = this.blocks.length - (KEPT_SECONDS + 2 * MOST_LEAD) / BLOCK_SECONDS;
    if (old > 0) this.blocks[old - 1] = null;
  }

  cut(frame) {
    super.cut(frame);
    this.blocks.length = frame;
  }

  /* The file of what was heard, its last ten minutes. */
  file() {
    const heard = this.blocks.slice(0, Math.ceil(this.position));
    const blocks = heard.slice(-KEPT_SECONDS / BLOCK_SECONDS);
    const levels = blocks.map((block) => Int16Array.from(block, (x) => Math.round(x * 32768)));
    return new Blob([wavHead(2 * blocks.length * this.block, this.rate), ...levels]);
  }
}

/* The head of a WAV file of so many bytes: 16-bit samples in one channel. */
function wavHead(size, rate) {
  const [riff, wave, fmt, data] = [0x46464952, 0x45564157, 0x20746d66, 0x61746164];
  const [pcm, channels, frameBytes, bits] = [1, 1, 2, 16];
  const format = [16, pcm | (channels << 16), rate, frameBytes * rate, frameBytes | (bits << 16)];
  return Uint32Array.of(riff, 36 + size, wave, fmt, ...format, data, size);
}

/* The waveform: the last seconds heard, up to the right edge. */
class Wave extends View {
  draw() {
    if (!this.tokens) return;
    const { player, tokens } = this;
    const { context, width, height } = this.sheet();
    context.fillStyle = tokens.line;
    context.fillRect(0, height / 2, width, 1);
    context.fillStyle = tokens.accent;
    const each = Math.max(1, Math.round((SHOWN_SECONDS * player.rate) / width)); /* samples */
    const last = Math.floor((player.position * player.block) / each);
    for (let x = 0; x < width; x += 1) {
      const [low, high] = this.range((last - width + x) * each, each);
      if (low <= high)
        context.fillRect(x, (height / 2) * (1 - high), 1, Math.max(1, (height / 2) * (high - low)));
    }
  }

  /* The lowest and highest of `count` samples. */
  range(first, count) {
    const { blocks, block } = this.player;
    let [low, high] = [Infinity, -Infinity];
    for (let n = Math.max(0, first); n < first + count; n += 1) {
      const sample = blocks[Math.floor(n / block)]?.[n % block] ?? 0;
      low = Math.min(low, sample);
      high = Math.max(high, sample);
    }
    return [low, high];
  }
}

function begin(model) {
  const player = new SamplePlayer(model, new Speaker(), model.rate);
  return new Page(model.name, player, new Wave(document.getElementById("wave"), player));
}
