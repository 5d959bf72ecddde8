/* The controls, and what ties the parts together. */

class Page {
  constructor(told) {
    const find = (id) => document.getElementById(id);
    this.parts = Object.fromEntries(
      "play over seed another temperature tempo save midi typing status keys roll stage"
        .split(" ").map((id) => [id, find(id)]));
    this.name = told.name;
    this.sound = new Sound();
    this.model = new Model(told);
    this.player = new Player(this.model, this.sound, new Grid(told.grid));
    this.roll = new Roll(this.parts.roll, this.player);
    this.keyboard = new Keyboard(this.parts.keys, {
      press: (key, loudness) => this.press(key, loudness),
      release: (key) => this.player.release(key),
    });
    this.listen();
    this.paint();
    this.say("Ready.");
    setInterval(() => this.player.fill(), 40);
  }

  listen() {
    const { play, over, seed, another, temperature, tempo, save, midi, typing } = this.parts;
    play.addEventListener("click", () => (this.player.playing ? this.stop() : this.play()));
    over.addEventListener("click", () => this.restart());
    seed.addEventListener("change", () => this.restart());
    another.addEventListener("click", () => {
      seed.value = String(crypto.getRandomValues(new Uint16Array(1))[0]);
      this.restart();
    });
    temperature.addEventListener("input", () => this.settings());
    tempo.addEventListener("input", () => this.settings());
    save.addEventListener("click", () => this.save());
    typing.addEventListener("change", () => (this.keyboard.byKeys = typing.checked));
    midi.hidden = !navigator.requestMIDIAccess;
    midi.addEventListener("click", () => this.connect());
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.paint());
    this.restart();
    this.settings();
  }

  paint() {
    const { matches: dark } = matchMedia("(prefers-color-scheme: dark)");
    this.keyboard.paint(dark);
    this.roll.paint(dark);
    const { stage } = this.parts;
    stage.scrollLeft = 0.44 * stage.scrollWidth - stage.clientWidth / 2;
  }

  async play() {
    await this.sound.wake();
    this.player.start();
    this.say("Playing.");
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
    if (!/^\d+$/.test(seed.value)) seed.value = "1";
    this.player.restart(BigInt(seed.value));
    this.say("Ready.");
    if (playing) this.play();
    this.show();
  }

  settings() {
    const { temperature, tempo } = this.parts;
    this.player.temperature = Number(temperature.value);
    const pace = Number(tempo.value) / Number(tempo.dataset.plain);
    this.player.setPace(pace);
    for (const range of [temperature, tempo]) {
      const text = `${range.value}${range.dataset.unit}`;
      range.setAttribute("aria-valuetext", text);
      document.querySelector(`label[for=${range.id}] .value`).textContent = text;
    }
  }

  async press(key, loudness) {
    await this.sound.wake();
    if (!this.keyboard.isDown(key)) return; /* let go before the sound was ready */
    const { listening } = this.player;
    this.player.press(key, loudness);
    if (listening) return;
    this.say("Listening: play an opening, then let the model continue it.");
    this.follow();
  }

  async connect() {
    try {
      await this.sound.wake();
      const count = await this.keyboard.connect();
      this.say(count ? "MIDI keyboard connected." : "No MIDI keyboard found; plug one in.");
    } catch {
      this.say("The browser does not allow MIDI.");
    }
  }

  /* Download what was heard so far. */
  save() {
    const { player } = this;
    const now = Math.ceil(player.position);
    const notes = player.notes
      .filter((note) => note.first < now)
      .map((note) => ({ ...note, last: Math.min(note.last ?? now, now) }));
    const file = new Blob([midiFile(notes, player.paces, player.grid)], { type: "audio/midi" });
    const link = document.createElement("a");
    link.download = `${this.name}-${player.seed}.mid`;
    link.href = URL.createObjectURL(file);
    link.click();
    URL.revokeObjectURL(link.href);
  }

  /* ---- what is shown ---- */

  say(text) {
    if (this.parts.status.value !== text) this.parts.status.value = text;
    const { player, parts } = this;
    parts.play.dataset.state = player.playing ? "stop" : "start";
    const continues = player.listening ? "Continue my opening" : "Start";
    parts.play.querySelector("span").textContent = player.playing ? "Stop" : continues;
  }

  /* Keep showing what is heard, until it stops. */
  follow() {
    cancelAnimationFrame(this.following);
    this.show();
    if (!this.player.running) return;
    if (this.player.playing)
      this.say(this.player.late > 8 ? "Playing slowly: it is not drawn any faster." : "Playing.");
    this.following = requestAnimationFrame(() => this.follow());
  }

  show() {
    const { player } = this;
    const { position } = player;
    const on = player.notes.slice(-1000).filter(({ first, last }) =>
      first <= position && (last === null || last > position));
    this.keyboard.light(new Set(player.running ? on.map(({ key }) => key) : []));
    this.roll.draw();
    this.parts.save.disabled = position <= 0;
  }
}

const page = new Page(JSON.parse(document.getElementById("model").textContent));
