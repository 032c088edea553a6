// Words and numbers made of the picture that `nodeward status -o json` gives.

const MOST_SQUARES = 2000;
const MOST_CLAIMS = 100;
const SHORT_ID = 13;
const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

// A value for people, as `nodeward status` writes it: bytes in binary units, exact where that is short, else cut.
export function amount(resource, value) {
  if (value === null || value === undefined) return "-";
  if (resource !== "sgx_epc" || value < 1024) return `${value}`;
  let [exact, step] = [value, 0];
  while (exact % 1024 === 0 && step < UNITS.length - 1) [exact, step] = [exact / 1024, step + 1];
  const text = `${exact}${UNITS[step]}`;
  if (step > 0 && text.length <= "1023Mi".length) return text;
  step = [4, 3, 2, 1].find((power) => value >= 1024 ** power);
  const scaled = value / 1024 ** step;
  const places = scaled < 100 ? 2 : 1;
  return `${(Math.floor(scaled * 10 ** places) / 10 ** places).toFixed(places)}${UNITS[step]}`;
}

export function podName(row) {
  return row.namespace ? `${row.namespace}/${row.pod}` : row.pod;
}

export function resources(view, memory) {
  return Object.entries(view.capacity).map(([name, capacity]) => {
    const [used, promised, free, outside] = [view.usage, view.promised, view.free, view.elsewhere].map((of) => of[name] ?? null);
    const isKey = view.keys.some((kind) => kind.key === name);
    const taken = isKey && free !== null ? Math.max(0, capacity - free - (outside ?? 0)) : takenByPods(view, name);
    const texts = Object.fromEntries(Object.entries({ capacity, used, promised, free, outside }).map(([what, value]) => [what, amount(name, value)]));
    return { name, capacity, used, outside, taken, texts, history: [memory.times, memory.used[name] ?? [], memory.promised[name] ?? []] };
  });
}

// What pods were promised or use, of each whichever is more.
function takenByPods(view, name) {
  const parts = view.rows.filter((row) => row.level === "pod").flatMap((row) => row.resources.filter((one) => one.resource === name));
  return parts.reduce((sum, one) => sum + Math.max(one.wanted ?? 0, one.usage ?? 0), 0);
}

// The pods in the rows' order, each with its cgroups, and what is wrong with it, the most urgent first.
export function pods(view, memory, states) {
  const wrong = {};
  for (const one of view.verdict.conditions)
    if (one.severity !== "info") for (const pod of one.pods) (wrong[pod] ??= []).push(one);
  const found = new Map();
  for (const row of view.rows) {
    const name = podName(row);
    if (!found.has(name)) {
      const codes = [...new Set((wrong[name] ?? []).map((one) => one.code))].join(", ");
      found.set(name, { name, what: name, codes, state: "", severity: wrong[name]?.[0].severity ?? "", cells: [], refused: memory.sparks[name] ?? [] });
    }
    const pod = found.get(name);
    const urgency = (state) => (states.includes(state) ? states.indexOf(state) : states.length);
    pod.state = pod.codes || (pod.state && urgency(pod.state) <= urgency(row.state) ? pod.state : row.state);
    const told = row.resources.filter((one) => one.wanted !== null || one.limit !== null || one.usage || one.peak || one.refusals);
    for (const one of told.length ? told : row.resources.slice(0, 1)) pod.cells.push(cell(row, one));
  }
  return [...found.values()];
}

function cell(row, one) {
  return {
    name: row.level === "pod" ? "pod" : row.container || row.id.slice(0, SHORT_ID),
    what: row.container && row.namespace ? `${podName(row)}/${row.container}` : row.id || podName(row),
    resource: one.resource,
    usage: amount(one.resource, one.usage),
    peak: amount(one.resource, one.peak),
    limit: amount(one.resource, one.limit),
    part: one.usage && one.limit ? Math.min(1, one.usage / one.limit) : 0,
    state: one.state || row.state,
    refused: one.refusals ?? 0,
  };
}

// A square for each key: by its id where Nodeward offers them, else by its holder.
export function squares(kind) {
  if (kind.ids.length) return kind.ids.map((one) => ({ id: one.id, state: one.state, owner: one.pods.join(", ") }));
  const shown = Math.min(kind.capacity, MOST_SQUARES);
  const found = [];
  const add = (count, made) => {
    for (let n = 0; n < count && found.length < shown; n++) found.push(made(n));
  };
  for (const one of kind.holders)
    add(Math.max(one.entitled, one.charged ?? 0), (n) => ({ id: `${kind.key} ${n}`, state: n < (one.charged ?? 0) ? "charged" : "granted", owner: `${one.namespace}/${one.pod}` }));
  for (const one of kind.elsewhere) add(one.amount, () => ({ id: kind.key, state: "outside", owner: one.about || one.cgroup }));
  add(shown - found.length - (kind.free ?? 0), () => ({ id: kind.key, state: "withheld", owner: "" }));  // the reserve, or what is not known to be free
  add(shown, () => ({ id: kind.key, state: "free", owner: "" }));
  return found;
}

// What of a kind of key goes by claim, and each claim.
export function claims(kind) {
  const of = kind.claims;
  if (!of) return [];
  const state = of.registered === false ? `; our driver is not registered${of.driver ? `: ${of.driver}` : ""}` : "";
  const found = [`by claim: ${of.room} more may be given out${state}${of.fault ? `; ${of.fault}` : ""}`];
  for (const why of of.waits) found.push(`the move to ${of.front} waits: ${why}`);
  for (const one of of.rows.slice(0, MOST_CLAIMS)) {
    const how = { waiting: ` waits: ${one.why}`, draining: " has ended and still holds it" }[one.state] ?? "";
    found.push(`claim ${one.claim}: ${one.amount}, ${one.pods.join(" and ") || "no pod"}${how}`);
  }
  if (of.rows.length > MOST_CLAIMS) found.push(`and ${of.rows.length - MOST_CLAIMS} more claims`);
  return found;
}

// What the node gives of SGX: device nodes, and enclave memory by claim.
export function enclaves(of) {
  const found = of.devices.map((one) => {
    const there = one.there ? "is there" : `is missing (${one.why})`;
    const ids = one.standing ? `; ${one.ids} ids of ${one.resource}, plugin ${one.standing}` : "";
    return `${one.path} ${there}${ids}`;
  });
  for (const one of of.memory) {
    const [published, size, promised] = [one.published, one.size, one.promised].map((value) => amount("sgx_epc", value));
    found.push(`${one.device}: claims may have ${published} of ${size}, and have ${promised}`);
  }
  for (const one of of.claims.slice(0, MOST_CLAIMS)) found.push(`claim ${one.claim}: ${amount("sgx_epc", one.amount)}, ${one.pods.join(" and ")}`);
  if (of.claims.length > MOST_CLAIMS) found.push(`and ${of.claims.length - MOST_CLAIMS} more claims`);
  return found;
}

// The CPUs by NUMA node and core.
export function nodes(view) {
  const found = new Map();
  for (const row of view.cpus) {
    const key = `${row.package}.${row.node}`;
    if (!found.has(key)) found.set(key, { package: row.package, node: row.node, cores: new Map() });
    const cores = found.get(key).cores;
    const kind = row.owner ? "exclusive" : row.isolated ? "isolated" : row.pools.length ? "shared" : "idle";
    cores.set(row.core, [...(cores.get(row.core) ?? []), { cpu: row.cpu, kind, who: row.owner || row.pools.join(", ") }]);
  }
  return [...found.values()].sort((one, two) => one.package - two.package || one.node - two.node)
    .map((node) => ({ ...node, cores: [...node.cores.values()] }));
}

export function pool(one) {
  const members = `${one.members.length} container${one.members.length === 1 ? "" : "s"}`;
  return `${one.name}: CPUs ${one.cpus || "none"}, ${members}${one.lent ? `, lent ${one.lent}` : ""}`;
}

export function vm(row) {
  const fit = row.fit;
  const taken = (fit.vm ?? 0) + (fit.overhead ?? 0) + (fit.beside ?? 0);
  const name = row.pod ? `${row.namespace}/${row.pod}` : row.id;
  return {
    name,
    full_name: row.pod && fit.others.length ? `${name} (${row.id.slice(0, SHORT_ID)})` : name,
    fit: fit.fit,
    sentence: fit.sentence,
    part: fit.limit > 0 ? Math.min(1, taken / fit.limit) : 0,
    drifts: row.drifts.map((one) => one.sentence),
  };
}
