/* The controls that every page has, and what ties the parts together. */

class Page {
  /* `player` plays, `view` draws what it has played. */
  constructor(name, player, view) {
    Object.assign(this, { name, player, view });
    this.model = player.model;
    this.sound = player.sound;
    this.parts = Object.fromEntries(
      [...document.querySelectorAll("main [id]")].map((element) => [element.id, element]));
    this.listen();
    this.restart();
    this.paint();
    setInterval(() => player.fill(), 40);
  }

  listen() {
    const { play, over, seed, another, temperature, save } = this.parts;
    play.addEventListener("click", () => (this.player.playing ? this.stop() : this.play()));
    over.addEventListener("click", () => this.restart());
    seed.addEventListener("change", () => this.restart());
    another.addEventListener("click", () => {
      seed.value = String(crypto.getRandomValues(new Uint16Array(1))[0]);
      this.restart();
    });
    this.range(temperature, (value) => (this.player.temperature = value));
    save.addEventListener("click", () => this.save());
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.paint());
  }

  /* What a range is set to is shown, and set now and whenever it changes. */
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

  get dark() {
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  paint() {
    this.view.paint(this.dark);
  }

  async play() {
    await this.sound.wake();
    this.player.start();
    this.player.fill();
    this.follow();
  }

  stop() {
    this.player.stop();
    this.say("Stopped.");
  }

  /* From the first piece of the seed on. */
  restart() {
    const { seed } = this.parts;
    const { playing } = this.player;
    if (!/^\d+$/.test(seed.value)) seed.value = String(this.player.seed);
    this.player.restart(BigInt(seed.value));
    this.say("Ready.");
    if (playing) this.play();
    this.show();
  }

  /* Download what was heard so far. */
  save() {
    const link = document.createElement("a");
    link.download = `${this.name}-${this.player.seed}.${this.parts.save.dataset.suffix}`;
    link.href = URL.createObjectURL(this.player.file());
    link.click();
    URL.revokeObjectURL(link.href);
  }

  /* ---- what is shown ---- */

  say(text) {
    const { play, status } = this.parts;
    if (status.value !== text) status.value = text;
    play.dataset.state = this.player.playing ? "stop" : "start";
    play.querySelector("span").textContent = this.player.playing ? "Stop" : this.startText;
  }

  get startText() {
    return "Start";
  }

  /* Keep showing what is heard, until it stops. */
  follow() {
    cancelAnimationFrame(this.following);
    this.show();
    if (!this.player.running) return;
    if (this.player.playing)
      this.say(this.player.slow ? "Playing slowly: this browser draws no faster." : "Playing.");
    this.following = requestAnimationFrame(() => this.follow());
  }

  show() {
    this.view.draw();
    this.parts.save.disabled = this.player.position <= 0;
  }
}

/* A picture of what a player plays, in `canvas`. */
class View {
  constructor(canvas, player) {
    Object.assign(this, { canvas, player });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /* Take the page's colours, and draw with them. */
  paint(dark) {
    this.dark = dark;
    const style = getComputedStyle(document.documentElement);
    const names = ["line", "soft", "accent"];
    this.tokens = Object.fromEntries(
      names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.draw();
  }

  /* What to draw on: cleared, as sharp as the screen, and measured in CSS pixels. */
  sheet() {
    const { canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    canvas.width = Math.round(width * window.devicePixelRatio);
    canvas.height = Math.round(height * window.devicePixelRatio);
    const context = canvas.getContext("2d");
    context.scale(window.devicePixelRatio, window.devicePixelRatio);
    return { context, width, height };
  }
}
