/* The model at work in a Worker, which runs this same script: whatever holds up the page, a layout or
   another tab, holds up no drawing. */

const AT_HAND_SECONDS = 0.4; /* drawn, or being drawn, and not given to the sound */

/* What `draws` gives of a piece, in `waiting` as soon as it is drawn. */
class Source {
  waiting = [];
  asked = 0; /* how many are being drawn */

  constructor(model, piece, arrived) {
    this.worker = new Worker(SCRIPT);
    this.worker.onerror = failed;
    this.worker.onmessage = ({ data }) => {
      this.asked -= 1;
      this.waiting.push(data);
      arrived();
    };
    this.worker.postMessage([model, piece]);
  }

  /* Have so many waiting, soon. */
  ask(count, temperature) {
    for (; this.asked + this.waiting.length < count; this.asked += 1)
      this.worker.postMessage(temperature);
  }

  end() {
    this.worker.terminate();
  }
}

/* What the Worker does with the first message, and with those that ask. */
function work({ data: [model, piece] }) {
  const own = new Model(model);
  own.tell(piece.told);
  const frames = draws(own, piece);
  onmessage = ({ data }) => {
    piece.temperature = data;
    postMessage(frames.next().value);
  };
}
