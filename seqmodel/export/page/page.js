/* The controls that every page has, and what ties its parts together. */

const SLOW = "Playing slowly: this browser draws no faster.";
const NO_SOUND = "No sound comes from this browser. Is there a speaker? Playback resumes when sound is available.";
const SEED = /^\s*\d+\s*$/;
const PRESSED_BY_SPACE = "button:not(.key), [type=text], [type=checkbox], summary";

class Page {
  /* `player` plays, `view` draws what was played. */
  constructor(name, player, view) {
    Object.assign(this, { name, player, view });
    this.model = player.model;
    this.sound = player.sound;
    this.parts = Object.fromEntries(
      [...document.querySelectorAll("main [id]")].map((element) => [element.id, element]));
    this.settings = [...document.querySelectorAll("main input[name]")];
    this.labels = [...document.querySelectorAll("main select[name]")];
    this.saving = [...document.querySelectorAll("[data-suffix]")];
    this.listen();
    this.open();
    setInterval(() => player.fill(), 40);
    setInterval(() => this.address(), 500); /* browsers refuse more frequent updates */
    setInterval(() => this.checkSound(), 300);
  }

  listen() {
    const { play, temperature, volume, show } = this.parts;
    for (const control of document.querySelectorAll("[data-do]")) {
      const kind = control.matches("button") ? "click" : "change";
      control.addEventListener(kind, () => this[control.dataset.do](control.dataset.suffix));
    }
    document.addEventListener("keydown", (event) => {
      if (event.key !== " " || event.target.matches(`${PRESSED_BY_SPACE}, select`)) return;
      event.preventDefault();
      if (!event.repeat) this.toggle();
    });
    document.addEventListener("pointerup", () => {
      if (this.sound.waking) this.sound.wake(); /* a finger may wake it, once lifted */
    });
    document.addEventListener("click", ({ detail, target }) => {
      if (detail) target.closest(PRESSED_BY_SPACE)?.blur(); /* with a pointer: Space plays again */
    });
    document.addEventListener("change", ({ target }) => {
      if (target.matches("select:not(:focus-visible)")) target.blur(); /* letters are keys again */
    });
    this.range(temperature, (value) => (this.player.temperature = value));
    this.range(volume, (value) => (this.sound.volume = value / 100));
    window.addEventListener("hashchange", () => this.open());
    const place = () => {
      show.style.setProperty("--top", `${show.offsetTop}px`);
      /* What gets the keyboard focus is not hidden behind the player. */
      document.documentElement.style.scrollPaddingTop = `${play.parentElement.offsetHeight}px`;
    };
    new ResizeObserver(() => requestAnimationFrame(place)).observe(show.parentElement);
  }

  /* Show a range's value and set it, now and whenever it changes. */
  range(input, set) {
    const update = () => {
      const text = `${input.value}${input.dataset.unit}`;
      input.setAttribute("aria-valuetext", text);
      document.querySelector(`label[for=${input.id}] .value`).textContent = text;
      set(Number(input.value));
    };
    input.addEventListener("input", update);
    update();
  }

  toggle() {
    return this.player.playing ? this.stop() : this.play();
  }

  async play() {
    if (this.sound.waking) return;
    await this.sound.wake();
    this.player.start();
    this.player.fill();
    this.follow();
  }

  stop() {
    this.player.stop();
    this.say("Paused.");
  }

  /* Restart from the first piece of the seed, or from the opening that it continues. */
  restart(opening = this.player.given) {
    const { seed } = this.parts;
    const { playing } = this.player;
    if (!SEED.test(seed.value)) seed.value = String(this.player.seed ?? seed.defaultValue);
    const values = ({ options }) => [...options].slice(1).map(({ selected }) => Number(selected));
    this.player.labels = this.labels.flatMap(values);
    this.player.restart(BigInt(seed.value), opening);
    this.say("Ready.");
    if (playing) this.play();
    this.show();
  }

  renew() {
    this.parts.seed.value = String(crypto.getRandomValues(new Uint16Array(1))[0]);
    this.restart();
  }

  /* ---- the link to what plays, such as page.html#seed=12&t=0.9&bpm=96 ---- */

  /* Set the piece of the address. Values that are missing or invalid are as on a new page. */
  open() {
    const params = new URLSearchParams(location.hash.slice(1));
    for (const input of this.settings) {
      const value = params.get(input.name) ?? "";
      const possible = input.name === "seed" ? SEED : /^\d{1,3}(\.\d{1,2})?$/;
      input.value = possible.test(value) ? value : input.defaultValue;
      /* ranges clamp values to their ends */
      if (Number(input.value) !== Number(value)) input.value = input.defaultValue;
      input.dispatchEvent(new Event("input"));
    }
    for (const menu of this.labels) {
      const options = [...menu.options];
      const chosen = options.find(({ value }) => value === params.get(menu.name));
      (chosen ?? options.find(({ defaultSelected }) => defaultSelected) ?? options[0]).selected = true;
    }
    this.restart(this.openingOf?.(params));
    this.link = this.linkParams();
  }

  linkParams() {
    const value = (input) => (input.name === "seed" ? this.player.seed : input.value);
    const params = [...this.settings, ...this.labels].map((input) => [input.name, value(input)]);
    return new URLSearchParams(params).toString();
  }

  address() {
    const link = this.linkParams();
    if (link !== this.link) history.replaceState(null, "", `#${(this.link = link)}`);
  }

  async copy() {
    const link = `${location.href.split("#")[0]}#${this.linkParams()}`;
    const local = location.protocol === "file:";
    try {
      await navigator.clipboard.writeText(link);
      this.parts.status.value = local
        ? "Link copied. It works where this file is: send that too, or put it on the web."
        : "Link copied.";
    } catch {
      prompt("Copy this link:", link); /* browsers that deny pages the clipboard */
    }
  }

  /* Download what was heard so far, of this piece or of all. */
  async save(suffix) {
    const { status, part } = this.parts;
    status.value = "Saving…";
    const link = document.createElement("a");
    link.download = `${this.name}-${this.player.seed}.${suffix}`;
    try {
      link.href = URL.createObjectURL(await this.player.file(suffix, part.value === "all"));
      link.click();
      URL.revokeObjectURL(link.href);
      status.value = `Saved ${link.download}.`;
    } catch (error) {
      status.value = `Not saved: ${error.message}`;
    }
  }

  /* ---- what is shown ---- */

  /* Show the player's state; the status may show something else until the state changes. */
  say(text) {
    const { play, status } = this.parts;
    const { playing, listening } = this.player;
    const label = play.querySelector("span");
    const does = playing ? "Pause" : listening ? "Continue my opening" : "Play";
    if (this.lastStatus !== text) status.value = this.lastStatus = text;
    play.dataset.state = playing ? "playing" : "paused";
    if (label.textContent !== does) label.textContent = does; /* or Safari loses clicks */
  }

  /* Keep showing what is heard until it stops. */
  follow() {
    cancelAnimationFrame(this.following);
    this.show();
    if (!this.player.running) return;
    if (this.player.playing)
      this.say(this.stalled ? NO_SOUND : this.player.next === 0 ? "Drawing."
        : this.player.slow ? SLOW : this.player.remark ?? "Playing.");
    this.following = requestAnimationFrame(() => this.follow());
  }

  /* Notice when the sound's clock stands still: there is no device, or it was suspended. */
  checkSound() {
    const time = this.sound.context?.currentTime;
    const still = time === this.time && (this.sound.waking || this.player.running);
    this.still = still ? this.still + 1 : 0;
    this.stalled = this.still > 6; /* a device may take two seconds to start */
    this.time = time;
    if (this.stalled && this.sound.waking) this.say(NO_SOUND);
  }

  show() {
    const { invitation } = this.parts;
    const started = this.player.position > 0;
    this.view.draw();
    for (const button of this.saving) button.disabled = !started;
    invitation.hidden = started || this.player.running;
  }
}

/* A picture, in `canvas`, of what a player plays, in the page's colours: its `tokens`. */
class View {
  constructor(canvas, player) {
    Object.assign(this, { canvas, player });
    new ResizeObserver(() => this.draw()).observe(canvas);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.draw());
  }

  /* The drawing surface: cleared, as sharp as the screen, and measured in CSS pixels. */
  sheet() {
    const { canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    const style = getComputedStyle(canvas);
    const token = (name) => [name, style.getPropertyValue(`--${name}`)];
    this.tokens = Object.fromEntries(["line", "soft", "accent", "vivid"].map(token));
    canvas.width = Math.round(width * window.devicePixelRatio);
    canvas.height = Math.round(height * window.devicePixelRatio);
    const context = canvas.getContext("2d");
    context.scale(window.devicePixelRatio, window.devicePixelRatio);
    return { context, width, height };
  }
}

let page;
const SCRIPT = globalThis.document && URL.createObjectURL(new Blob([document.currentScript.text]));

function failed(error) {
  document.getElementById("play").disabled = true;
  document.getElementById("status").value =
    `The model does not run here: ${error.message ?? error}`;
}

if (SCRIPT)
  Model.unpack(JSON.parse(document.getElementById("model").textContent))
    .then((model) => (page = begin(model)))
    .catch(failed);
else onmessage = work;
