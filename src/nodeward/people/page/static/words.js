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

export function resources({ view, memory, taken: of }) {
  return Object.entries(view.capacity).map(([name, capacity]) => {
    const [used, promised, free, outside] = [view.usage, view.promised, view.free, view.elsewhere].map((one) => one[name] ?? null);
    const isKey = view.keys.some((kind) => kind.key === name);
    const taken = isKey && free !== null ? Math.max(0, capacity - free - (outside ?? 0)) : of[name] ?? 0;
    const texts = Object.fromEntries(Object.entries({ capacity, used, promised, free, outside }).map(([what, value]) => [what, amount(name, value)]));
    return { name: name === "sgx_epc" ? "EPC" : name, capacity, used, outside, taken, texts, history: [memory.times, memory.used[name] ?? [], memory.promised[name] ?? []] };
  });
}

// The pods in the server's order, each with what was refused to it in the last minute.
export function pods({ pods: rows, memory }) {
  return rows.map((row) => {
    const name = row.namespace ? `${row.namespace}/${row.pod}` : row.pod;
    return { ...row, name, what: name, refused: memory.sparks[name] ?? [] };
  });
}

export const KEY_STATES = {
  charged: "in use by a VM", granted: "given to a pod, not in use yet", outside: "in use outside of the known pods",
  draining: "given back, and still in use", withheld: "kept back, or not known to be free", free: "",
};

// A square for each key: by its id where Nodeward offers them, else by its holder.
export function squares(kind) {
  if (kind.ids.length) {
    return kind.ids.slice(0, MOST_SQUARES).map((one, n) => ({ id: one.id, number: one.id.match(/[0-9]+$/)?.[0] ?? `${n}`, state: one.state, owner: one.pods.join(", ") }));
  }
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
  found.forEach((one, n) => { one.number = `${n}`; one.id = `${kind.key} ${n}`; });
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

export const CPU_KINDS = { reserved: "kept for the system", isolated: "isolated by the kernel", idle: "of nobody" };
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghjklmnopqstuvwxyz";  // as `nodeward cpus` has them
const COLOURS = 8;

export function cpuKind(row) {
  if (row.owner) return "exclusive";
  if (row.isolated) return "isolated";
  return row.pools.length ? (row.pools.every((name) => name === "reserved") ? "reserved" : "shared") : "idle";
}

function age(ms) {
  const seconds = Math.floor(ms / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${seconds} s`;
}

// By the owner's name its letter and colour, by the lowest of its CPUs.
export function owned(view) {
  const found = new Map();
  const holders = new Map(view.holders.map((row) => [`${row.namespace ? `${row.namespace}/` : ""}${row.pod}/${row.container}`, row]));
  for (const row of [...view.cpus].sort((one, two) => one.cpu - two.cpu)) {
    if (!row.owner || found.has(row.owner)) continue;
    const [n, holder] = [found.size, holders.get(row.owner)];
    const letter = LETTERS[n % LETTERS.length] + (n < LETTERS.length ? "" : Math.floor(n / LETTERS.length));
    const since = holder?.for_ms ? ` for ${age(holder.for_ms)}` : "";
    const memory = holder?.memory ? `, memory of node ${holder.memory}` : "";
    const claim = view.claims?.rows.find((one) => `claim ${one.claim}` === row.owner);
    const pods = claim ? `, ${claim.pods.join(" and ") || "no pod"}` : "";
    const beside = holder?.pool ? ` and pool ${holder.pool}` : "";
    found.set(row.owner, { name: row.owner, letter, colour: n % COLOURS, text: `${row.owner}: ${holder?.own || claim?.cpus || row.cpu}${pods}${beside}${since}${memory}` });
  }
  return found;
}

// The CPUs by NUMA node and core.
export function nodes(view, owners) {
  const found = new Map();
  const pool = new Map(view.pools.map((one, n) => [one.name, n % COLOURS]));
  for (const row of view.cpus) {
    const key = `${row.package}.${row.node}`;
    if (!found.has(key)) found.set(key, { package: row.package, node: row.node, cores: new Map(), count: 0 });
    const node = found.get(key);
    node.count += 1;
    const owner = owners.get(row.owner);
    const own = { cpu: row.cpu, kind: cpuKind(row), who: row.owner || row.pools.join(", "), letter: owner?.letter ?? "", colour: owner?.colour, pool: pool.get(row.pools[0]) };
    node.cores.set(row.core, [...(node.cores.get(row.core) ?? []), own]);
  }
  return [...found.values()].sort((one, two) => one.package - two.package || one.node - two.node).map((node) => {
    const used = view.memory_used?.[node.node];
    const inUse = used === undefined ? "" : ` (${amount("sgx_epc", used)} in use)`;
    const memory = view.memory[node.node] ? `, ${amount("sgx_epc", view.memory[node.node])} memory${inUse}` : "";
    return { ...node, heading: `Socket ${node.package}, NUMA node ${node.node}: ${node.count} CPUs${memory}`, cores: [...node.cores.values()] };
  });
}

// What goes by claim: our driver, and each device.
export function sold(view) {
  const of = view.claims;
  if (!of || of.registered === null) return [];
  const state = of.registered ? "" : `; our driver is not registered${of.driver ? `: ${of.driver}` : ""}`;
  const fault = of.fault ? `; no claim is prepared: ${of.fault}` : "";
  const devices = of.devices.map((one) => `device ${one.device}: claims may have ${one.published} of ${one.size} CPUs, and have ${one.promised}`);
  return [`by claim: ${of.rows.length} claim(s)${state}${fault}`, ...devices].map((text) => ({ name: text, text }));
}

export function pools(view) {
  const depths = new Map();
  const isTree = view.pools.some((one) => one.within);
  return view.pools.map((one, n) => {
    depths.set(one.name, one.within ? depths.get(one.within) + 1 : 0);
    const members = `${one.members.length} container${one.members.length === 1 ? "" : "s"}`;
    const free = one.free_m === null || one.free_m === undefined ? "" : `, ${one.free_m} m free`;
    const text = `pool ${one.name}: ${one.cpus || "no CPUs"}, ${members}${one.lent ? `, lent ${one.lent}` : ""}${free}`;
    return { name: `pool ${one.name}`, text, pool: n % COLOURS, depth: isTree ? depths.get(one.name) : null };
  });
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
