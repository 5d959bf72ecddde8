/* The KEYS of the instrument on screen, played by pointer, computer keys or MIDI. */

/* Two rows of a computer keyboard as the white and black keys from C on, by position, whatever the
   layout. */
const CODES = [..."AWSEDFTGYHUJKOLP"].map((letter) => `Key${letter}`);
const [LOWER, UPPER] = ["KeyZ", "KeyX"];
const PRESSED = 80; /* the velocity of keys that do not send one */
const CLICK_MS = 300; /* how long a click holds a key */

/* The hue of a key's notes: from blue in the bass to orange in the treble. */
function hue(key) {
  return 215 + 175 * Math.min(Math.max((key - 12) / 52, 0), 1);
}

class Keyboard {
  /* In `parts.keys`; `press(key, velocity)` and `release(key)` are called as keys go down and up.
     The other parts show where the computer keys are. */
  constructor(parts, { press, release }) {
    const element = parts.keys;
    Object.assign(this, { element, parts, press, release });
    this.down = new Map(); /* what holds a key down: a pointer, a computer key, Enter */
    this.lowest = 12 * (OCTAVE + 1) - LOWEST_PITCH; /* of computer keys */
    this.letters = new Map([...CODES, LOWER, UPPER].map((code) => [code, code.at(-1)]));
    this.buttons = KEYS.map((key, number) => this.button(key, number));
    element.append(...this.buttons);
    this.focus(this.lowest, false);
    this.print(true);
    this.readLayout();
    this.listenToPointers();
    element.addEventListener("keydown", (event) => this.move(event));
    document.addEventListener("keydown", (event) => this.type(event));
    document.addEventListener("keyup", (event) => this.lift(event.code));
    window.addEventListener("blur", () => [...this.down.keys()].forEach((by) => this.lift(by)));
  }

  button({ left, width, kind, name, label }, number) {
    const element = document.createElement("button");
    const look = { type: "button", className: `key ${kind}`, textContent: label, tabIndex: -1 };
    Object.assign(element, look);
    element.setAttribute("aria-label", name);
    Object.assign(element.style, { left: `${100 * left}%`, width: `${100 * width}%` });
    element.style.setProperty("--hue", hue(number));
    element.dataset.key = number;
    return element;
  }

  /* Light the keys whose notes sound. */
  light(keys) {
    this.buttons.forEach((button, key) => button.classList.toggle("on", keys.has(key)));
  }

  /* Show the letters that play the keys on them, if any. */
  print(byKeys = this.byKeys) {
    const { letters, lowest } = this;
    this.byKeys = byKeys;
    this.buttons.forEach((button, key) => {
      button.dataset.letter = (byKeys && letters.get(CODES[key - lowest])) || "";
    });
    this.parts.lowest.value = KEYS[lowest].name;
    this.parts.lower.textContent = letters.get(LOWER);
    this.parts.upper.textContent = letters.get(UPPER);
  }

  /* The layout's letters, if the browser gives them; others are learned as they are typed. */
  async readLayout() {
    const layout = await navigator.keyboard?.getLayoutMap().catch(() => null);
    for (const [code, letter] of layout ?? []) this.learn(code, letter);
  }

  learn(code, letter) {
    const shown = letter.toUpperCase();
    if (shown.length !== 1 || (this.letters.get(code) ?? shown) === shown) return;
    this.letters.set(code, shown);
    this.print();
  }

  hold(holder, key, loudness = PRESSED) {
    if (this.down.get(holder) === key || !(key in this.buttons)) return;
    this.lift(holder);
    this.down.set(holder, key);
    this.press(key, loudness);
  }

  lift(holder) {
    if (!this.down.has(holder)) return;
    const key = this.down.get(holder);
    this.down.delete(holder);
    if (!this.isDown(key)) this.release(key);
  }

  isDown(key) {
    return [...this.down.values()].includes(key);
  }

  listenToPointers() {
    const keyUnder = ({ clientX, clientY }) => {
      const target = document.elementFromPoint(clientX, clientY);
      return this.element.contains(target) ? Number(target.dataset.key) : NaN;
    };
    this.element.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      this.element.setPointerCapture(event.pointerId);
      this.hold(event.pointerId, keyUnder(event));
    });
    this.element.addEventListener("pointermove", (event) => {
      if (this.down.has(event.pointerId)) this.hold(event.pointerId, keyUnder(event));
    });
    for (const kind of ["pointerup", "pointercancel"])
      this.element.addEventListener(kind, (event) => this.lift(event.pointerId));
    this.element.addEventListener("click", ({ detail, target }) => {
      if (detail) return; /* otherwise by a screen reader, which moves no pointer */
      this.hold("click", Number(target.dataset.key));
      setTimeout(() => this.lift("click"), CLICK_MS);
    });
  }

  /* One key can be reached with Tab, and the others from it with the arrow keys. */
  focus(key, move = true) {
    const to = this.buttons[Math.min(Math.max(key, 0), this.buttons.length - 1)];
    if (this.current) this.current.tabIndex = -1;
    this.current = to;
    to.tabIndex = 0;
    if (move) to.focus();
  }

  move(event) {
    const key = Number(event.target.dataset.key);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -12, ArrowUp: 12 };
    if (event.key in steps) this.focus(key + steps[event.key]);
    else if (event.key === "Enter") this.hold(event.code, key);
    else return;
    event.preventDefault();
  }

  type(event) {
    const { ctrlKey, metaKey, altKey, repeat, code, key, target } = event;
    if (!this.byKeys || ctrlKey || metaKey || altKey || repeat) return;
    if (target.matches("input[type=text], select")) return;
    this.learn(code, key);
    const lowest = this.lowest + 12 * ((code === UPPER) - (code === LOWER));
    if (lowest !== this.lowest && lowest in KEYS) {
      this.lowest = lowest;
      this.print();
    }
    const place = CODES.indexOf(code);
    if (place >= 0) this.hold(code, lowest + place);
  }

  /* Listen to all MIDI keyboards, also those connected later; returns how many there are now. */
  async connect() {
    const access = await navigator.requestMIDIAccess();
    const attach = () => {
      for (const input of access.inputs.values())
        input.onmidimessage = ({ data }) => this.onMidi(...data);
    };
    access.onstatechange = attach;
    attach();
    return access.inputs.size;
  }

  onMidi(status, pitch, loudness) {
    const kind = status & 0xf0;
    if (kind === 0x90 && loudness) this.hold(`midi ${pitch}`, pitch - LOWEST_PITCH, loudness);
    else if (kind === 0x80 || kind === 0x90) this.lift(`midi ${pitch}`);
  }
}
