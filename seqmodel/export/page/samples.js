/* Sound drawn while it plays, in blocks of samples, which are the player's frames. After each gap,
   more is drawn ahead. */

const BLOCK_SECONDS = 0.05;
const LEAST_RATE = 8000; /* that every browser plays */
const MAX_LEAD = 3;
const SHOWN_SECONDS = 3;

class Speaker extends Sound {
  constructor(rate) {
    super();
    this.slowdown = Math.ceil(LEAST_RATE / rate);
    this.rate = rate * this.slowdown;
  }

  build(context) {
    this.output = new GainNode(context);
    this.output.connect(this.master);
  }

  /* Play a block of samples at a time of `now`, to the nearest sample: blocks join without clicks. */
  play(samples, time) {
    const { context, rate, slowdown } = this;
    const buffer = context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(context, { buffer, playbackRate: 1 / slowdown });
    source.connect(this.output);
    source.start(Math.round(time * rate) / rate);
    this.voice(source, () => source.stop());
  }
}

class SamplePlayer extends Player {
  tolerance = 0.5;

  constructor(model, sound) {
    super(model, sound);
    this.rate = model.rate;
    this.block = Math.round(BLOCK_SECONDS * this.rate);
    this.secondsPerFrame = this.block / this.rate;
  }

  restart(seed) {
    super.restart(seed, { block: this.block });
    this.blocks = []; /* all blocks passed to the sound; null once discarded */
    this.pieces = []; /* the first sample of each piece */
  }

  start() {
    this.lead = 0.2;
    super.start();
  }

  get ahead() {
    return Math.max(1, 2 * this.lead);
  }

  onUnderrun() {
    super.onUnderrun();
    this.lead = Math.min(2 * this.lead, MAX_LEAD);
  }

  play({ samples, begins }) {
    this.sound.play(samples, this.timeOf(this.next));
    this.blocks.push(samples);
    this.pieces.push(...begins.map((place) => this.next * this.block + place));
    const old = this.blocks.length - (KEPT_SECONDS + 2 * MAX_LEAD) / BLOCK_SECONDS;
    if (old > 0) this.blocks[old - 1] = null;
  }

  cut(frame) {
    super.cut(frame);
    this.blocks.length = frame;
    this.pieces = this.pieces.filter((first) => first < frame * this.block);
  }

  /* What was heard, of all pieces or of this one, as a file of at most the last ten minutes. */
  file(suffix, all) {
    const { block, blocks, position, pieces } = this;
    const end = Math.ceil(position);
    const first = Math.max(0, end - KEPT_SECONDS / BLOCK_SECONDS);
    const samples = new Float32Array((end - first) * block);
    blocks.slice(first, end).forEach((one, k) => samples.set(one, k * block));
    const piece = all ? 0 : pieces.findLast((begins) => begins <= position * block) ?? 0;
    return wavFile([samples.subarray(Math.max(0, piece - first * block))], this.rate);
  }
}

/* Pieces without end, block by block, with the places in the block where pieces begin. */
function* draws(model, piece) {
  let [block, begins] = [[], []];
  for (let number = 0; ; number += 1) {
    model.begin(piece.seed, BigInt(number));
    begins.push(block.length);
    for (let ended = false; !ended; ) {
      const drawn = model.draw(piece.temperature);
      ended = drawn.ended;
      for (const sample of drawn.frame) {
        block.push(sample);
        if (block.length < piece.block) continue;
        yield { samples: Float32Array.from(block), begins };
        [block, begins] = [[], []];
      }
    }
  }
}

/* The waveform: the last seconds heard, up to the right edge. */
class Wave extends View {
  draw() {
    const { context, width, height } = this.sheet();
    const { player, tokens } = this;
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
  const player = new SamplePlayer(model, new Speaker(model.rate));
  return new Page(model.name, player, new Wave(document.getElementById("wave"), player));
}
