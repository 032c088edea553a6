// Draws the node that the server sends each second.

import { element, keep, say, set } from "./dom.js";
import { History, drawSpark, spark } from "./charts.js";
import { CPU_KINDS, KEY_STATES, claims, cpuKind, enclaves, nodes, owned, pods, pools, resources, sold, squares, vm } from "./words.js";

const MOST_PODS = 2000;

const at = (id) => document.getElementById(id);
let shown = null;

function link(what, classes) {
  const made = element("button", { type: "button", class: `link ${classes}` });
  made.what = what;
  return made;
}

function drawBar(card, bar) {
  const of = (value) => `${Math.min(100, (100 * (value ?? 0)) / Math.max(1, bar.capacity)).toFixed(2)}%`;
  say(card.heading, bar.name);
  say(card.sum, `${bar.texts.used} used of ${bar.texts.capacity}`);
  card.promised.style.width = of(bar.taken);
  card.used.style.width = of((bar.used ?? 0) - (bar.outside ?? 0));
  card.outside.style.width = of(bar.outside);
  card.outside.style.left = of(bar.taken);
  for (const name of ["used", "promised", "outside", "free"]) say(card.parts[name], `${name === "outside" ? "outside of pods" : name} ${bar.texts[name]}`);
  set(card.strip, "aria-label", `${bar.name}: ${bar.texts.used} used, ${bar.texts.promised} promised, ${bar.texts.free} free, ${bar.texts.outside} outside of the known pods, of ${bar.texts.capacity}`);
  card.history.draw(bar.history);
}

function makeBar() {
  const card = element("div");
  card.heading = element("b");
  card.sum = element("span");
  card.promised = element("i", { class: "promised" });
  card.used = element("i", { class: "used" });
  card.outside = element("i", { class: "outside" });
  card.strip = element("div", { class: "bar", role: "img", children: [card.promised, card.used, card.outside] });
  card.parts = Object.fromEntries(["used", "promised", "outside", "free"].map((name) => [name, element("li", { class: name })]));
  const chart = element("div", { class: "chart" });
  card.append(element("div", { class: "bar-head", children: [card.heading, card.sum] }), card.strip,
    element("ul", { class: "legend", children: Object.values(card.parts) }), chart);
  card.history = new History(chart);
  return card;
}

// ---- pods: one row each

let sorted = { by: "", down: false };

function makePod(pod) {
  const row = element("tr");
  row.name = link(pod.what, "pod-name");
  row.append(element("th", { scope: "row", children: [row.name] }));
  row.state = element("td", { "data-column": "State", children: [element("span", { class: "state" })] });
  row.spark = spark();
  row.refused = element("td", { class: "refused", "data-column": "Refused lately", children: [row.spark] });
  row.drawn = new Map();
  row.append(row.state, row.refused);
  return row;
}

function drawPod(row, pod) {
  say(row.name, pod.name);
  set(row.state.firstChild, "data-tone", pod.tone || "good");
  say(row.state.firstChild, pod.state || "–");
  set(row.refused, "hidden", !shown.columns.includes("EPC"));
  set(row.refused, "data-none", !pod.refused.some((count) => count));
  drawSpark(row.spark, pod.refused);
  for (const [name, cell] of row.drawn) if (!shown.columns.includes(name)) { cell.remove(); row.drawn.delete(name); }
  let before = row.firstChild;
  for (const name of shown.columns) {
    let cell = row.drawn.get(name);
    if (!cell) {
      cell = element("td", { "data-column": name, children: [element("span")] });
      cell.meter = element("meter", { min: 0, max: 1, high: 0.95, optimum: 0 });
      cell.append(cell.meter);
      row.drawn.set(name, cell);
    }
    if (before.nextSibling !== cell) before.after(cell);
    before = cell;
    const told = pod.cells[name];
    say(cell.firstChild, told?.text ?? "–");
    set(cell, "data-tone", told?.tone);
    set(cell, "data-none", !told);
    cell.meter.hidden = typeof told?.part !== "number";
    if (cell.meter.hidden) continue;
    cell.meter.value = told.part;
    set(cell.meter, "aria-label", `${name} of ${pod.name}: ${Math.round(100 * told.part)} % of its limit`);
  }
}

// The heads sort by their column: up, down, and as the server has them, the most urgent first.
function drawHeads() {
  const heads = ["Pod", ...shown.columns, "State", ...(shown.columns.includes("EPC") ? ["Refused lately"] : [])];
  keep(at("pods-head"), heads, (name) => name, (name) => {
    const head = element("th", { scope: "col", children: [element("button", { type: "button", class: "link sort", text: name })] });
    head.firstChild.addEventListener("click", () => {
      sorted = sorted.by !== name ? { by: name, down: false } : sorted.down ? { by: "", down: false } : { by: name, down: true };
      drawPods();
    });
    return head;
  }, (head, name) => set(head, "aria-sort", sorted.by === name ? (sorted.down ? "descending" : "ascending") : null));
}

function drawPods() {
  drawHeads();
  const wanted = at("find").value.trim().toLowerCase();
  const every = pods(shown);
  const found = wanted ? every.filter((pod) => pod.name.toLowerCase().includes(wanted) || pod.state.includes(wanted)) : every;
  if (sorted.by) {
    const collator = new Intl.Collator(undefined, { numeric: true });
    found.sort((one, two) => (sorted.down ? -1 : 1) * compared(one, two, sorted.by, collator));
  }
  keep(at("pods").tBodies[0], found.slice(0, MOST_PODS), (pod) => pod.name, makePod, drawPod);
  const more = found.length > MOST_PODS ? `, ${found.length - MOST_PODS} of them not shown` : "";
  say(at("count"), wanted ? `${found.length} of ${every.length} pods${more}` : `${every.length} pods${more}`);
}

function compared(one, two, by, collator) {
  const parts = [one, two].map((pod) => pod.cells[by]?.part ?? -1);
  if (parts[0] !== parts[1]) return parts[0] - parts[1];
  const [left, right] = [one, two].map((pod) => (by === "Pod" ? pod.name : by === "State" ? pod.state : by === "Refused lately" ? `${pod.refused.reduce((sum, n) => sum + n, 0)}` : pod.cells[by]?.text ?? ""));
  return collator.compare(left, right);
}

function drawKeys(view) {
  const kinds = view.keys.filter((kind) => kind.capacity);
  at("keys-section").hidden = kinds.length === 0;
  keep(at("keys"), kinds, (kind) => kind.key, () => {
    const card = element("div");
    card.heading = element("h3");
    card.sentence = element("p", { class: "sentence" });
    card.squares = element("div", { class: "squares one-stop", role: "group" });
    card.claims = element("ul", { class: "note" });
    card.legend = element("ul", { class: "legend" });
    card.append(card.heading, card.sentence, card.claims, card.squares, card.legend);
    return card;
  }, (card, kind) => {
    const every = squares(kind);
    say(card.heading, kind.key);
    say(card.sentence, kind.sentence);
    lines(card.claims, claims(kind));
    set(card.squares, "aria-label", `Ids of ${kind.key}`);
    keep(card.squares, every, (one) => one.id, () => element("button", { type: "button", class: "square" }), (square, one) => {
      say(square, one.number);
      set(square, "data-state", one.state);
      const said = `${one.id}: ${one.state}${one.owner ? `, ${one.owner}` : ""}`;
      set(square, "title", said);
      set(square, "aria-label", said);
      square.what = one.state === "outside" ? "" : one.owner.split(", ")[0];  // explain knows pods only
      square.said = said;
    });
    const counts = new Map();
    for (const one of every) counts.set(one.state, (counts.get(one.state) ?? 0) + 1);
    const more = kind.capacity - every.length;
    keep(card.legend, [...counts], ([state]) => state, ([state]) => element("li", { class: state }), (line, [state, count]) => say(line, `${count} ${state}${KEY_STATES[state] ? `: ${KEY_STATES[state]}` : ""}`));
    set(card.squares, "data-more", more > 0 ? `and ${more} more` : null);
  });
}

function lines(list, texts) {
  list.hidden = texts.length === 0;
  keep(list, texts, (text) => text, () => element("li"), say);
}

function drawEnclaves(of) {
  at("enclaves-section").hidden = !of;
  lines(at("enclaves"), of ? enclaves(of) : []);
}

function drawCpus(cpus) {
  const isAtWork = cpus && (!["", "none", "null"].includes(cpus.policy) || cpus.refused.length > 0);
  at("cpus-section").hidden = !isAtWork || !cpus.cpus.length;
  if (at("cpus-section").hidden) return;
  const place = at("cpus");
  if (!place.head) {
    place.head = element("p", { class: "sentence" });
    place.nodes = element("div", { class: "nodes" });
    place.owners = element("ul", { class: "owners" });
    place.legend = element("ul", { class: "legend" });
    place.append(place.head, place.nodes, place.legend, place.owners);
  }
  const owners = owned(cpus);
  say(place.head, `Policy ${cpus.policy}, ${cpus.mode} by ${cpus.driver}; CPUs ${cpus.online} are online.`);
  keep(place.nodes, nodes(cpus, owners), (node) => `${node.package}.${node.node}`, () => {
    const box = element("div", { class: "node" });
    box.heading = element("h3");
    box.cores = element("div", { class: "cores one-stop", role: "group" });
    box.append(box.heading, box.cores);
    return box;
  }, (box, node) => {
    say(box.heading, node.heading);
    set(box.cores, "aria-label", `CPUs of ${node.heading}`);
    keep(box.cores, node.cores, (core) => core[0].cpu, () => element("div", { class: "core" }), (box_, core) =>
      keep(box_, core, (one) => one.cpu, () => {
        const square = element("button", { type: "button", class: "cpu" });
        square.append(element("b"), element("small"));
        return square;
      }, (square, one) => {
        say(square.firstChild, one.letter);
        say(square.lastChild, `${one.cpu}`);
        set(square, "data-kind", one.kind);
        set(square, "data-owner", one.colour);
        set(square, "data-pool", one.pool);
        const said = `CPU ${one.cpu}: ${one.kind}${one.who ? `, ${one.who}` : ""}`;
        set(square, "title", said);
        set(square, "aria-label", said);
        square.what = one.kind === "exclusive" && !one.who.startsWith("claim ") ? one.who : "";  // explain knows pods only
        square.said = said;
      }));
  });
  const kinds = [...new Set(cpus.cpus.map((row) => cpuKind(row)))].filter((kind) => kind !== "exclusive" && kind !== "shared");
  keep(place.legend, kinds, (kind) => kind, (kind) => element("li", { class: kind, text: CPU_KINDS[kind] }), () => {});
  keep(place.owners, [...owners.values(), ...pools(cpus), ...sold(cpus)], (one) => one.name, () => {
    const line = element("li");
    line.sign = element("span", { class: "cpu sign" });
    line.said = element("span");
    line.append(line.sign, line.said);
    return line;
  }, (line, one) => {
    say(line.sign, one.letter ?? "");
    line.sign.hidden = !one.letter && one.pool === undefined;
    set(line.sign, "data-kind", one.letter ? "exclusive" : "shared");
    set(line.sign, "data-owner", one.colour);
    set(line.sign, "data-pool", one.pool);
    set(line, "data-depth", one.depth);
    say(line.said, one.text);
  });
}

function drawVms(sandboxes) {
  const vms = (sandboxes?.rows ?? []).map(vm);
  at("vms-section").hidden = vms.length === 0;
  keep(at("vms"), vms, (one) => one.full_name, (one) => {
    const row = element("li");
    row.name = link(one.name, "pod-name");
    row.fit = element("span", { class: "state" });
    row.meter = element("meter", { min: 0, max: 1, high: 0.9, optimum: 0 });
    row.sentence = element("p");
    row.drifts = element("p", { class: "remedy" });
    row.append(row.name, " ", row.fit, " ", row.meter, row.sentence, row.drifts);
    return row;
  }, (row, one) => {
    say(row.name, one.full_name);
    say(row.fit, one.fit);
    set(row.fit, "data-state", one.fit === "fits" ? "enforced" : one.fit === "will be killed" || one.fit === "killed" ? "drift" : "stale");
    row.meter.value = one.part;
    row.meter.hidden = one.part === 0;
    set(row.meter, "aria-label", `VM and overhead take ${Math.round(100 * one.part)} % of the pod's memory limit`);
    say(row.sentence, one.sentence);
    say(row.drifts, one.drifts.join(" "));
  });
}

function drawFindings({ findings, doctor }) {
  say(at("doctor-when"), doctor);
  keep(at("findings"), findings, (one) => `${one.code} ${one.where}`, () => {
    const row = element("li");
    row.severity = element("span", { class: "severity" });
    row.what = element("span");
    row.remedy = element("p", { class: "remedy" });
    row.append(element("p", { children: [row.severity, row.what] }), row.remedy);
    return row;
  }, (row, one) => {
    set(row.severity, "data-severity", one.severity);
    say(row.severity, one.severity);
    say(row.what, `${one.code}: ${one.what} [${one.where}]`);
    say(row.remedy, one.remedy);
  });
}

function drawDecisions(decisions) {
  keep(at("decisions").tBodies[0], decisions.slice().reverse(), (one) => one.seq, (one) => {
    const about = link(one.about, "");
    const when = new Date(one.wall_ns / 1e6).toLocaleTimeString([], { hour12: false });
    const row = element("tr", { children: [
      element("td", { class: "number", text: when }), element("td", { children: one.about ? [about] : [] })] });
    row.summary = element("button", { type: "button", class: "link summary" });
    row.append(element("td", { class: "said", children: [row.summary] }));
    say(about, one.about);
    return row;
  }, (row, one) => {
    say(row.summary, one.summary || one.said.join("; "));
    row.summary.lines = [`event ${one.seq} (${one.event}), decided in ${took(one.took_ns)}`, ...one.said];
    row.summary.said = one.summary || one.event;
  });
}

function took(ns) {
  if (ns < 1e6) return `${(ns / 1e3).toFixed(0)} µs`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(1)} s`;
}

function verdict({ view, fault }) {
  if (fault) return { level: "bad", sentence: "Nodeward does not answer." };
  return view?.verdict ?? { level: "attention", sentence: "The daemon has not answered yet." };
}

function head({ view, at_s }) {
  const runtime = view.runtime && view.runtime !== "off" ? view.runtime : "not connected";
  const when = at_s ? new Date(at_s * 1000).toLocaleTimeString([], { hour12: false }) : "";
  return [["node", view.node], ["nodeward", view.version], ["time", when], ["limits", view.mode], ["runtime", runtime], ["API server", view.api]]
    .filter(([, text]) => text);
}

function draw(told) {
  shown = told;
  const began = performance.now();
  const { sentence, level } = verdict(told);
  say(at("verdict"), sentence);
  set(at("verdict"), "data-level", level);
  document.title = `${level === "good" ? "●" : level === "bad" ? "■" : "▲"} ${told.view?.node || "Nodeward"}: ${sentence}`;
  at("fault").hidden = told.fault === "";
  say(at("fault"), told.fault);
  if (told.view) drawNode(told);
  drawFindings(told);
  drawDecisions(told.decisions);
  for (const group of document.querySelectorAll(".one-stop")) oneStop(group);
  document.body.dataset.drawnMs = (performance.now() - began).toFixed(1);
  document.body.dataset.seq = told.view?.seq ?? 0;
}

function drawNode(told) {
  const view = told.view;
  keep(at("head"), head(told), ([name]) => name, () => element("li"), (line, [name, text]) => say(line, `${name} ${text}`));
  keep(at("bars"), resources(told), (bar) => bar.name, makeBar, drawBar);
  drawPods();
  drawKeys(view);
  drawEnclaves(view.enclaves);
  drawCpus(view.cpus);
  drawVms(view.sandboxes);
}

// Many squares are one stop of the Tab key; the arrows move among them.
function oneStop(group, chosen = group.querySelector("button[tabindex='0']") ?? group.querySelector("button")) {
  for (const one of group.querySelectorAll("button")) set(one, "tabindex", one === chosen ? 0 : -1);
}

async function explain(what, said, details) {
  const dialog = at("explain");
  say(at("explain-title"), said || what);
  if (details) {
    at("explain-lines").replaceChildren(...details.map((text) => element("li", { text })));
    if (!dialog.open) dialog.showModal();
    return;
  }
  at("explain-lines").replaceChildren(...(what ? [element("li", { text: "…" })] : []));
  if (!dialog.open) dialog.showModal();
  if (!what) return;
  let lines;
  try {
    const answer = await fetch(`/explain?what=${encodeURIComponent(what)}`);
    const told = await answer.json();
    lines = Array.isArray(told) ? told : [told.error ?? "nothing is known"];
  } catch (error) {
    lines = [`the page's server does not answer: ${error.message}`];
  }
  at("explain-lines").replaceChildren(...lines.map((text) => element("li", { text: `${text}` })));
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("button");
  if (target?.what || target?.said) explain(target.what, target.said, target.lines);
});
document.addEventListener("keydown", (event) => {
  const group = event.target.closest(".one-stop");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!group || !step) return;
  const all = [...group.querySelectorAll("button")];
  const next = all[all.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  oneStop(group, next);
  next.focus();
});
at("find").addEventListener("input", () => shown?.view && drawPods());

// An EventSource does not tell why it was refused.
async function refusal() {
  const asked = new AbortController();
  const answer = await fetch("/events", { signal: asked.signal });
  const why = answer.ok ? "" : await answer.text();
  asked.abort();
  return why;
}

function connect() {
  const events = new EventSource("/events");
  events.onmessage = (message) => draw(JSON.parse(message.data));
  events.onerror = () => {
    at("fault").hidden = false;
    say(at("fault"), "The page’s server does not answer; what is shown is from before. Is `nodeward page` still running?");
    if (events.readyState !== EventSource.CLOSED) return;
    setTimeout(connect, 3000);
    refusal().then((why) => why && say(at("fault"), why), () => {});
  };
}
connect();
