/* The page of a model of notes: what it adds to the controls of every page. */

const MAX_LINK = 20000; /* characters of an opening, in any address */

class MusicPage extends Page {
  listen() {
    super.listen();
    const { tempo, midi, typing, instrument, stage } = this.parts;
    this.keyboard = new Keyboard(this.parts, {
      press: (key, loudness) => this.press(key, loudness),
      release: (key) => this.player.release(key),
    });
    const { left } = KEYS[this.keyboard.lowest];
    stage.scrollLeft = left * stage.scrollWidth - stage.clientWidth / 2;
    this.range(tempo, (value) => this.player.setPace(value / Number(tempo.dataset.plain)));
    if (instrument) {
      instrument.append(...Object.keys(INSTRUMENTS).map((kind) => new Option(kind)));
      instrument.addEventListener("change", () => (this.sound.kind = instrument.value));
    }
    typing.addEventListener("change", () => this.keyboard.print(typing.checked));
    midi.hidden = !navigator.requestMIDIAccess;
  }

  back() {
    const { running } = this.player;
    this.player.back();
    this.say("Ready.");
    if (running) this.play();
    this.show();
  }

  /* Play the opening as a melody, with voices below it. */
  harmonise() {
    const { player } = this;
    player.stop();
    if (player.listening) player.endOpening();
    player.below = true;
    this.restart();
    this.play();
  }

  /* In a link, an opening is its notes, such as 60.0.4_64.4.2: pitch, first frame and length. */
  openingOf(params) {
    const text = params.get("opening") ?? "";
    const notes = text.split("_").map((note) => note.split(".").map(Number));
    const opening = notes.map(([pitch, ...frames]) => [pitch - LOWEST_PITCH, ...frames]);
    const valid = /^(\d{1,3}\.\d{1,4}\.[1-9]\d{0,3}(_(?=\d)|$))+$/.test(text);
    this.player.below = Boolean(this.parts.voices) && params.get("voices") === "below";
    const short = text.length <= MAX_LINK;
    return short && valid && opening.every(([key]) => key in KEYS) ? opening : [];
  }

  linkParams() {
    const { given = [], below } = this.player;
    const notes = given.map(([key, ...frames]) => [key + LOWEST_PITCH, ...frames].join("."));
    return super.linkParams() + (notes.length ? `&opening=${notes.join("_")}` : "") +
      (notes.length && below ? "&voices=below" : "");
  }

  async press(key, loudness) {
    await this.sound.wake();
    const { running } = this.player;
    this.player.press(key, loudness);
    if (!this.keyboard.isDown(key)) this.player.release(key); /* before the sound was ready */
    if (running) return;
    this.say("Listening: two beats after your last note the model goes on.");
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

  show() {
    super.show();
    const { player } = this;
    const { position } = player;
    const on = player.notes.slice(-1000).filter(({ first, last }) =>
      first <= position && (last === null || last > position));
    this.keyboard.light(new Set(player.running ? on.map(({ key }) => key) : []));
    const { back, voices } = this.parts;
    back.hidden = !player.listening && !player.given.length;
    voices?.toggleAttribute("hidden", back.hidden);
  }
}

function begin(model) {
  const player = new NotePlayer(model, new Instrument());
  return new MusicPage(model.name, player, new Roll(document.getElementById("roll"), player));
}
