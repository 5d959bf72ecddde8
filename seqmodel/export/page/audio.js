/* The page of a model of samples: it has the controls of every page, and a waveform. */

function begin(model) {
  const player = new Stream(model, new Speaker(), model.rate);
  return new Page(model.name, player, new Wave(document.getElementById("wave"), player));
}
