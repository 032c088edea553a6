// Elements made of data. Text goes in as text only: a name is never read as markup.

export function element(tag, { text, children = [], ...attributes } = {}) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) set(made, name, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

export function set(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Keeps one child for each item, after the `first` ones that are there: `make` makes it, `update` changes what differs,
// in the items' order.
export function keep(parent, items, key, make, update, first = 0) {
  const kept = (parent.kept ??= new Map());
  const now = new Map();
  const times = new Map();
  items.forEach((item, place) => {
    const own = `${key(item)}`;
    const before = times.get(own) ?? 0;
    times.set(own, before + 1);
    const name = `${own}\n${before}`; // a key that stands again is told apart by how often it stood before
    const child = kept.get(name) ?? make(item);
    now.set(name, child);
    update(child, item);
    const there = parent.children[place + first];
    if (there !== child) parent.insertBefore(child, there ?? null);
  });
  for (const [name, child] of kept) if (!now.has(name)) child.remove();
  parent.kept = now;
}
