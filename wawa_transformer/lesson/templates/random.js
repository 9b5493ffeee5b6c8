// The package's random numbers, bit for bit: the data and the order of batches are those of numpy, the starting
// values those of torch. So the page's seed 7 trains on what seed 7 of the package trains on, from the same start.

// A seed for each purpose, as in common/seeds.py: the first 63 bits of the SHA-256 of "seed/name/…".
function seedFor(...names) {
  const [high, low] = sha256(new TextEncoder().encode(names.join("/")));
  return (BigInt(high) << 32n | BigInt(low)) >> 1n;
}

const PRIMES = Array.from({ length: 312 }, (_, n) => n).filter(n => n > 1 && !Array.from({ length: n }, (_, i) => i).some(i => i > 1 && n % i === 0));
const fraction = x => Math.floor((x - Math.floor(x)) * 2 ** 32) | 0;

// The eight words of a message's SHA-256 (FIPS 180-4).
function sha256(bytes) {
  const blocks = bytes.length + 72 >> 6, words = new Uint32Array(16 * blocks), state = PRIMES.slice(0, 8).map(p => fraction(p ** (1 / 2)));
  bytes.forEach((byte, i) => words[i >> 2] |= byte << 24 - 8 * (i % 4));
  words[bytes.length >> 2] |= 0x80 << 24 - 8 * (bytes.length % 4);
  words[words.length - 1] = 8 * bytes.length;
  const turn = (x, n) => x >>> n | x << 32 - n, keys = PRIMES.slice(0, 64).map(p => fraction(Math.cbrt(p))), w = new Int32Array(64);
  for (let block = 0; block < blocks; block++) {
    w.set(words.subarray(16 * block, 16 * block + 16));
    for (let t = 16; t < 64; t++) {
      const [x, y] = [w[t - 15], w[t - 2]];
      w[t] = w[t - 16] + (turn(x, 7) ^ turn(x, 18) ^ x >>> 3) + w[t - 7] + (turn(y, 17) ^ turn(y, 19) ^ y >>> 10);
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let t = 0; t < 64; t++) {
      const first = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (e & f ^ ~e & g) + keys[t] + w[t] | 0;
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + (a & b ^ a & c ^ b & c) | 0;
      [a, b, c, d, e, f, g, h] = [first + second | 0, a, b, c, d + first | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => { state[i] = state[i] + value | 0; });
  }
  return state.map(word => word >>> 0);
}

// The generator of numpy.random.default_rng: PCG64 (O'Neill 2014), seeded by a SeedSequence.
class NumpyRandom {
  constructor(seed) {
    const words = seedSequence(seed), wide = i => BigInt(words[i + 1]) << 32n | BigInt(words[i]);
    this.step = BigInt.asUintN(128, (wide(4) << 64n | wide(6)) << 1n | 1n);
    this.state = 0n;
    this.next64();
    this.state += wide(0) << 64n | wide(2);
    this.next64();
    this.kept = null; // the upper half of the last 64 bits
  }

  next64() {
    this.state = BigInt.asUintN(128, this.state * 0x2360ed051fc65da44385df649fccf645n + this.step);
    const folded = BigInt.asUintN(64, this.state >> 64n ^ this.state), turns = this.state >> 122n;
    return BigInt.asUintN(64, folded >> turns | folded << (64n - turns));
  }

  next32() {
    if (this.kept !== null) {
      const kept = this.kept;
      this.kept = null;
      return kept;
    }
    const bits = this.next64();
    this.kept = Number(bits >> 32n);
    return Number(bits & 0xffffffffn);
  }

  // A whole number from low up to, but not including, high (Lemire 2019).
  integer(low, high) {
    const size = high - low;
    if (size === 1) return low;
    for (;;) {
      const product = BigInt(this.next32()) * BigInt(size), rest = Number(product & 0xffffffffn);
      if (rest >= size || rest >= (2 ** 32 - size) % size) return low + Number(product >> 32n);
    }
  }

  permutation(length) {
    const order = Array.from({ length }, (_, i) => i);
    for (let i = length - 1; i > 0; i--) {
      const mask = 2 ** (32 - Math.clz32(i)) - 1;
      let j;
      do j = this.next32() & mask; while (j > i);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }
}

// The eight words that numpy's SeedSequence makes of a seed below 2^64.
function seedSequence(seed) {
  const multiply = (a, b) => Math.imul(a, b) >>> 0, entropy = [Number(seed & 0xffffffffn), Number(seed >> 32n)];
  let key = 0x43b0d7e5;
  const hashed = (value, factor) => {
    value = (value ^ key) >>> 0;
    key = multiply(key, factor);
    value = multiply(value, key);
    return (value ^ value >>> 16) >>> 0;
  };
  const mixed = (x, y) => {
    const value = multiply(x, 0xca01f9dd) - multiply(y, 0x4973f715) >>> 0;
    return (value ^ value >>> 16) >>> 0;
  };
  const pool = [0, 1, 2, 3].map(i => hashed(entropy[i] ?? 0, 0x931e8875));
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mixed(pool[to], hashed(pool[from], 0x931e8875));
  }
  key = 0x8b51f9dd;
  return Array.from({ length: 8 }, (_, i) => hashed(pool[i % 4], 0x58f38ded));
}

// The generator of torch on a CPU: the Mersenne Twister (Matsumoto and Nishimura 1998).
class TorchRandom {
  constructor(seed) {
    this.words = new Uint32Array(624);
    this.words[0] = Number(seed & 0xffffffffn);
    for (let i = 1; i < 624; i++) this.words[i] = Math.imul(1812433253, this.words[i - 1] ^ this.words[i - 1] >>> 30) + i;
    this.at = 624;
  }

  next32() {
    const { words } = this;
    if (this.at === 624) {
      for (let i = 0; i < 624; i++) {
        const pair = words[i] & 0x80000000 | words[(i + 1) % 624] & 0x7fffffff;
        words[i] = words[(i + 397) % 624] ^ pair >>> 1 ^ (pair & 1 ? 0x9908b0df : 0);
      }
      this.at = 0;
    }
    let word = words[this.at++];
    word ^= word >>> 11;
    word ^= word << 7 & 0x9d2c5680;
    word ^= word << 15 & 0xefc60000;
    return (word ^ word >>> 18) >>> 0;
  }

  uniform() {
    return (this.next32() & 0xffffff) / 2 ** 24;
  }

  // As Tensor.uniform_(-limit, limit).
  fillUniform(values, limit) {
    const end = Math.fround(limit), width = Math.fround(2 * end); // rounded where torch rounds
    for (let i = 0; i < values.length; i++) values[i] = this.uniform() * width - end;
  }

  // As Tensor.normal_(0, deviation), for a multiple of 16 values (Box and Muller 1958).
  fillNormal(values, deviation) {
    for (let i = 0; i < values.length; i++) values[i] = this.uniform();
    for (let i = 0; i < values.length; i++) {
      if (i % 16 >= 8) continue;
      const radius = deviation * Math.sqrt(-2 * Math.log(1 - values[i])), angle = 2 * Math.PI * values[i + 8];
      values[i] = radius * Math.cos(angle);
      values[i + 8] = radius * Math.sin(angle);
    }
  }
}
