// The data of the page as objects: nodes and groups, and the links between the children of each group.

const data = JSON.parse(document.getElementById("data").textContent);
const text = (index) => data.texts[index];
const formats = data.formats.map(([name, colour]) => ({name: text(name), colour: text(colour)}));
const formatNumbers = new Map(data.formats.map(([name], number) => [name, number]));
const CANONICAL = "canonical";
const MOVING = new Set(["cast", "move"]);

function decodeOperand([name, type, format, isConstant]) {
  return {name: text(name), type: text(type), format: text(format), isConstant: Boolean(isConstant)};
}

function decodeNode([kind, name, op, inputs, outputs, format, seconds, bytes, reason, scope, region, device], mate) {
  return {
    kind: text(kind), name: text(name), op: text(op), format: formatNumbers.get(format) ?? -1, seconds, bytes, reason: text(reason),
    device: text(device), scope: scope.map(text).join("."), inputs: inputs.map(decodeOperand), outputs: outputs.map(decodeOperand), mate, region, parent: null,
  };
}

function decodeGroup([kind, label, children], nodes, parent) {
  const group = {kind: text(kind), label: text(label), parent, isGroup: true, isOpen: false, layout: null, links: new Map(), reads: new Set(), writes: new Set()};
  group.children = children.map((child) => {
    if (Array.isArray(child)) return decodeGroup(child, nodes, group);
    nodes[child].parent = group;
    return nodes[child];
  });
  return sumUp(group);
}

// The totals of a group: ops, seconds, bytes, ops per format, and ops that move data.
function sumUp(group) {
  Object.assign(group, {count: 0, seconds: 0, bytes: 0, moving: 0, counts: new Map()});
  const add = (map, key, count) => map.set(key, (map.get(key) || 0) + count);
  for (const child of group.children) {
    group.count += child.isGroup ? child.count : 1;
    group.seconds += child.seconds;
    group.bytes += child.bytes;
    if (child.isGroup) {
      group.moving += child.moving;
      child.counts.forEach((count, format) => add(group.counts, format, count));
    } else {
      if (MOVING.has(child.kind) && child.bytes) group.moving += 1;
      if (child.format >= 0) add(group.counts, child.format, 1);
    }
  }
  return group;
}

function pathTo(item) {
  const path = [];
  for (let each = item; each; each = each.parent) path.push(each);
  return path.reverse();
}

function addLink(group, source, target, edge) {
  let row = group.links.get(source);
  if (!row) group.links.set(source, row = new Map());
  let link = row.get(target);
  if (!link) row.set(target, link = {source, target, edges: []});
  link.edges.push(edge);
}

// An edge links two children of the innermost group with both ends; groups around one end have a port for it.
function liftEdge(edge, source, target) {
  const from = pathTo(source), to = pathTo(target);
  let depth = 0;
  while (from[depth + 1] && from[depth + 1] === to[depth + 1]) depth += 1;
  if (!from[depth + 1] || !to[depth + 1]) return;
  addLink(from[depth], from[depth + 1], to[depth + 1], edge);
  for (let at = depth + 2; at < from.length; at += 1) from[at - 1].writes.add(from[at]);
  for (let at = depth + 2; at < to.length; at += 1) to[at - 1].reads.add(to[at]);
}

function decodeSide(name) {
  const side = data.sides[name];
  if (!side) return null;
  const nodes = side.nodes.map((row, number) => decodeNode(row, side.mates[number]));
  if (name === "after") Object.entries(data.prices).forEach(([number, lines]) => { nodes[number].prices = lines.map(text); });
  const root = decodeGroup(side.tree, nodes, null);
  root.isOpen = true;
  const edges = side.edges.map(([source, target, value, type, format]) => (
    {source: nodes[source], target: nodes[target], value: text(value), type: text(type), format: text(format)}
  ));
  for (const node of nodes) Object.assign(node, {from: [], to: []});
  for (const edge of edges) {
    edge.source.to.push(edge);
    edge.target.from.push(edge);
    liftEdge(edge, edge.source, edge.target);
  }
  for (const body of groupsIn(root).filter((group) => group.kind === "body")) {
    const inner = body.children.find((child) => !child.isGroup) || firstNode(body);
    const owner = nodes[side.regions[inner.region - 1][0]];
    liftEdge({source: owner, target: inner, value: "", type: "", format: "", isBody: true}, owner, body);
  }
  const largest = nodes.reduce((most, node) => Math.max(most, node.seconds), 0);
  const total = root.seconds;
  openInitially(root);
  root.side = name;
  return {name, nodes, root, largest, total};
}

function firstNode(item) {
  return item.isGroup ? firstNode(item.children[0]) : item;
}

function groupsIn(group) {
  return group.children.filter((child) => child.isGroup).flatMap((child) => [child, ...groupsIn(child)]);
}

const FIRST_VISIBLE = 26;  // children of open groups in the first picture

// Opens groups while few nodes are visible, the group with the most ops first.
function openInitially(root) {
  let visible = root.children.length;
  const closed = root.children.filter((child) => child.isGroup && child.kind !== "interface");
  while (closed.length) {
    closed.sort((a, b) => b.count - a.count);
    const group = closed.find((each) => visible + each.children.length <= FIRST_VISIBLE);
    if (!group) return;
    group.isOpen = true;
    visible += group.children.length;
    closed.splice(closed.indexOf(group), 1, ...group.children.filter((child) => child.isGroup));
  }
}

function reveal(item) {
  for (let group = item.parent; group; group = group.parent) {
    group.isOpen = true;
    group.layout = null;
  }
}

function setOpen(group, isOpen) {
  group.isOpen = isOpen;
  for (let each = group; each; each = each.parent) each.layout = null;
}

function firstLine(node) {
  return node.op.split("::").pop();
}

function shapeOf(type) {
  const match = /\[(.*)\]$/.exec(type);
  return match ? match[1].split(",").join("×") || "scalar" : type;
}

function secondsText(value) {
  if (!value) return "0";
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (value >= scale * 0.9995) return `${digits(value / scale)} ${unit}`;
  }
  return `${digits(value / 1e-9)} ns`;
}

function bytesText(count) {
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= scale * 0.9995) return `${digits(count / scale)} ${unit}`;
  }
  return `${Math.round(count)} B`;
}

function digits(value) {
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}
