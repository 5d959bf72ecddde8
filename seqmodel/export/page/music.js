/* The page of a model of notes: what it has besides the controls of every page. */

class MusicPage extends Page {
  listen() {
    super.listen();
    const { tempo, midi, typing } = this.parts;
    this.keyboard = new Keyboard(this.parts.keys, {
      press: (key, loudness) => this.press(key, loudness),
      release: (key) => this.player.release(key),
    });
    this.range(tempo, (value) => this.player.setPace(value / Number(tempo.dataset.plain)));
    typing.addEventListener("change", () => (this.keyboard.byKeys = typing.checked));
    midi.hidden = !navigator.requestMIDIAccess;
    midi.addEventListener("click", () => this.connect());
  }

  paint() {
    super.paint();
    this.keyboard.paint(this.dark);
    const { stage } = this.parts;
    stage.scrollLeft = 0.44 * stage.scrollWidth - stage.clientWidth / 2;
  }

  get startText() {
    return this.player.listening ? "Continue my opening" : "Start";
  }

  async press(key, loudness) {
    await this.sound.wake();
    const { listening, model } = this.player;
    if (!model.kit && !this.keyboard.isDown(key)) return; /* let go before the sound was ready */
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

  show() {
    super.show();
    const { player } = this;
    const { position } = player;
    const on = player.notes.slice(-1000).filter(({ first, last }) =>
      first <= position && (last === null || last > position));
    this.keyboard.light(new Set(player.running ? on.map(({ key }) => key) : []));
  }
}

function begin(model) {
  const player = new NotePlayer(model, new Instrument());
  return new MusicPage(model.name, player, new Roll(document.getElementById("roll"), player));
}
