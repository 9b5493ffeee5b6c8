// What the page's worker does: data, starting values, training and tests of two models, step by step.
const SPECIAL = ["[PAD]", "[BOS]", "[EOS]", "[UNK]"], BOS = 1, EOS = 2;
const SYMBOLS = 10, LONGEST = 20, SIZES = { train: 16000, validation: 500, test: 200 }; // 200 of each length

// ---- Data, as in data/tasks.py and data/batching.py --------------------------------------------------------------

// A split of a task for sequences of 1 to `longest` symbols: pairs of words.
function taskSplit(task, name, seed, longest) {
  const random = new NumpyRandom(seedFor(seed, "data", name)), every = Array.from({ length: LONGEST }, (_, n) => n + 1);
  const lengths = name === "test" ? every.flatMap(n => Array(SIZES.test).fill(n))
    : Array.from({ length: SIZES[name] }, () => random.integer(1, longest + 1));
  return lengths.map(n => {
    const source = Array.from({ length: n }, () => String(random.integer(1, SYMBOLS + 1)));
    return [source, RIGHT[task](source)];
  });
}

// The words of a task in the order of their ids.
function taskWords(task) {
  const numbers = Array.from({ length: SYMBOLS }, (_, n) => String(n + 1));
  return [...SPECIAL, ...new Set([...numbers, ...numbers.flatMap(word => RIGHT[task]([word]))])];
}

// The three splits of the reader's own pairs: a fifth is held out, if there are five; without a test.
function ownSplits(pairs, seed) {
  const order = new NumpyRandom(seedFor(seed, "data", "own")).permutation(pairs.length).map(i => pairs[i]);
  const held = Math.floor(pairs.length / 5), train = order.slice(held);
  return { train, validation: held ? order.slice(0, held) : train, test: [] };
}

// Ids of a pair's words: the source and its end, and the target and its end.
const toIds = (pairs, words) => {
  const ids = new Map(words.map((word, id) => [word, id]));
  return pairs.map(pair => pair.map(side => [...side.map(word => ids.get(word)), EOS]));
};

// Batches without end, as lists of indices. A batch has at most `budget` positions, were all as long as its longest.
function* batchIndices(widths, budget, seed) {
  for (let epoch = 0; ; epoch++) {
    let batch = [], widest = 0;
    for (const i of new NumpyRandom(seedFor(seed, "order", epoch)).permutation(widths.length)) {
      widest = Math.max(widest, widths[i]);
      if ((batch.length + 1) * widest > budget) {
        yield batch;
        [batch, widest] = [[], widths[i]];
      }
      batch.push(i);
    }
    yield batch;
  }
}

// Examples end to end, as the model takes them.
function collate(examples) {
  const starts = rows => {
    let end = 0;
    return [0, ...rows.map(row => end += row.length)];
  };
  const [sources, targets] = [0, 1].map(side => examples.map(example => example[side]));
  return {
    source: sources.flat(), sourceStarts: starts(sources), targetOut: targets.flat(), targetStarts: starts(targets),
    targetIn: targets.flatMap(row => [BOS, ...row.slice(0, -1)]),
  };
}

// ---- Starting values and tests, as in model/init.py and train/evaluation.py --------------------------------------

// Each parameter is drawn from (seed, name), so two models start with the same values where they share a parameter.
function initialise({ parameters, sizes: { width, heads, encoding } }, seed) {
  for (const [name, rows, columns] of parameters.shapes) {
    const { value } = parameters.part(name, 0, rows * columns), random = new TorchRandom(seedFor(seed, name));
    if (name.includes("norm")) value.fill(name.endsWith("weight") ? 1 : 0);
    else if (name.endsWith("bias")) value.fill(0);
    else if (name.endsWith("embedding.weight")) random.fillNormal(value, width ** -0.5);
    else if (name.endsWith("table")) random.fillNormal(value, encoding === "learned" ? 1 : (width / heads) ** -0.5);
    else random.fillUniform(value, Math.sqrt(6 / (rows + columns)));
  }
}

// For each example, whether every step is right given that those before it were, which says that greedy decoding
// answers it exactly; and the mean NLL of a token.
function evaluate(model, examples) {
  const right = [];
  let nll = 0, tokens = 0;
  for (let from = 0; from < examples.length; from += 50) {
    const batch = collate(examples.slice(from, from + 50)), logits = model.forward(batch), { targetOut, targetStarts } = batch;
    const words = logits.length / targetOut.length, hit = targetOut.map((id, i) => {
      let best = EOS; // padding and BOS, the ids below, are never chosen
      for (let w = EOS + 1; w < words; w++) if (logits[i * words + w] > logits[i * words + best]) best = w;
      return best === id;
    });
    for (let b = 0; b + 1 < targetStarts.length; b++) right.push(hit.slice(targetStarts[b], targetStarts[b + 1]).every(Boolean));
    nll += crossEntropy(logits, targetOut).loss * targetOut.length;
    tokens += targetOut.length;
  }
  return { right, nll: nll / tokens };
}
const share = right => right.length ? right.filter(Boolean).length / right.length : null;

// ---- Two models, trained side by side ----------------------------------------------------------------------------

class Training {
  // setting: task or own pairs, encodings, seed, longest, width, heads, inner, layers, rate, steps, warmup, budget, every
  constructor(setting) {
    const { task, pairs, encodings, seed, longest, budget } = this.setting = setting;
    const splits = pairs ? ownSplits(pairs, seed)
      : Object.fromEntries(Object.keys(SIZES).map(name => [name, taskSplit(task, name, seed, longest)]));
    this.words = pairs ? [...SPECIAL, ...new Set(pairs.flat(2))] : taskWords(task);
    const known = new Set(splits.train.map(([source]) => source.join(" ")));
    this.isNew = splits.test.map(([source]) => !known.has(source.join(" ")));
    this.lengths = splits.test.map(([source]) => source.length);
    this.data = Object.fromEntries(Object.entries(splits).map(([name, split]) => [name, toIds(split, this.words)]));
    this.batches = batchIndices(this.data.train.map(([source, target]) => Math.max(source.length, target.length)), budget, seed);
    this.models = encodings.map(encoding => new Transformer({ ...setting, words: this.words.length, encoding }));
    for (const model of this.models) initialise(model, seed);
    this.step = 0;
  }

  get ended() {
    return this.step === this.setting.steps;
  }

  // One step of every model on the same batch: the losses.
  advance() {
    const batch = collate(this.batches.next().value.map(i => this.data.train[i]));
    const losses = this.models.map(model => trainStep(model, batch, this.step, this.setting));
    this.step++;
    return losses;
  }

  // Scores of every model now. The test has ten sequences of each length while it trains, and all at the end.
  scores() {
    const { data, lengths, isNew, setting: { longest } } = this;
    const asked = data.test.map((_, i) => i).filter(i => this.ended || i % SIZES.test < 10);
    return this.models.map(model => {
      const validation = evaluate(model, data.validation), test = evaluate(model, asked.map(i => data.test[i])).right;
      const some = chosen => share(test.filter((_, n) => chosen(lengths[asked[n]], asked[n])));
      // Of at most three symbols nearly all sequences occur in training, so all of them count.
      const trained = some((length, i) => length <= longest && (isNew[i] || longest <= 3));
      return {
        exact: share(validation.right), nll: validation.nll, trained, beyond: some(length => length > longest),
        byLength: data.test.length ? Array.from({ length: LONGEST }, (_, n) => some(length => length === n + 1)) : [],
      };
    });
  }
}

// ---- Messages: {start: setting}, {go: true | false} and {advance: true} come in; losses, scores and weights go out --

let training = null, going = false;
if (typeof importScripts === "function") onmessage = ({ data }) => {
  if (data.start) training = new Training(data.start);
  if (data.advance) report([advance()]);
  if (data.go === true && !going) setTimeout(work);
  if (data.go !== undefined) going = data.go;
};

// Train for a tenth of a second, report, and let messages in.
function work() {
  const until = performance.now() + 100, done = [];
  while (going && !training.ended && performance.now() < until) {
    done.push(advance());
    if (training.step % training.setting.every === 0) break;
  }
  report(done);
  if (going && !training.ended) setTimeout(work);
}

// One step; training stops where a loss is no longer a number.
function advance() {
  const losses = training.advance(), { step, setting: { encodings } } = training;
  const lost = encodings.filter((_, m) => !Number.isFinite(losses[m]));
  if (lost.length) going = false;
  return { step, losses, lost };
}

function report(done) {
  if (!done.length) return;
  const { step, setting, ended, models, words } = training, { lost } = done.at(-1);
  postMessage({ done, lost, words, step });
  if (lost.length || step % setting.every && !ended) return;
  const weights = models.map(({ parameters: { shapes, values } }) => ({ shapes, values }));
  postMessage({ step, scores: training.scores(), weights, ended });
  if (ended) going = false; // so that nothing is left to go on with
}
