/* The key of the stream of a piece of a seed, both whole numbers of any size (BigInt): the first 64
   bits of NumPy's SeedSequence (O'Neill's seed_seq), as in seqmodel/kernels/uniforms.py. */

function seedKey(seed, piece) {
  const entropy = [...words(seed), ...words(piece)];
  let constant = 0x43b0d7e5;
  const hash = (word, factor) => {
    word ^= constant;
    constant = Math.imul(constant, factor);
    word = Math.imul(word, constant);
    return word ^ (word >>> 16);
  };
  const mix = (x, y) => {
    const mixed = Math.imul(x, 0xca01f9dd) - Math.imul(y, 0x4973f715);
    return mixed ^ ((mixed | 0) >>> 16);
  };
  const absorb = (word) => hash(word, 0x931e8875);
  const pool = [0, 1, 2, 3].map((k) => absorb(entropy[k] ?? 0));
  for (let from = 0; from < 4; from += 1)
    for (let to = 0; to < 4; to += 1) if (from !== to) pool[to] = mix(pool[to], absorb(pool[from]));
  for (const word of entropy.slice(4))
    for (let to = 0; to < 4; to += 1) pool[to] = mix(pool[to], absorb(word));
  constant = 0x8b51f9dd;
  const [low, high] = pool.slice(0, 2).map((word) => hash(word, 0x58f38ded) >>> 0);
  return (BigInt(high) << 32n) | BigInt(low);
}

/* A whole number as 32-bit words, the lowest first; 0 has one. */
function words(number) {
  const found = [];
  do {
    found.push(Number(number & 0xffffffffn));
    number >>= 32n;
  } while (number);
  return found;
}
