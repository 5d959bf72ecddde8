/* The model at work in a Worker, which runs this same script, so that drawing does not stall when
   the page does, because of a layout or another tab. */

const AT_HAND_SECONDS = 0.4; /* drawn or being drawn, but not yet passed to the sound */

/* What `draws` yields for a piece, in `waiting` as soon as it is drawn. */
class Source {
  waiting = [];
  requested = 0; /* how many are being drawn */

  constructor(model, piece, onFrame) {
    this.worker = new Worker(SCRIPT);
    this.worker.onerror = failed;
    this.worker.onmessage = ({ data }) => {
      this.requested -= 1;
      this.waiting.push(data);
      onFrame();
    };
    this.worker.postMessage([model, piece]);
  }

  /* Request frames until this many are waiting or being drawn. */
  request(count, temperature) {
    for (; this.requested + this.waiting.length < count; this.requested += 1)
      this.worker.postMessage(temperature);
  }

  end() {
    this.worker.terminate();
  }
}

/* The Worker's response to the first message, and to those that request frames. */
function work({ data: [model, piece] }) {
  const instance = new Model(model);
  instance.setLabels(piece.labels);
  const frames = draws(instance, piece);
  onmessage = ({ data }) => {
    piece.temperature = data;
    postMessage(frames.next().value);
  };
}
