// The part of the page that trains: settings, the worker, curves over the published intervals, and a last sentence.
const LIMITS = { lines: 200, side: 40, symbols: 200 };
const PUBLISHED = JSON.parse($("published").textContent); // study, task, encoding: means over seeds, with intervals

Object.assign(WORDS.en, {
  train: "Train two models yourself", toTraining: "train two models yourself ↓", toAsking: "↑ back to the trained models",
  trainNote: "Two new models with the same starting values, the same batches, and another encoding each. Training takes a few seconds to a minute, in this tab alone. Predict first: which one learns the task, which one first, and which one still answers sequences that are longer than any in training?",
  learnTask: "task", own: "your own pairs", first: "first encoding", second: "second encoding", upTo: "trained on 1 to {n} symbols", size: "model", rate: "learning rate", seed: "seed",
  pageSize: "width 32, 2 heads", defaultSize: "width 64, 4 heads (default study)", alphabet: "symbols", words: "words", characters: "characters",
  shaw: "Shaw", shaw_cross: "Shaw, also in cross-attention", rotary: "rotary (RoPE)", sinusoidal: "sinusoidal", learned: "learned",
  ownLabel: "up to {lines} lines of source, tab, target", start: "▶ train", pause: "❚❚ pause", goOn: "▶ go on", oneStep: "one step", again: "start again", link: "link to this setting",
  at: "step {step} of {steps}, {seconds} s", isPublished: "The project trained this setting with several seeds (study={study}); the dashed line is their mean. Your seed {seed} has the same data, batches and starting values as the project's seed {seed}.",
  notPublished: "This setting has no published interval: {why}.", ownWhy: "the pairs are your own", lengthWhy: "the published runs train on 1 to {n} symbols", rateWhy: "the published learning rate is {rate}", encodingWhy: "the project has not trained {pe} at this size",
  command: "The same run with the project's commands: {command}",
  lossChart: "Loss", lossNote: "Nats per symbol. Thin line: each batch; thick line: validation sequences.", exactChart: "Exact match", exactNote: "Share of {count} validation sequences without any mistake.", ownExactNote: "Share of {count} held-out lines without any mistake.", fewExactNote: "Share of your lines without any mistake; below 5 lines none is held out.",
  lengthChart: "Exact match by length", lengthNote: "Ten sequences of each length, at the end 200. Grey: longer than any in training.", step: "step", loss: "loss",
  band: "dashed: mean of {seeds} published seeds; band: its 95% interval", yours: "yours, seed {seed}", theirs: "project, seed {seed}", mean: "project, {seeds} seeds: mean and 95% interval", range: "lowest to highest seed", equal: "{mean}, all seeds equal",
  trainedNote: "Exact match at the end, on sequences of trained lengths that training did not hold.", probe: "Ask the two models, at any step", probeNote: "Their answers, and where the answer (rows) looks at the source (columns), in every head. Symbols that differ from the right answer are underlined.", probeLabel: "your input", notYet: "train first: the models answer from the first test on, at step {every}.",
  badRate: "Learning rate “{value}” is not a number above 0.", badSeed: "Seed “{value}” is not a whole number from 0 to {most}.",
  noLines: "Paste at least one line: a source, a tab, and its target.", manyLines: "{n} lines are more than the {most} that fit here; remove some.", noTab: "Line {line} has no tab between its source and its target.", manyTabs: "Line {line} has {n} tabs; one tab separates source and target.", noSource: "Line {line} has a tab without a source before it.", noTarget: "Line {line} has a tab without a target after it.", longSide: "Line {line} has {n} symbols on one side; at most {most} fit.", manySymbols: "{n} different symbols are more than the {most} of the vocabulary; try characters, or fewer lines.",
  noWorker: "This browser does not let a page from a file train in the background ({why}). Try another browser; the trained models above still run.", broken: "Training stopped: {why}. The trained models above still run.",
  lost: "Training stopped at step {step}: the loss of {pe} is no longer a number. The learning rate {rate} is too high; try {lower}.",
  ending: "After {steps} steps {pe} answers {share} and {pe2} {share2} of {what} exactly; {first}{beyond}.", newTrained: "the new sequences of 1 to {n} symbols", oldTrained: "the sequences of 1 to {n} symbols", heldOut: "the held-out lines", ownLines: "your lines", and: " and ",
  firstBoth: "{one} passed 0.9 first, at step {step}, before {other} at step {later}", firstTie: "both passed 0.9 at the test of step {step}", firstOne: "only {one} passed 0.9, at step {step}", firstNone: "neither passed 0.9 in validation", beyond: "; of sequences longer than any in training, {pe} answers {share} and {pe2} {share2}", needed: " This is what an encoding is for: without one, every order of the same symbols looks the same to the model.", emptyOwn: "type at least one symbol of your pairs.",
});
Object.assign(WORDS.zh, {
  train: "自己训练两个模型", toTraining: "自己训练两个模型 ↓", toAsking: "↑ 回到训练好的模型",
  trainNote: "两个新模型，初值相同，每一批数据相同，只有位置编码不同。训练需要几秒到一分钟，全部在这个标签页里完成。先预测：哪个学得会？哪个先学会？比训练时更长的序列，哪个还答得对？",
  learnTask: "任务", own: "自己的数据", first: "第一种编码", second: "第二种编码", upTo: "训练长度：1 到 {n} 个符号", size: "模型", rate: "学习率", seed: "种子",
  pageSize: "宽 32，2 个头", defaultSize: "宽 64，4 个头（默认实验）", alphabet: "符号是", words: "词", characters: "字符",
  shaw: "Shaw", shaw_cross: "Shaw，交叉注意力也用", rotary: "旋转（RoPE）", sinusoidal: "正弦", learned: "可学习",
  ownLabel: "至多 {lines} 行，每行是源序列、制表符、目标序列", start: "▶ 训练", pause: "❚❚ 暂停", goOn: "▶ 继续", oneStep: "训练一步", again: "重新开始", link: "这组设置的链接",
  at: "第 {step} 步，共 {steps} 步，{seconds} 秒", isPublished: "本项目用这组设置训练过几个种子（study={study}），虚线是它们的平均。你的种子 {seed} 与本项目的种子 {seed} 有同样的数据、批次和初值。",
  notPublished: "这组设置没有公布的区间：{why}。", ownWhy: "数据是你自己的", lengthWhy: "公布的实验训练长度是 1 到 {n}", rateWhy: "公布的实验学习率是 {rate}", encodingWhy: "本项目没有用这种大小的模型为 {pe} 训练多个种子",
  command: "在本项目里训练同一个模型：{command}",
  lossChart: "损失", lossNote: "单位是 nat，按每个符号平均。细线：每一批；粗线：验证序列。", exactChart: "完全匹配率", exactNote: "{count} 个验证序列中一个符号都不错的比例。", ownExactNote: "{count} 行没有参加训练的数据中，一个符号都不错的比例。", fewExactNote: "你的各行中一个符号都不错的比例；不足 5 行时不留验证数据。",
  lengthChart: "各长度的完全匹配率", lengthNote: "每个长度 10 个序列，结束时 200 个。灰色部分比训练时的序列都长。", step: "步", loss: "损失",
  band: "虚线：公布的 {seeds} 个种子的平均；色带：平均值的 95% 置信区间", yours: "你的，种子 {seed}", theirs: "本项目，种子 {seed}", mean: "本项目 {seeds} 个种子：平均与 95% 置信区间", range: "最低到最高的种子", equal: "{mean}，各种子相同",
  trainedNote: "训练结束时的完全匹配率：长度在训练范围之内、但训练数据里没有的序列。", probe: "随时向这两个模型提问", probeNote: "两个模型的答案，以及每个头里答案（行）看源序列（列）的哪里。与正确答案不同的符号带下划线。", probeLabel: "你的输入", notYet: "请先训练：从第 {every} 步的第一次测试起，模型就能回答。",
  badRate: "学习率“{value}”不是大于 0 的数。", badSeed: "种子“{value}”不是 0 到 {most} 的整数。",
  noLines: "请至少粘贴一行：源序列、制表符、目标序列。", manyLines: "共 {n} 行，超过这里能用的 {most} 行；请删去一些。", noTab: "第 {line} 行的源序列与目标序列之间没有制表符。", manyTabs: "第 {line} 行有 {n} 个制表符；源序列与目标序列之间只能有一个。", noSource: "第 {line} 行的制表符前没有源序列。", noTarget: "第 {line} 行的制表符后没有目标序列。", longSide: "第 {line} 行有一侧是 {n} 个符号；至多 {most} 个。", manySymbols: "共有 {n} 种符号，超过词表的 {most} 种；可以改用字符，或减少行数。",
  noWorker: "这个浏览器不让从文件打开的网页在后台训练（{why}）。请换一个浏览器；上面训练好的模型仍然可用。", broken: "训练停止：{why}。上面训练好的模型仍然可用。",
  lost: "训练在第 {step} 步停止：{pe} 的损失已经不是数。学习率 {rate} 太高，请试 {lower}。",
  ending: "训练 {steps} 步后，{what}中，{pe}答对 {share}，{pe2}答对 {share2}；{first}{beyond}。", newTrained: "1 到 {n} 个符号的新序列", oldTrained: "1 到 {n} 个符号的序列", heldOut: "没有参加训练的各行", ownLines: "你的各行", and: "、",
  firstBoth: "{one}先超过 0.9，在第 {step} 步，{other}在第 {later} 步", firstTie: "两者都在第 {step} 步的测试中超过 0.9", firstOne: "只有{one}超过 0.9，在第 {step} 步", firstNone: "验证中两者都没有超过 0.9", beyond: "；比训练时更长的序列，{pe}答对 {share}，{pe2}答对 {share2}", needed: "位置编码的用处就在这里：没有它，同样的符号无论怎样排列，在模型看来都一样。", emptyOwn: "请至少输入一个你的数据里有的符号。",
});

let worker = null, course = null; // course: what a training has shown so far
const numberOf = text => text.trim() === "" ? NaN : Number(text);

// A text of the reader's as symbols.
const cut = text => state.alphabet === "words" ? text.split(/\s+/).filter(Boolean) : Array.from(text.trim());

// The reader's own pairs as lists of symbols, or a sentence that says what is wrong with them.
function ownPairs() {
  const lines = state.pairs.split(/\r?\n/).map((line, i) => [line, i + 1]).filter(([line]) => line.trim() || line.includes("\t"));
  if (!lines.length) return { problem: say("noLines") };
  if (lines.length > LIMITS.lines) return { problem: say("manyLines", { n: lines.length, most: LIMITS.lines }) };
  const pairs = [];
  for (const [text, line] of lines) {
    const parts = text.split("\t"), sides = parts.map(cut), longest = Math.max(...sides.map(side => side.length));
    const wrong = parts.length < 2 ? "noTab" : parts.length > 2 ? "manyTabs" : !sides[0].length ? "noSource" : !sides[1].length ? "noTarget"
      : longest > LIMITS.side ? "longSide" : "";
    if (wrong) return { problem: say(wrong, { line, n: wrong === "longSide" ? longest : parts.length - 1, most: LIMITS.side }) };
    pairs.push(sides);
  }
  const symbols = new Set(pairs.flat(2)).size;
  if (symbols > LIMITS.symbols) return { problem: say("manySymbols", { n: symbols, most: LIMITS.symbols }) };
  return { pairs };
}

// The setting that the form holds, or a sentence that says why it cannot be trained.
function settingOf() {
  const rate = numberOf(state.rate), seed = numberOf(state.seed), study = STUDIES[state.size];
  if (!(rate > 0 && rate < Infinity)) return { problem: say("badRate", { value: state.rate }) };
  if (!Number.isSafeInteger(seed) || seed < 0) return { problem: say("badSeed", { value: state.seed, most: Number.MAX_SAFE_INTEGER }) };
  const setting = { ...study, task: state.learn, encodings: [state.a, state.b], rate, seed, longest: Number(state.n) };
  if (state.learn !== "own") return { setting };
  const { pairs, problem } = ownPairs();
  return problem ? { problem } : { setting: { ...setting, pairs } };
}

// The published numbers of an encoding in this setting, or undefined; and why there are none.
function publishedOf(setting, pe) {
  const study = STUDIES[state.size], known = PUBLISHED[state.size]?.[setting.task]?.[pe];
  const why = setting.pairs ? say("ownWhy") : setting.longest !== study.longest ? say("lengthWhy", { n: study.longest })
    : setting.rate !== study.rate ? say("rateWhy", { rate: study.rate }) : known ? "" : say("encodingWhy", { pe: named(pe) });
  return { published: why ? undefined : known, why };
}

function startTraining() {
  const { setting, problem } = settingOf();
  if (problem) return;
  if (setting.pairs && !state.probe.trim()) state.probe = setting.pairs[0][0].join(state.alphabet === "words" ? " " : "");
  course = { setting, losses: [], scores: [], models: [], step: 0, seconds: 0, running: false, ended: false, drawn: 0, problem: () => "" };
  const stop = (word, why) => {
    Object.assign(course, { running: false, problem: () => say(word, { why }) });
    worker = null;
    showTraining();
  };
  worker?.terminate();
  worker = null;
  try {
    const mine = worker = new Worker(URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" })));
    mine.onerror = event => mine === worker && stop(course.step ? "broken" : "noWorker", event.message || event.type);
    mine.onmessage = ({ data }) => mine === worker && hear(data);
    mine.postMessage({ start: setting });
  } catch (error) {
    stop("noWorker", error.message);
  }
}

function hear({ step, done, lost, words, scores, weights, ended }) {
  course.step = step;
  if (course.since) {
    course.seconds += (performance.now() - course.since) / 1000;
    course.since = course.running ? performance.now() : 0;
  }
  if (done) {
    course.words = words;
    course.losses.push(...done.map(each => [each.step, ...each.losses]));
    if (lost.length) {
      const { rate } = course.setting, usual = STUDIES[state.size].rate, lower = usual < rate ? usual : rate / 10;
      const problem = () => say("lost", { step, pe: lost.map(named).join(say("and")), rate, lower });
      Object.assign(course, { running: false, ended: true, lost: true, problem });
    }
  }
  if (scores) {
    course.scores.push({ step, models: scores });
    course.models = weights.map(({ shapes, values }, m) => {
      const { width, heads, layers, encodings } = course.setting, pe = encodings[m];
      return new Model({ pe, kind: pe.replace("_cross", ""), cross: pe.endsWith("_cross"), settings: {}, d_model: width, heads, layers, words: course.words, shapes }, values);
    });
    if (ended) Object.assign(course, { running: false, ended: true });
    showProbe();
  }
  // Drawing takes time from training: four times a second are enough.
  if (!scores && !lost.length && course.running && performance.now() - course.drawn < 250) return showProgress();
  course.drawn = performance.now();
  showTraining();
}

// Start, pause or go on.
function press() {
  if (!course || course.ended || !worker) startTraining();
  if (!worker) return;
  course.running = !course.running;
  course.since = course.running ? performance.now() : 0;
  worker.postMessage({ go: course.running });
  showTraining();
}

function pressStep() {
  if (!course || course.ended || !worker) startTraining();
  if (!worker) return;
  course.running = false;
  worker.postMessage({ go: false });
  worker.postMessage({ advance: true });
  showTraining();
}

// Forget the training: its setting has changed, or the reader starts again.
function discard() {
  worker?.terminate();
  worker = course = null;
  showTraining();
  showProbe();
}

// ---- What it shows ----------------------------------------------------------------------------------------------

const dashOf = pe => pe === "shaw_cross" ? "9 4" : "none";
const percent = value => value === null ? "–" : value.toFixed(3);

// The mean and its interval, as points [x, mean, low, high]; under the reader's own line.
function ribbon(at, points, pe, top) {
  const clamp = value => Math.min(value, top), edge = [...points.map(([x, , low]) => [x, low]), ...points.map(([x, , , high]) => [x, high]).reverse()];
  svg("polygon", at.chart, { points: edge.map(([x, y]) => `${at.x(x).toFixed(1)},${at.y(clamp(y)).toFixed(1)}`).join(" "), fill: COLOURS[pe], opacity: 0.2, class: "ribbon" });
  line(at, points.map(([x, mean]) => [x, clamp(mean)]), { stroke: COLOURS[pe], "stroke-width": 1.5, "stroke-dasharray": "3 4", opacity: 0.8 });
}

function showCharts(setting) {
  const { encodings, steps, longest, pairs } = setting, known = encodings.map(pe => publishedOf(setting, pe).published);
  const ticks = [0, 1, 2, 3, 4, 5].map(n => n * steps / 5), scores = course?.scores ?? [], top = 3;
  for (const id of ["lossChart", "exactChart", "lengthChart"]) $(id).replaceChildren();

  let at = axes($("lossChart"), { x: [0, steps], y: [0, top], ticks: [ticks, [0, 1, 2, 3]], labels: [say("step"), say("loss")] });
  known.forEach((each, m) => each && ribbon(at, each.nll, encodings[m], top));
  encodings.forEach((pe, m) => {
    const losses = (course?.losses ?? []).filter(each => Number.isFinite(each[m + 1])), cut = value => Math.min(value, top);
    line(at, losses.map(each => [each[0], cut(each[m + 1])]), { stroke: COLOURS[pe], "stroke-width": 1, opacity: 0.45 });
    line(at, scores.map(each => [each.step, cut(each.models[m].nll)]), { stroke: COLOURS[pe], "stroke-width": 2.5, "stroke-dasharray": dashOf(pe) });
  });

  at = axes($("exactChart"), { x: [0, steps], y: [0, 1], ticks: [ticks, [0, 0.5, 1]], labels: [say("step"), say("share")] });
  known.forEach((each, m) => each && ribbon(at, each.exact, encodings[m], 1));
  encodings.forEach((pe, m) => {
    const points = scores.map(each => [each.step, each.models[m].exact]);
    line(at, points, { stroke: COLOURS[pe], "stroke-width": 2.5, "stroke-dasharray": dashOf(pe) });
    for (const point of points) mark(at, point, 4, COLOURS[pe], `${named(pe)}, ${point[0]}: ${point[1]}`);
  });

  $("byLength").hidden = Boolean(pairs);
  if (pairs) return;
  at = axes($("lengthChart"), { x: [1, 20], y: [0, 1], ticks: [[1, 5, 10, 15, 20], [0, 0.5, 1]], labels: [say("length"), say("share")] });
  const edge = longest + 0.5;
  svg("rect", at.chart, { x: at.x(edge), y: at.top, width: at.right - at.x(edge), height: at.bottom - at.top, fill: "var(--soft)", opacity: 0.15 });
  known.forEach((each, m) => each && ribbon(at, each.byLength, encodings[m], 1));
  encodings.forEach((pe, m) => {
    const points = (scores.at(-1)?.models[m].byLength ?? []).map((value, n) => [n + 1, value]);
    line(at, points, { stroke: COLOURS[pe], "stroke-width": 2.5, "stroke-dasharray": dashOf(pe) });
    for (const point of points) mark(at, point, 4, COLOURS[pe], `${named(pe)}, ${point[0]}: ${point[1]}`);
  });
}

// Yours beside the package's: the same seed, and all seeds.
function showTable(setting) {
  const box = $("trained"), { encodings, seed } = setting, rows = encodings.map(pe => [pe, publishedOf(setting, pe).published]);
  const last = course?.ended && !course.lost ? course.scores.at(-1) : null;
  box.replaceChildren();
  if (setting.pairs || !rows.some(([, known]) => known)) return;
  make("p", box, say("trainedNote"), { class: "soft" });
  const table = make("table", make("div", box, "", { class: "scroll", tabindex: 0 }), "", { class: "numbers" }), head = make("tr", table);
  const seeds = Object.keys(rows.find(([, known]) => known)[1].trained.values).length;
  for (const text of ["", say("yours", { seed }), say("theirs", { seed }), say("mean", { seeds }), say("range")]) make("th", head, text);
  rows.forEach(([pe, known], m) => {
    const row = make("tr", table), { mean, spread, values } = known?.trained ?? {}, all = Object.values(values ?? {});
    name(make("th", row, "", { scope: "row" }), { pe });
    make("td", row, last ? percent(last.models[m].trained) : "–", { class: "own" });
    make("td", row, percent(values?.[seed] ?? null));
    make("td", row, !known ? "–" : spread === null ? say("equal", { mean: mean.toFixed(3) }) : `${mean.toFixed(3)} ±\u00a0${spread < 0.0005 ? "<0.001" : spread.toFixed(3)}`);
    make("td", row, known ? `${Math.min(...all).toFixed(3)} –\u00a0${Math.max(...all).toFixed(3)}` : "–");
  });
}

// One sentence: who answers how much, who passed 0.9 first, who goes on past the trained length.
function ending({ setting, scores }) {
  const { encodings, longest, pairs, steps } = setting, last = scores.at(-1).models, names = encodings.map(named);
  const held = pairs && pairs.length >= 5, shares = last.map(each => pairs ? each.exact : each.trained);
  const what = pairs ? say(held ? "heldOut" : "ownLines") : say(longest > 3 ? "newTrained" : "oldTrained", { n: longest });
  const passed = encodings.map((_, m) => scores.find(each => each.models[m].exact >= 0.9)?.step ?? Infinity);
  const [one, other] = passed[0] <= passed[1] ? [0, 1] : [1, 0], step = passed[one];
  const first = step === Infinity ? say("firstNone") : passed[0] === passed[1] ? say("firstTie", { step })
    : passed[other] === Infinity ? say("firstOne", { one: names[one], step }) : say("firstBoth", { one: names[one], other: names[other], step, later: passed[other] });
  const both = shares => ({ pe: names[0], share: percent(shares[0]), pe2: names[1], share2: percent(shares[1]) });
  const beyond = pairs ? "" : say("beyond", both(last.map(each => each.beyond)));
  // On a task of order the model without positions stays behind for one reason, and only then is it named.
  const blind = encodings.indexOf("none"), needed = !pairs && setting.task !== "sort" && blind >= 0 && shares[1 - blind] > 0.5 + shares[blind];
  return say("ending", { steps, what, first, beyond, ...both(shares) }) + (needed ? say("needed") : "");
}

function showProgress() {
  const { step, seconds, setting } = course ?? {};
  $("progress").textContent = course ? say("at", { step, steps: setting.steps, seconds: seconds.toFixed(1) }) : "";
}

function showTraining() {
  const { setting: given, problem } = settingOf(), setting = course?.setting ?? given, { running, ended } = course ?? {};
  $("press").textContent = say(!worker || ended ? "start" : running ? "pause" : "goOn");
  $("press").disabled = $("oneStep").disabled = Boolean(problem);
  $("again").disabled = !course;
  $("own").hidden = state.learn !== "own";
  showProgress();
  const wrong = problem ?? course?.problem();
  $("seen").textContent = wrong || (ended ? ending(course) : "");
  $("seen").classList.toggle("problem", Boolean(wrong));
  $("charts").hidden = !setting;
  $("publishedNote").textContent = $("command").textContent = "";
  if (!setting) return $("trained").replaceChildren();
  const whys = setting.encodings.map(pe => publishedOf(setting, pe).why), { seed } = setting, own = setting.pairs;
  const seeds = PUBLISHED[state.size]?.[setting.task]?.[setting.encodings[whys.indexOf("")]]?.trained.values ?? {};
  $("publishedNote").textContent = whys.every(Boolean) ? say("notPublished", { why: whys[0] })
    : say("isPublished", { study: state.size, seed }) + whys.filter(Boolean).map(why => " " + say("notPublished", { why })).join("");
  if (!own) $("command").textContent = say("command", { command: commandOf(setting) });
  const held = own ? Math.floor(own.length / 5) : 500;
  $("exactNote").textContent = say(!own ? "exactNote" : held ? "ownExactNote" : "fewExactNote", { count: held });
  const legend = $("legend");
  legend.replaceChildren();
  for (const pe of setting.encodings) name(legend, { pe });
  const first = whys.indexOf("");
  if (first >= 0) make("span", legend, say("band", { seeds: Object.keys(seeds).length }), { class: "soft" });
  showCharts(setting);
  showTable(setting);
}

const commandOf = ({ task, encodings, seed, rate, longest }) => {
  const study = STUDIES[state.size], more = [longest !== study.longest ? ` task.max_length=${longest}` : "", rate !== study.rate ? ` trainer.lr=${rate}` : ""];
  return `python scripts/train.py study=${state.size} task=${task} pe=${encodings[0]} seed=${seed}${more.join("")}`;
};

// Both models on the reader's own input: the answers, and where every step of the answer looks at the source.
function showProbe() {
  const box = $("probed"), own = state.learn === "own", models = course?.models ?? [];
  box.replaceChildren();
  if (!models.length) return make("p", box, say("notYet", { every: STUDIES[state.size].every }), { class: "soft" });
  const all = own ? cut(state.probe) : typed(state.probe);
  const inputs = own ? course.words.slice(4) : Array.from({ length: 10 }, (_, n) => String(n + 1));
  const unknown = all.filter(word => !inputs.includes(word)), words = all.filter(word => inputs.includes(word)).slice(0, MOST);
  if (unknown.length) make("p", box, say("unknown", { words: unknown.join(" ") }), { class: "problem" });
  if (!words.length) return make("p", box, say(own ? "emptyOwn" : "empty"), { class: "problem" });
  const wanted = own ? course.setting.pairs.find(([source]) => source.join(" ") === words.join(" "))?.[1] : RIGHT[state.learn](words);
  if (wanted) {
    const row = make("p", box, say("wanted") + " ");
    symbols(row, wanted);
  }
  // A model that has not learned to end is cut off.
  const most = 3 + (own ? Math.max(...course.setting.pairs.map(([, target]) => target.length)) : words.length);
  models.forEach(model => {
    const around = make("div", box), answer = model.answer(words, most), seen = [];
    const row = make("p", around);
    name(row, model);
    symbols(row, answer, wanted ?? answer);
    if (answer.length === most) make("span", row, " …");
    model.decode([BOS, ...answer.map(word => model.ids.get(word))], model.encode(model.source(words)), seen);
    const { heads } = seen.filter(each => each.name.endsWith("cross_attention")).at(-1);
    const maps = make("div", make("div", around, "", { class: "scroll", tabindex: 0 }), "", { class: "maps" });
    heads.forEach(({ weights }, h) => attentionMap(maps, h, ["BOS", ...answer], [...words, "EOS"], weights, $("probeReading")));
  });
}

function setUpTraining() {
  for (const id of ["learn", "a", "b", "n", "size", "rate", "seed", "pairs", "alphabet"]) {
    $(id).addEventListener("input", () => {
      const old = state[id], value = state[id] = $(id).value;
      if (id === "a" && value === state.b) state.b = old; // two different encodings
      if (id === "b" && value === state.a) state.a = old;
      if (id === "size" && state.rate === String(STUDIES[old].rate)) state.rate = String(STUDIES[value].rate);
      if (id === "learn") state.probe = value === "own" ? "" : DEFAULTS.probe;
      discard();
      labelTraining();
      keepAddress();
    });
  }
  $("probe").addEventListener("input", () => {
    state.probe = $("probe").value;
    showProbe();
    keepAddress();
  });
  $("press").addEventListener("click", press);
  $("oneStep").addEventListener("click", pressStep);
  $("again").addEventListener("click", discard);
  $("toTraining").addEventListener("click", () => $("training").scrollIntoView({ behavior: "smooth" }));
  $("toAsking").addEventListener("click", () => scrollTo({ top: 0, behavior: "smooth" }));
  if (asked.view === "train") setTimeout(() => $("training").scrollIntoView());
}

// The form in the reader's language, with the values of the state.
function labelTraining() {
  const options = (id, values, label) => $(id).replaceChildren(...values.map(value => new Option(label(value), value, false, value === state[id])));
  options("learn", CHOICES.learn, say);
  options("a", LEARNERS, named);
  options("b", LEARNERS, named);
  options("size", CHOICES.size, value => say(`${value}Size`));
  options("alphabet", CHOICES.alphabet, say);
  for (const id of ["n", "rate", "seed", "pairs", "probe"]) if ($(id).value !== state[id]) $(id).value = state[id];
  $("upTo").textContent = say("upTo", { n: state.n });
  for (const [id, word] of [["pairs", "ownLabel"], ["probe", "probeLabel"]]) $(id).setAttribute("aria-label", say(word, LIMITS));
  $("pairs").placeholder = say("ownLabel", LIMITS);
  $("link").href = "#" + new URLSearchParams({ ...addressed(), view: "train" });
  showTraining();
  showProbe();
}
