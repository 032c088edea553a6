// Draws the node that the server sends each second.

import { element, keep, say, set } from "./dom.js";
import { History, drawSpark, spark } from "./charts.js";
import { claims, enclaves, nodes, pods, pool, resources, squares, vm } from "./words.js";

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
  for (const name of ["used", "promised", "outside", "free"]) say(card.parts[name], `${name} ${bar.texts[name]}`);
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

function makePod(pod) {
  const body = element("tbody", { class: "pod" });
  const name = link(pod.what, "pod-name");
  const head = element("tr", { children: [element("th", { scope: "rowgroup", children: [name] })] });
  body.name = name;
  body.state = element("td", { children: [element("span", { class: "state" })] });
  body.spark = spark();
  const rest = Array.from({ length: 6 }, () => element("td"));
  head.append(body.state, ...rest, element("td", { children: [body.spark] }));
  body.append(head);
  return body;
}

function makeCell() {
  const row = element("tr");
  row.name = link("", "container");
  row.parts = Array.from({ length: 8 }, (_, place) => element("td", place === 2 || place === 3 || place === 4 || place === 6 ? { class: "number" } : {}));
  row.state = element("span", { class: "state" });
  row.parts[0].append(row.state);
  row.meter = element("meter", { min: 0, max: 1, high: 0.95, optimum: 0 });
  row.parts[5].append(row.meter);
  row.append(element("td", { children: [row.name] }), ...row.parts);
  return row;
}

function drawCell(row, cell) {
  row.name.what = cell.what;
  say(row.name, cell.name);
  set(row.state, "data-state", cell.state);
  say(row.state, cell.state);
  [[1, cell.resource], [2, cell.usage], [3, cell.peak], [4, cell.limit], [6, `${cell.refused}`]].forEach(([place, text]) => say(row.parts[place], text));
  row.meter.value = cell.part;
  row.meter.hidden = cell.part === 0;
  set(row.meter, "aria-label", `${cell.name} uses ${Math.round(100 * cell.part)} % of its limit`);
}

function drawPod(body, pod) {
  say(body.name, pod.name);
  set(body.state.firstChild, "data-state", pod.severity || pod.state);
  say(body.state.firstChild, pod.state);
  drawSpark(body.spark, pod.refused);
  const wanted = pod.cells.length;
  while (body.rows.length - 1 > wanted) body.deleteRow(-1);
  while (body.rows.length - 1 < wanted) body.append(makeCell());
  pod.cells.forEach((cell, place) => drawCell(body.rows[place + 1], cell));
}

function drawPods({ view, memory, states }) {
  const wanted = at("find").value.trim().toLowerCase();
  const every = pods(view, memory, states);
  const found = wanted ? every.filter((pod) => pod.name.toLowerCase().includes(wanted)) : every;
  keep(at("pods"), found.slice(0, MOST_PODS), (pod) => pod.name, makePod, drawPod, 1);
  const more = found.length > MOST_PODS ? `, ${found.length - MOST_PODS} of them not shown` : "";
  say(at("count"), wanted ? `${found.length} of ${every.length} pods${more}` : `${every.length} pods${more}`);
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
    card.append(card.heading, card.sentence, card.claims, card.squares, element("ul", { class: "legend", children:
      ["charged", "granted", "outside", "free"].map((name) => element("li", { class: name, text: name === "outside" ? "outside, draining or withheld" : name })) }));
    return card;
  }, (card, kind) => {
    say(card.heading, kind.key);
    say(card.sentence, kind.sentence);
    lines(card.claims, claims(kind));
    set(card.squares, "aria-label", `Ids of ${kind.key}`);
    keep(card.squares, squares(kind), (one) => one.id, () => element("button", { type: "button", class: "square" }), (square, one) => {
      set(square, "data-state", one.state);
      const said = `${one.id}: ${one.state}${one.owner ? `, ${one.owner}` : ""}`;
      set(square, "title", said);
      set(square, "aria-label", said);
      square.what = one.state === "outside" ? "" : one.owner.split(", ")[0];  // explain knows pods only
      square.said = said;
    });
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
  at("cpus-section").hidden = !cpus?.cpus.length;
  if (!cpus?.cpus.length) return;
  const place = at("cpus");
  if (!place.head) {
    place.head = element("p", { class: "sentence" });
    place.nodes = element("div", { class: "nodes" });
    place.legend = element("ul", { class: "legend", children: ["exclusive", "shared", "isolated", "idle"].map((name) => element("li", { class: name, text: name })) });
    place.pools = element("ul", { class: "note" });
    place.append(place.head, place.nodes, place.legend, place.pools);
  }
  say(place.head, `policy ${cpus.policy}, mode ${cpus.mode}, by ${cpus.driver}; CPUs ${cpus.online} online`);
  keep(place.nodes, nodes(cpus), (node) => `${node.package}.${node.node}`, () => {
    const box = element("div", { class: "node" });
    box.heading = element("h3");
    box.cores = element("div", { class: "cores one-stop", role: "group" });
    box.append(box.heading, box.cores);
    return box;
  }, (box, node) => {
    const where = `Socket ${node.package}, NUMA node ${node.node}`;
    say(box.heading, where);
    set(box.cores, "aria-label", `CPUs of ${where}`);
    keep(box.cores, node.cores, (core) => core[0].cpu, () => element("div", { class: "core" }), (box_, core) =>
      keep(box_, core, (one) => one.cpu, () => element("button", { type: "button", class: "cpu" }), (square, one) => {
        say(square, `${one.cpu}`);
        set(square, "data-kind", one.kind);
        const said = `CPU ${one.cpu}: ${one.kind}${one.who ? `, ${one.who}` : ""}`;
        set(square, "title", said);
        set(square, "aria-label", said);
        square.what = one.kind === "exclusive" ? one.who : "";
        square.said = said;
      }));
  });
  keep(place.pools, cpus.pools, (one) => one.name, () => element("li"), (line, one) => say(line, pool(one)));
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

function took(ns) {
  if (!ns) return "–";
  if (ns < 1e6) return `${(ns / 1e3).toFixed(0)} µs`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(1)} s`;
}

function drawDecisions(decisions) {
  keep(at("decisions").tBodies[0], decisions.slice().reverse(), (one) => one.seq, (one) => {
    const about = link(one.about, "");
    const row = element("tr", { children: [
      element("td", { class: "number", text: `${one.seq}` }), element("td", { text: one.event }), element("td", { children: one.about ? [about] : [] }),
      element("td", { class: "number", text: took(one.took_ns) }), element("td", { class: "number", text: took(one.after_ns) }),
      element("td", { class: "said", children: one.said.map((text) => element("p", { text, title: text })) })] });
    say(about, one.about);
    return row;
  }, () => {});
}

function verdict({ view, fault }) {
  if (fault) return { level: "bad", sentence: "Nodeward does not answer." };
  return view?.verdict ?? { level: "attention", sentence: "The daemon has not answered yet." };
}

function head(view) {
  const runtime = view.runtime && view.runtime !== "off" ? view.runtime : "not connected";
  return [`limits ${view.mode}`, `runtime ${runtime}`, `API server ${view.api}`, `event ${view.seq}`];
}

function draw(told) {
  shown = told;
  const began = performance.now();
  const { sentence, level } = verdict(told);
  say(at("verdict"), sentence);
  set(at("verdict"), "data-level", level);
  document.title = `${level === "good" ? "●" : level === "bad" ? "■" : "▲"} Nodeward`;
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
  keep(at("head"), head(view), (text) => text.split(" ")[0], () => element("li"), say);
  keep(at("bars"), resources(view, told.memory), (bar) => bar.name, makeBar, drawBar);
  drawPods(told);
  drawKeys(view);
  drawEnclaves(view.enclaves);
  drawCpus(view.cpus);
  drawVms(view.sandboxes);
}

// Many squares are one stop of the Tab key; the arrows move among them.
function oneStop(group, chosen = group.querySelector("button[tabindex='0']") ?? group.querySelector("button")) {
  for (const one of group.querySelectorAll("button")) set(one, "tabindex", one === chosen ? 0 : -1);
}

async function explain(what, said) {
  const dialog = at("explain");
  say(at("explain-title"), said || what);
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
  if (target?.what || target?.said) explain(target.what, target.said);
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
at("find").addEventListener("input", () => shown?.view && drawPods(shown));

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
