/* The uniform numbers that a piece is drawn by: those of seqmodel/kernels/uniforms.py. */

class Uniforms {
  /* The stream of one piece of a seed, both whole numbers of any size (BigInt). */
  constructor(seed, piece) {
    this.state = seedKey([...words(seed), ...words(piece)]);
  }

  /* The next number in [0, 1): SplitMix64, of which the upper 53 bits count. */
  next() {
    const whole = (bits) => BigInt.asUintN(64, bits);
    this.state = whole(this.state + 0x9e3779b97f4a7c15n);
    let bits = this.state;
    bits = whole((bits ^ (bits >> 30n)) * 0xbf58476d1ce4e5b9n);
    bits = whole((bits ^ (bits >> 27n)) * 0x94d049bb133111ebn);
    bits ^= bits >> 31n;
    return Number(bits >> 11n) * 2 ** -53;
  }

  take(count) {
    return Float64Array.from({ length: count }, () => this.next());
  }
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

/* The first 64 bits of NumPy's SeedSequence (O'Neill's seed_seq) of these words. */
function seedKey(entropy) {
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
