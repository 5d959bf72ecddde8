/* How loud a note is: the rules of seqmodel/media/music/writing.py, in bars of four beats. */

function velocity(key, frame, notes, place, grid) {
  const sounding = frame.subarray(0, notes);
  const voice = key === sounding.lastIndexOf(1) ? 10 : key === sounding.indexOf(1) ? 4 : 0;
  const beat = grid.framesPerBeat;
  const phrase = beat ? 16 * beat : 8 / grid.secondsPerFrame;
  const arch = Math.round(8 * Math.sin((Math.PI * (place % phrase)) / phrase));
  return 68 + voice + arch + (beat ? accent(place % (4 * beat), beat) : 0);
}

function accent(place, beat) {
  if (place === 0) return 14;
  if (place === 2 * beat) return 9;
  if (place % beat === 0) return 6;
  return 2 * (place % beat) === beat ? 2 : 0;
}
