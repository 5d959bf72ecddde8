/* The echo: what followed the longest earlier passage that equals the latest frames, as in
   seqmodel/model/echo.py. */

const REMEMBERED = 4096;
const LONGEST_MATCH = 32;
const MATCHES = [1, 2, 4, 8, 16, 32];

class Echo {
  constructor() {
    this.heard = 0;
    this.frames = []; /* by number modulo REMEMBERED */
    this.words = []; /* each as a text, to compare */
    this.runs = new Int32Array(REMEMBERED); /* how many frames up to each equal the latest ones */
  }

  remember(frame) {
    const word = frame.join("");
    const place = this.heard % REMEMBERED;
    const last = this.runs[REMEMBERED - 1];
    for (let k = Math.min(this.heard, REMEMBERED) - 1; k >= 0; k -= 1) {
      const before = k ? this.runs[k - 1] : last;
      this.runs[k] = this.words[k] === word ? Math.min(before + 1, LONGEST_MATCH) : 0;
    }
    this.runs[place] = 0;
    this.frames[place] = frame.slice();
    this.words[place] = word;
    this.heard += 1;
  }

  /* The frame that followed, and the length of the passage: 0 if there is none. */
  followed() {
    let best = -1;
    let length = 0;
    const known = Math.min(this.heard, REMEMBERED);
    for (let age = 0; age < known; age += 1) {
      const place = (this.heard - 1 - age) % REMEMBERED;
      if (this.runs[place] > length) {
        best = place;
        length = this.runs[place];
      }
    }
    return { length, frame: length ? this.frames[(best + 1) % REMEMBERED] : null };
  }

  /* Writes the inputs of every note into its row of x from `at` on; `kinds` is 2 with onsets. */
  write(rows, at, kinds) {
    const { length, frame } = this.followed();
    const steps = MATCHES.length;
    rows.forEach((row, note) => {
      MATCHES.forEach((match, k) => {
        const known = Number(length >= match);
        row[at + k] = known;
        for (let kind = 0; kind < kinds; kind += 1)
          row[at + (kind + 1) * steps + k] = known && frame[kind * rows.length + note];
      });
    });
  }
}
