/* The waveform: the last seconds heard, up to the right edge. */

const SHOWN_SECONDS = 3;

class Wave {
  constructor(canvas, player) {
    Object.assign(this, { canvas, player });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  paint() {
    const style = getComputedStyle(document.documentElement);
    this.ink = style.getPropertyValue("--accent").trim();
    this.line = style.getPropertyValue("--line").trim();
    this.draw();
  }

  draw() {
    if (!this.ink) return;
    const { player } = this;
    const { context, width, height } = sheet(this.canvas);
    context.fillStyle = this.line;
    context.fillRect(0, height / 2, width, 1);
    context.fillStyle = this.ink;
    const each = Math.max(1, Math.round((SHOWN_SECONDS * player.rate) / width)); /* samples */
    const last = Math.floor(player.position / each);
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
