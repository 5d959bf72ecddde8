/* The page of a model of samples: it has the controls of every page, and a waveform. */

function begin(told) {
  const player = new Stream(new Model(told), new Speaker(), told.rate);
  return new Page(told, player, new Wave(document.getElementById("wave"), player));
}
