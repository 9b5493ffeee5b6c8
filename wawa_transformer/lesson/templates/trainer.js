// A Transformer that trains: layers, their gradients and AdamW, in plain JavaScript.
// It computes what wawa_transformer/model and train_step compute, and parameters have the same names.
//
// An array holds a matrix row by row. A row belongs to a token, and the tokens of all sequences of a batch lie end
// to end: there is no padding, and sequence b has the rows starts[b] to starts[b+1]-1.
// Every layer has two methods. forward(x) computes y and keeps what backward needs. backward(dy) takes the gradient
// of the loss with respect to y, adds to the gradients of the layer's parameters, and returns that of x.

// ---- Matrices --------------------------------------------------------------------------------------------------

// out (n, m) += a (n, k) · b (m, k)ᵀ: entry (i, j) is the dot product of row i of a and row j of b. Two rows of a meet
// four of b in one loop, since reading a number takes as long as multiplying it.
function multiply(a, b, out, n, m, k) {
  for (let i = 0; i < n; i += 2) {
    for (let j = 0; j < m; j += 4) {
      if (i + 2 > n || j + 4 > m) {
        multiplyEdge(a, b, out, i, Math.min(i + 2, n), j, Math.min(j + 4, m), m, k);
        continue;
      }
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      const a0 = i * k, a1 = a0 + k, b0 = j * k, b1 = b0 + k, b2 = b1 + k, b3 = b2 + k;
      for (let l = 0; l < k; l++) {
        const x0 = a[a0 + l], x1 = a[a1 + l], y0 = b[b0 + l], y1 = b[b1 + l], y2 = b[b2 + l], y3 = b[b3 + l];
        s00 += x0 * y0; s01 += x0 * y1; s02 += x0 * y2; s03 += x0 * y3;
        s10 += x1 * y0; s11 += x1 * y1; s12 += x1 * y2; s13 += x1 * y3;
      }
      const o0 = i * m + j, o1 = o0 + m;
      out[o0] += s00; out[o0 + 1] += s01; out[o0 + 2] += s02; out[o0 + 3] += s03;
      out[o1] += s10; out[o1 + 1] += s11; out[o1 + 2] += s12; out[o1 + 3] += s13;
    }
  }
  return out;
}

// The same for a block of fewer rows: i0 to i1 of a and j0 to j1 of b.
function multiplyEdge(a, b, out, i0, i1, j0, j1, m, k) {
  for (let i = i0; i < i1; i++) {
    for (let j = j0; j < j1; j++) {
      out[i * m + j] += dot(a, i * k, b, j * k, k);
    }
  }
}

// a (n, k) as (k, n).
function transpose(a, n, k) {
  const out = new Float32Array(n * k);
  for (let i = 0; i < n; i++) for (let j = 0; j < k; j++) out[j * n + i] = a[i * k + j];
  return out;
}

function add(a, b) {
  const out = new Float32Array(a.length);
  for (let i = 0; i < a.length; i++) out[i] = a[i] + b[i];
  return out;
}

// The dot product of `size` numbers of a and of b; and `factor` times numbers of b added to numbers of out.
function dot(a, aFrom, b, bFrom, size) {
  let sum = 0;
  for (let c = 0; c < size; c++) sum += a[aFrom + c] * b[bFrom + c];
  return sum;
}
function addTo(out, outFrom, factor, b, bFrom, size) {
  for (let c = 0; c < size; c++) out[outFrom + c] += factor * b[bFrom + c];
}

// ---- Parameters and the optimiser ------------------------------------------------------------------------------

// All trained numbers of a model in one array, their gradients in another: the optimiser needs no more.
class Parameters {
  constructor(shapes) { // [name, rows, columns] of each, named as in the package
    this.shapes = shapes;
    this.begin = new Map();
    let size = 0;
    for (const [name, rows, columns] of shapes) {
      this.begin.set(name, size);
      size += rows * columns;
    }
    for (const each of ["values", "gradients", "firstMoments", "secondMoments"]) this[each] = new Float32Array(size);
    this.updates = 0;
  }

  // A parameter, or `count` numbers of it from `first` on: its values and its gradient.
  part(name, first, count) {
    const from = this.begin.get(name) + first;
    return { value: this.values.subarray(from, from + count), grad: this.gradients.subarray(from, from + count) };
  }

  // Shrink the gradient to a norm of at most `limit` over all parameters; the norm that it had.
  clip(limit) {
    let squares = 0;
    for (const g of this.gradients) squares += g * g;
    const norm = Math.sqrt(squares), factor = Math.min(1, limit / (norm + 1e-6));
    for (let i = 0; i < this.gradients.length; i++) this.gradients[i] *= factor;
    return norm;
  }

  // One update of AdamW (Loshchilov and Hutter 2019) at a learning rate; the gradients are zero afterwards.
  update(rate, { beta1 = 0.9, beta2 = 0.98, decay = 0.01, epsilon = 1e-8 } = {}) {
    const { values, gradients, firstMoments, secondMoments } = this, step = ++this.updates;
    const size = rate / (1 - beta1 ** step), correction = Math.sqrt(1 - beta2 ** step);
    for (let i = 0; i < values.length; i++) {
      const g = gradients[i], m = firstMoments[i] = beta1 * firstMoments[i] + (1 - beta1) * g;
      const v = secondMoments[i] = beta2 * secondMoments[i] + (1 - beta2) * g * g;
      values[i] -= rate * decay * values[i] + size * m / (Math.sqrt(v) / correction + epsilon);
    }
    gradients.fill(0);
  }
}

// ---- Layers ----------------------------------------------------------------------------------------------------

// y = x Wᵀ + b. `first` and `outputs` choose rows of W, so that one matrix serves queries, keys and values.
class Linear {
  constructor(parameters, name, inputs, outputs, { first = 0, bias = true } = {}) {
    Object.assign(this, { inputs, outputs });
    this.weight = parameters.part(name + ".weight", first * inputs, outputs * inputs);
    this.bias = bias ? parameters.part(name + ".bias", first, outputs) : null;
  }

  forward(x) { // (n, inputs) -> (n, outputs)
    const { inputs, outputs, bias } = this, n = x.length / inputs, y = new Float32Array(n * outputs);
    if (bias) for (let i = 0; i < n; i++) y.set(bias.value, i * outputs);
    this.x = x;
    return multiply(x, this.weight.value, y, n, outputs, inputs);
  }

  backward(dy) { // dW = dyᵀ x, db = the sum of dy's rows, dx = dy W
    const { inputs, outputs, weight, bias, x } = this, n = dy.length / outputs;
    multiply(transpose(dy, n, outputs), transpose(x, n, inputs), weight.grad, outputs, inputs, n);
    if (bias) for (let i = 0; i < dy.length; i++) bias.grad[i % outputs] += dy[i];
    return multiply(dy, transpose(weight.value, outputs, inputs), new Float32Array(n * inputs), n, inputs, outputs);
  }
}

// Each row minus its mean, divided by its standard deviation, times a trained scale plus a trained shift.
class LayerNorm {
  constructor(parameters, name, width) {
    this.width = width;
    this.scale = parameters.part(name + ".weight", 0, width);
    this.shift = parameters.part(name + ".bias", 0, width);
  }

  forward(x) {
    const { width, scale, shift } = this, y = new Float32Array(x.length);
    this.normal = new Float32Array(x.length);
    this.inverse = new Float32Array(x.length / width); // 1 / standard deviation of each row
    for (let i = 0; i < x.length; i += width) {
      let mean = 0, variance = 0;
      for (let c = 0; c < width; c++) mean += x[i + c] / width;
      for (let c = 0; c < width; c++) variance += (x[i + c] - mean) ** 2 / width;
      const inverse = this.inverse[i / width] = 1 / Math.sqrt(variance + 1e-5);
      for (let c = 0; c < width; c++) {
        this.normal[i + c] = (x[i + c] - mean) * inverse;
        y[i + c] = this.normal[i + c] * scale.value[c] + shift.value[c];
      }
    }
    return y;
  }

  // With g = dy · scale: dx = (g - mean(g) - normal · mean(g · normal)) / standard deviation. What changes only the
  // mean or the size of a row does not change y.
  backward(dy) {
    const { width, scale, shift, normal } = this, dx = new Float32Array(dy.length);
    for (let i = 0; i < dy.length; i += width) {
      let mean = 0, along = 0;
      for (let c = 0; c < width; c++) {
        const g = dy[i + c] * scale.value[c];
        mean += g / width;
        along += g * normal[i + c] / width;
        scale.grad[c] += dy[i + c] * normal[i + c];
        shift.grad[c] += dy[i + c];
      }
      for (let c = 0; c < width; c++) {
        dx[i + c] = (dy[i + c] * scale.value[c] - mean - normal[i + c] * along) * this.inverse[i / width];
      }
    }
    return dx;
  }
}

// max(0, x W1 + b1) W2 + b2.
class FeedForward {
  constructor(parameters, name, { width, inner }) {
    this.inner = new Linear(parameters, name + ".inner", width, inner);
    this.outer = new Linear(parameters, name + ".outer", inner, width);
  }

  forward(x) {
    const active = this.active = this.inner.forward(x);
    for (let i = 0; i < active.length; i++) if (active[i] < 0) active[i] = 0;
    return this.outer.forward(active);
  }

  backward(dy) { // no gradient passes a unit that was off
    const { active } = this, dActive = this.outer.backward(dy);
    for (let i = 0; i < active.length; i++) if (active[i] === 0) dActive[i] = 0;
    return this.inner.backward(dActive);
  }
}

// x + sublayer(norm(x)). Backward, both ways add up.
class Residual {
  constructor(parameters, name, width, sublayer) {
    this.norm = new LayerNorm(parameters, name + ".norm", width);
    this.sublayer = sublayer;
  }

  forward(x, ...others) {
    return add(x, this.sublayer.forward(this.norm.forward(x), ...others));
  }

  backward(dy) {
    return add(dy, this.norm.backward(this.sublayer.backward(dy)));
  }
}

// ---- Positions: they enter in three places, as in wawa_transformer/positional -----------------------------------

const MAX_POSITIONS = 64, MAX_DISTANCE = 8;

// A row for each position, sine and cosine by turns: pair i has the angle position / 10000^(2i/width).
function sinusoids(width) {
  return Float32Array.from({ length: MAX_POSITIONS * width }, (_, at) => {
    const position = Math.floor(at / width), c = at % width, angle = position / 10000 ** (2 * (c >> 1) / width);
    return c % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// The position of each token in its own sequence.
function placesOf(starts) {
  return starts.slice(1).flatMap((end, b) => Array.from({ length: end - starts[b] }, (_, p) => p));
}

// 1. Added to the embeddings: the sinusoid, or a trained row for each position.
class Embedding {
  constructor(parameters, side, { width, words, encoding }) {
    this.width = width;
    this.table = parameters.part(`${side}_embedding.weight`, 0, words * width);
    this.positions = null;
    if (encoding === "sinusoidal") this.positions = { value: sinusoids(width), grad: null };
    if (encoding === "learned") this.positions = parameters.part(`${side}_position.table`, 0, MAX_POSITIONS * width);
  }

  forward(ids, starts) { // the row of each id times √width, plus the row of its position
    const { width, table, positions } = this, x = new Float32Array(ids.length * width), places = placesOf(starts);
    Object.assign(this, { ids, places });
    for (let i = 0; i < ids.length; i++) {
      const from = ids[i] * width, position = places[i] * width;
      for (let c = 0; c < width; c++) {
        x[i * width + c] = table.value[from + c] * Math.sqrt(width) + (positions ? positions.value[position + c] : 0);
      }
    }
    return x;
  }

  backward(dx) { // each row gets the gradients of all tokens that used it
    const { width, table, positions, ids, places } = this;
    for (let i = 0; i < ids.length; i++) {
      for (let c = 0; c < width; c++) {
        table.grad[ids[i] * width + c] += dx[i * width + c] * Math.sqrt(width);
        if (positions?.grad) positions.grad[places[i] * width + c] += dx[i * width + c];
      }
    }
  }
}

// 2. Queries and keys rotated by their position (rotary), in place: x has `stride` numbers a token, and the heads
// begin at `from`. Direction -1 turns a gradient back: a rotation's transpose is its inverse.
function rotate(x, stride, from, starts, angles, { width, heads }, direction = 1) {
  const size = width / heads;
  placesOf(starts).forEach((position, i) => {
    for (let c = 0; c < width; c += 2) {
      const at = i * stride + from + c, angle = position * size + c % size, even = x[at], odd = x[at + 1];
      const sine = direction * angles[angle], cosine = angles[angle + 1];
      x[at] = even * cosine - odd * sine;
      x[at + 1] = even * sine + odd * cosine;
    }
  });
}

// 3. A bias on the scores (Shaw et al. 2018): a trained vector for each distance, which is added to the key.
class Distances {
  constructor(parameters, name, size) {
    this.size = size;
    this.table = parameters.part(name, 0, (2 * MAX_DISTANCE + 1) * size);
  }

  row(distance) { // where the distance's vector begins; far distances share the last one
    return (Math.max(-MAX_DISTANCE, Math.min(MAX_DISTANCE, distance)) + MAX_DISTANCE) * this.size;
  }
}

// ---- Attention -------------------------------------------------------------------------------------------------

// softmax(q · (k + a) / √size) v in each head, where a is the distance's vector, if any. `role` is src, tgt (a query
// sees no later key) or cross (queries of the target, keys and values of the source).
class Attention {
  constructor(parameters, name, role, sizes) {
    const { width, heads, encoding } = sizes, cross = role === "cross", project = name + ".in_proj";
    Object.assign(this, { role, sizes, width, heads, size: width / heads });
    this.input = new Linear(parameters, project, width, cross ? width : 3 * width); // of queries, or of all three
    this.memory = cross ? new Linear(parameters, project, width, 2 * width, { first: width }) : null;
    this.output = new Linear(parameters, name + ".out_proj", width, width);
    this.angles = encoding === "rotary" && !cross ? sinusoids(this.size) : null;
    const relative = encoding === "shaw_cross" || encoding === "shaw" && !cross;
    this.distances = relative ? new Distances(parameters, `${role}_position.table`, this.size) : null;
  }

  // Queries, keys and values: arrays with the numbers a token has there, and where in these they begin.
  places(own, other) {
    const { width } = this, three = 3 * width, two = 2 * width;
    return other ? [[own, width, 0], [other, two, 0], [other, two, width]]
      : [[own, three, 0], [own, three, width], [own, three, two]];
  }

  forward(x, starts, memory, memoryStarts) {
    this.starts = [starts, memoryStarts ?? starts];
    this.own = this.input.forward(x);
    this.other = memory ? this.memory.forward(memory) : null;
    this.rotate(this.own, 1);
    return this.output.forward(this.attend());
  }

  backward(dy) { // of x; dMemory is that of memory
    const dOut = this.output.backward(dy);
    const dOwn = new Float32Array(this.own.length), dOther = this.other ? new Float32Array(this.other.length) : null;
    this.attendBackward(dOut, dOwn, dOther);
    this.rotate(dOwn, -1);
    if (dOther) this.dMemory = this.memory.backward(dOther);
    return this.input.backward(dOwn);
  }

  rotate(own, direction) { // queries and keys
    const { width, angles, sizes, starts: [starts] } = this;
    if (angles) for (const from of [0, width]) rotate(own, 3 * width, from, starts, angles, sizes, direction);
  }

  // Call visit(query row, key rows' first, number of keys seen, head, place of the query, where its weights lie).
  eachQuery(visit) {
    const [starts, memoryStarts] = this.starts;
    let at = 0;
    for (let b = 0; b + 1 < starts.length; b++) {
      const queries = starts[b + 1] - starts[b], keys = memoryStarts[b + 1] - memoryStarts[b];
      for (let h = 0; h < this.heads; h++) {
        for (let i = 0; i < queries; i++, at += keys) {
          visit(starts[b] + i, memoryStarts[b], this.role === "tgt" ? i + 1 : keys, h, i, at);
        }
      }
    }
    return at;
  }

  attend() {
    const [[q, qStride, qFrom], [k, kStride, kFrom], [v, vStride, vFrom]] = this.places(this.own, this.other);
    const { size, width, distances } = this, scale = 1 / Math.sqrt(size), vectors = distances?.table.value;
    const out = new Float32Array(q.length / qStride * width);
    const weights = this.weights = new Float32Array(this.eachQuery(() => {}));
    this.eachQuery((query, first, seen, h, i, at) => {
      const qAt = query * qStride + qFrom + h * size, kAt = kFrom + h * size, vAt = vFrom + h * size;
      const outAt = query * width + h * size;
      let largest = -Infinity, total = 0;
      for (let j = 0; j < seen; j++) {
        let score = dot(q, qAt, k, (first + j) * kStride + kAt, size);
        if (distances) score += dot(q, qAt, vectors, distances.row(j - i), size);
        weights[at + j] = score * scale;
        largest = Math.max(largest, weights[at + j]);
      }
      for (let j = 0; j < seen; j++) total += weights[at + j] = Math.exp(weights[at + j] - largest);
      for (let j = 0; j < seen; j++) {
        weights[at + j] /= total;
        addTo(out, outAt, weights[at + j], v, (first + j) * vStride + vAt, size);
      }
    });
    return out;
  }

  // The chain rule through the weighted sum, the softmax and the dot product, in this order.
  attendBackward(dOut, dOwn, dOther) {
    const [[q, qStride, qFrom], [k, kStride, kFrom], [v, vStride, vFrom]] = this.places(this.own, this.other);
    const [[dq], [dk], [dv]] = this.places(dOwn, dOther);
    const { size, width, distances, weights } = this, scale = 1 / Math.sqrt(size), vectors = distances?.table.value;
    const dVectors = distances?.table.grad, dWeights = new Float32Array(Math.max(...gaps(this.starts[1])));
    this.eachQuery((query, first, seen, h, i, at) => {
      const qAt = query * qStride + qFrom + h * size, kAt = kFrom + h * size, vAt = vFrom + h * size;
      const outAt = query * width + h * size;
      let mean = 0; // of dWeights, weighed by the weights: softmax passes on what differs from it
      for (let j = 0; j < seen; j++) {
        const value = (first + j) * vStride + vAt;
        dWeights[j] = dot(dOut, outAt, v, value, size);
        mean += weights[at + j] * dWeights[j];
        addTo(dv, value, weights[at + j], dOut, outAt, size);
      }
      for (let j = 0; j < seen; j++) {
        const dScore = weights[at + j] * (dWeights[j] - mean) * scale, key = (first + j) * kStride + kAt;
        addTo(dq, qAt, dScore, k, key, size);
        addTo(dk, key, dScore, q, qAt, size);
        if (distances) {
          addTo(dq, qAt, dScore, vectors, distances.row(j - i), size);
          addTo(dVectors, distances.row(j - i), dScore, q, qAt, size);
        }
      }
    });
  }
}

const gaps = starts => starts.slice(1).map((end, b) => end - starts[b]);

// ---- The model -------------------------------------------------------------------------------------------------

// The parameters that a model has: [name, rows, columns] of each.
function shapesOf({ width, heads, inner, layers, words, encoding }) {
  const shapes = [], add = (name, rows, columns) => shapes.push([name, rows, columns]);
  const linear = (name, inputs, outputs) => { add(name + ".weight", outputs, inputs); add(name + ".bias", 1, outputs); };
  const norm = name => { add(name + ".weight", 1, width); add(name + ".bias", 1, width); };
  const attention = name => { linear(name + ".in_proj", width, 3 * width); linear(name + ".out_proj", width, width); };
  add("tgt_embedding.weight", words, width);
  add("src_embedding.weight", words, width);
  const sides = { learned: ["src", "tgt"], shaw: ["src", "tgt"], shaw_cross: ["src", "tgt", "cross"] }[encoding] ?? [];
  for (const side of sides) {
    if (encoding === "learned") add(`${side}_position.table`, MAX_POSITIONS, width);
    else add(`${side}_position.table`, 2 * MAX_DISTANCE + 1, width / heads);
  }
  for (const [stack, attentions] of [["encoder", ["self"]], ["decoder", ["self", "cross"]]]) {
    for (let i = 0; i < layers; i++) {
      const layer = `${stack}_layers.${i}`;
      for (const each of attentions) attention(`${layer}.${each}_attention`);
      linear(layer + ".feed_forward.inner", width, inner);
      linear(layer + ".feed_forward.outer", inner, width);
      for (let r = 0; r <= attentions.length; r++) norm(`${layer}.residuals.${r}.norm`);
    }
    norm(stack + "_norm");
  }
  add("output.weight", words, width);
  return shapes;
}

class Transformer {
  constructor(sizes) { // width, heads, inner, layers, words, encoding
    const parameters = this.parameters = new Parameters(shapesOf(sizes)), { width, layers, words } = sizes;
    const residual = (layer, r, sublayer) => new Residual(parameters, `${layer}.residuals.${r}`, width, sublayer);
    const attention = (layer, name, role) => new Attention(parameters, `${layer}.${name}_attention`, role, sizes);
    const feedForward = layer => new FeedForward(parameters, layer + ".feed_forward", sizes);
    this.sizes = sizes;
    this.source = new Embedding(parameters, "src", sizes);
    this.target = new Embedding(parameters, "tgt", sizes);
    this.encoder = Array.from({ length: layers }, (_, i) => `encoder_layers.${i}`).map(layer => [
      residual(layer, 0, attention(layer, "self", "src")),
      residual(layer, 1, feedForward(layer)),
    ]);
    this.decoder = Array.from({ length: layers }, (_, i) => `decoder_layers.${i}`).map(layer => [
      residual(layer, 0, attention(layer, "self", "tgt")),
      residual(layer, 1, attention(layer, "cross", "cross")),
      residual(layer, 2, feedForward(layer)),
    ]);
    this.encoderNorm = new LayerNorm(parameters, "encoder_norm", width);
    this.decoderNorm = new LayerNorm(parameters, "decoder_norm", width);
    this.output = new Linear(parameters, "output", width, words, { bias: false });
  }

  // Logits, a row for each token of targetIn: what the model expects next.
  forward({ source, sourceStarts, targetIn, targetStarts }) {
    let x = this.source.forward(source, sourceStarts);
    for (const [self, feedForward] of this.encoder) x = feedForward.forward(self.forward(x, sourceStarts));
    const memory = this.encoderNorm.forward(x);
    let y = this.target.forward(targetIn, targetStarts);
    for (const [self, cross, feedForward] of this.decoder) {
      y = self.forward(y, targetStarts);
      y = cross.forward(y, targetStarts, memory, sourceStarts);
      y = feedForward.forward(y);
    }
    return this.output.forward(this.decoderNorm.forward(y));
  }

  // The same way back, from the gradient of the logits. Every decoder layer has read memory, so their gradients add.
  backward(dLogits) {
    let dy = this.decoderNorm.backward(this.output.backward(dLogits)), dMemory = null;
    for (const [self, cross, feedForward] of [...this.decoder].reverse()) {
      dy = cross.backward(feedForward.backward(dy));
      dMemory = dMemory ? add(dMemory, cross.sublayer.dMemory) : cross.sublayer.dMemory;
      dy = self.backward(dy);
    }
    this.target.backward(dy);
    let dx = this.encoderNorm.backward(dMemory);
    for (const [self, feedForward] of [...this.encoder].reverse()) dx = self.backward(feedForward.backward(dx));
    this.source.backward(dx);
  }
}

// The cross-entropy of the right ids in nats a token, and its gradient: softmax minus one at the right id.
function crossEntropy(logits, ids) {
  const words = logits.length / ids.length, gradient = new Float32Array(logits.length);
  let loss = 0;
  for (let i = 0; i < ids.length; i++) {
    const row = logits.subarray(i * words, (i + 1) * words), largest = row.reduce((a, b) => Math.max(a, b));
    let total = 0;
    for (let w = 0; w < words; w++) total += Math.exp(row[w] - largest);
    for (let w = 0; w < words; w++) {
      gradient[i * words + w] = (Math.exp(row[w] - largest) / total - (w === ids[i] ? 1 : 0)) / ids.length;
    }
    loss += (Math.log(total) + largest - row[ids[i]]) / ids.length;
  }
  return { loss, gradient };
}

// The learning rate's share of its peak at a step, counted from 0: up in `warmup` steps, then down to 0.
function schedule(step, { steps, warmup }) {
  return step + 1 <= warmup ? (step + 1) / warmup : (steps - step) / (steps - warmup);
}

// One step of training, as train_step in wawa_transformer/train/loop.py; the loss before the update.
function trainStep(model, batch, step, settings) {
  const { loss, gradient } = crossEntropy(model.forward(batch), batch.targetOut);
  model.backward(gradient);
  model.parameters.clip(1);
  model.parameters.update(settings.rate * schedule(step, settings));
  return loss;
}
