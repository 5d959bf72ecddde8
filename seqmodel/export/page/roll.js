/* The piano roll: notes rise from the keys that play them. */

const BEAT_PIXELS = 40;

class Roll extends View {
  draw() {
    const { player } = this;
    const { context, width, height } = this.sheet();
    const pixels = BEAT_PIXELS / player.beat;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const position = still ? Math.floor(player.position) : player.position;
    const top = (frame) => height - (position - frame) * pixels;
    this.lines(context, width, height, top, position - height / pixels);
    for (const note of player.notes.slice(-1000)) {
      const begins = top(note.first);
      const ends = top(Math.min(note.last ?? position, position));
      if (ends <= 0 || begins >= height) continue;
      context.globalAlpha = note.last === null || note.last > position ? 1 : 0.85;
      this.note(context, note, width, begins, ends);
    }
    context.globalAlpha = 1;
    const fading = context.createLinearGradient(0, 0, 0, height / 3);
    fading.addColorStop(0, "black");
    fading.addColorStop(1, "transparent");
    context.fillStyle = fading;
    context.globalCompositeOperation = "destination-out"; /* fade out, whatever lies behind */
    context.fillRect(0, 0, width, height / 3);
  }

  note(context, { key, given }, width, begins, ends) {
    const place = KEYS[key];
    const gap = place.kind === "black" ? 0 : 0.19 * place.width * width;
    const breadth = place.width * width - gap;
    /* A pixel shorter than the note, so that repeated notes can be told apart. */
    const box = [place.left * width + gap / 2, begins + 1, breadth, Math.max(ends - begins - 1, 2)];
    context.fillStyle = given ? this.tokens.soft : `hsl(${hue(key)} ${this.tokens.vivid})`;
    context.beginPath();
    context.roundRect(...box, Math.min(4, breadth / 3));
    context.fill();
  }

  /* Beats and bars, counted from where each piece begins; octaves; pieces. */
  lines(context, width, height, top, earliest) {
    const { player, tokens } = this;
    context.fillStyle = tokens.line;
    for (const { left, kind, label } of KEYS)
      if (kind === "white" && label) context.fillRect(left * width, 0, 1, height);
    const { metre } = player.model.grid;
    const beat = metre.beat / metre.frame;
    const pieces = player.pieces.slice(-50);
    pieces.forEach(({ first }, k) => {
      const end = Math.min(pieces[k + 1]?.first ?? Infinity, player.position);
      let number = Math.max(0, Math.floor((earliest - first) / beat));
      for (; first + number * beat < end; number += 1) {
        context.globalAlpha = (number * metre.beat) % metre.bar ? 0.45 : 1;
        context.fillRect(0, top(first + number * beat), width, 1);
      }
      context.globalAlpha = 1;
    });
    context.font = "12px system-ui, sans-serif";
    for (const { first, number } of pieces) {
      if (first < earliest || first > player.position) continue;
      context.fillStyle = tokens.soft;
      context.fillRect(0, top(first), width, 1);
      context.fillText(`piece ${number + 1}`, 6, top(first) - 6);
    }
  }
}
