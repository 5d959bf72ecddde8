/* Sound as a WAV file. */

const KEPT_SECONDS = 600; /* at most, the last ones */

/* A 16-bit file of channels of samples from -1 to below 1. */
function wavFile(channels, rate) {
  const [count, length] = [channels.length, channels[0].length];
  const levels = new Int16Array(count * length);
  channels.forEach((samples, channel) =>
    samples.forEach((x, n) => (levels[n * count + channel] = Math.round(x * 32768))));
  const [riff, wave, fmt, data] = [0x46464952, 0x45564157, 0x20746d66, 0x61746164];
  const [pcm, bits, frameBytes, size] = [1, 16, 2 * count, levels.byteLength];
  const format = [16, pcm | (count << 16), rate, frameBytes * rate, frameBytes | (bits << 16)];
  const head = Uint32Array.of(riff, 36 + size, wave, fmt, ...format, data, size);
  return new Blob([head, levels], { type: "audio/wav" });
}
