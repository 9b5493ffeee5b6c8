// What is asked of a model, as in data/tasks.py: from the words of a source to those of its target.
const letters = n => n > 0 ? letters(Math.floor((n - 1) / 26)) + String.fromCharCode(65 + (n - 1) % 26) : "";
const RIGHT = {
  letters: words => words.map(word => letters(Number(word))),
  copy: words => [...words],
  reverse: words => [...words].reverse(),
  sort: words => [...words].sort((a, b) => a - b),
};

// The settings of the package's studies, configs/study/page.yaml and default.yaml.
const STUDIES = {
  page: { width: 32, heads: 2, inner: 128, layers: 1, rate: 5e-3, steps: 500, warmup: 100, budget: 352, every: 50, longest: 10 },
  default: { width: 64, heads: 4, inner: 256, layers: 1, rate: 2e-3, steps: 500, warmup: 100, budget: 352, every: 100, longest: 10 },
};
