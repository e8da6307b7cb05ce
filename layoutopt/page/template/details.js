// The panel with the explanation of the selected op or group.

const panel = document.getElementById("details");

function element(tag, content, className) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

function showDetails(item, state) {
  panel.replaceChildren();
  if (!item) showOverview(state);
  else if (item.isGroup) showGroup(item, state);
  else showNode(item, state);
  panel.scrollTop = 0;
}

function pairs(rows) {
  const table = element("table");
  for (const [label, value] of rows.filter(([, value]) => value)) {
    const row = table.insertRow();
    row.append(element("td", label), element("td", value, "number"));
  }
  return table;
}

function share(seconds, state) {
  return state.side.total && seconds ? `${secondsText(seconds)}, ${(100 * seconds / state.side.total).toFixed(1)} %` : secondsText(seconds);
}

function actions(...entries) {
  const box = element("div", undefined, "actions");
  for (const [label, action] of entries.filter(Boolean)) {
    const button = element("button", label);
    button.type = "button";
    button.addEventListener("click", action);
    box.append(button);
  }
  return box;
}

function showOverview(state) {
  const {side} = state, ops = side.nodes.filter((node) => !["input", "output"].includes(node.kind));
  panel.append(element("h3", side.name === "before" ? "The model before planning" : data.sides.before ? "The planned model" : "The model"));
  panel.append(pairs([["ops", String(ops.length)], ["time of all ops", `${secondsText(side.total)}, estimated`]]));
  panel.append(element("p", "Select an op for its formats, time and bytes. A group opens with its button or a double click. Drag and wheel move the graph, Ctrl and wheel zoom, 0 shows all of it, / searches.", "why"));
  const slow = [...ops].sort((a, b) => b.seconds - a.seconds).slice(0, 8).filter((node) => node.seconds);
  if (slow.length) panel.append(element("h4", "Longest estimated times"), linkList(slow, (node) => share(node.seconds, state), state));
}

function linkList(nodes, about, state) {
  const list = element("ul");
  for (const node of nodes) {
    const entry = element("li");
    const button = element("button", `${firstLine(node)}  ${node.name}`, "link");
    button.type = "button";
    button.addEventListener("click", () => state.goTo(node));
    entry.append(button, element("small", about(node)));
    list.append(entry);
  }
  return list;
}

const MEANINGS = {
  view: "Metadata-only: the format absorbs it, so no byte moves.",
  input: "Input of the model.", output: "Output of the model.",
};

function showNode(node, state) {
  panel.append(element("h3", node.kind === "cast" ? "Layout conversion" : node.op));
  panel.append(element("p", node.name, "name"));
  if (node.scope) panel.append(element("p", node.scope, "name"));
  const meaning = node.reason || MEANINGS[node.kind];
  if (meaning) panel.append(element("p", meaning, MOVING.has(node.kind) ? "why moving" : "why"));
  if (!["input", "output"].includes(node.kind)) {
    panel.append(element("h4", "Estimate"));
    const rows = [["time", share(node.seconds, state)], ["bytes read and written", node.bytes ? bytesText(node.bytes) : "0"]];
    panel.append(pairs(node.device ? [["device", node.device], ...rows] : rows));
  }
  if (node.prices) {
    const list = element("ul");
    list.append(...node.prices.map((line) => element("li", line)));
    panel.append(element("h4", "Best other plans, and what would remove it"), list);
  }
  if (node.inputs.length) panel.append(element("h4", "Inputs"), operandList(node.inputs));
  if (node.outputs.length) panel.append(element("h4", "Outputs"), operandList(node.outputs));
  const other = node.mate >= 0 ? state.other().nodes[node.mate] : null;
  if (other && other.op !== "input" && other.op !== "output") {
    panel.append(element("h4", state.side.name === "before" ? "After planning" : "Before planning"));
    panel.append(pairs([["output format", other.format >= 0 ? formats[other.format].name : ""], ["time", secondsText(other.seconds)], ["bytes", bytesText(other.bytes)]]));
  } else if (!other && state.other() && !["input", "output"].includes(node.kind)) {
    const what = state.side.name === "before" ? "Folded, fused or removed: the planned model does not have it." : "Added by planning.";
    panel.append(element("h4", state.side.name === "before" ? "After planning" : "Before planning"), element("p", what));
  }
  panel.append(actions(other && [state.side.name === "before" ? "Show after" : "Show before", () => state.goTo(other)]));
  const near = [["Read from", node.from.map((edge) => edge.source)], ["Read by", node.to.map((edge) => edge.target)]];
  for (const [label, nodes] of near) {
    if (nodes.length) panel.append(element("h4", label), linkList(nodes.slice(0, 12), (each) => each.format >= 0 ? formats[each.format].name : each.kind, state));
  }
}

function operandList(operands) {
  const list = element("ul");
  for (const operand of operands.filter((each) => each.name)) {
    const entry = element("li", operand.name);
    entry.append(element("small", [operand.format, operand.type, operand.isConstant ? "constant" : ""].filter(Boolean).join("  ·  ")));
    list.append(entry);
  }
  return list;
}

const KINDS = {
  graph: "the whole graph", module: "Ops of one module, by the names that the exporter left.",
  body: "A body of the op before it.", interface: "Inputs or outputs of the model.", part: "A part of the graph, cut where few tensors are passed on.",
};

function showGroup(group, state) {
  panel.append(element("h3", titleOf(group)), element("p", KINDS[group.kind], "name"));
  panel.append(element("h4", "Estimate"));
  panel.append(pairs([["ops", String(group.count)], ["time", share(group.seconds, state)], ["bytes read and written", bytesText(group.bytes)]]));
  if (group.counts.size) {
    panel.append(element("h4", "Formats of op outputs"));
    panel.append(pairs([...group.counts].sort((a, b) => b[1] - a[1]).map(([format, count]) => [formats[format].name, String(count)])));
  }
  panel.append(actions([group.isOpen ? "Collapse" : "Expand", () => state.toggle(group)]));
  const moving = movingIn(group);
  if (moving.length) panel.append(element("h4", "Ops that move data"), linkList(moving.slice(0, 40), (node) => node.reason, state));
}

function movingIn(group) {
  return group.children.flatMap((child) => child.isGroup ? movingIn(child) : MOVING.has(child.kind) && child.bytes ? [child] : []);
}
