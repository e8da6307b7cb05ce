// State, toolbar, search, legend, tables and colours.

const byId = (id) => document.getElementById(id);
const sides = {before: decodeSide("before"), after: decodeSide("after")};
const WIDE = 1180;  // pixels of a window that shows both graphs

const state = {
  side: sides.after, selected: null, colours: "format", highlight: null,
  other: () => (state.side === sides.after ? sides.before : sides.after),
  view: () => views[state.side.name],

  // Selects an item of either graph; the other graph shows its counterpart.
  select(item) {
    if (item) state.side = sideOf(item);
    state.selected = item;
    const mate = mateOf(item);
    if (mate && views[sideOf(mate).name].isVisible) showItem(mate);
    markAll();
    showDetails(item, state);
  },

  toggle(group) {
    setOpen(group, !group.isOpen);
    state.side = sideOf(group);
    state.view().redrawAround(group);
    showDetails(state.selected, state);
  },

  goTo(item) {
    const name = sideOf(item).name;
    if (!views[name].isVisible) show(name);
    showItem(item);
    state.select(item);
  },
};

const views = {};
for (const name of ["before", "after"]) {
  if (sides[name]) views[name] = new View(byId(name), sides[name]);
}

function sideOf(item) {
  return sides[pathTo(item)[0].side];
}

// The node of the other graph with the same op; null if there is none.
function mateOf(item) {
  const other = item && !item.isGroup && item.mate >= 0 ? sides[sideOf(item) === sides.after ? "before" : "after"] : null;
  return other ? other.nodes[item.mate] : null;
}

function showItem(item) {
  const view = views[sideOf(item).name];
  reveal(item);
  view.draw();
  view.centreOn(item);
}

function markAll() {
  for (const view of Object.values(views)) if (view.isVisible) view.mark();
}

// Shows one graph, or both.
function show(which) {
  for (const [name, view] of Object.entries(views)) {
    view.pane.hidden = which !== "both" && which !== name;
    if (view.isVisible && which !== "both") state.side = view.side;
  }
  for (const button of document.querySelectorAll("[data-show]")) button.setAttribute("aria-pressed", String(button.dataset.show === which));
  for (const view of Object.values(views)) {
    if (!view.isVisible) continue;
    view.isDrawn = false;
    view.draw();
  }
  const {selected} = state, mate = mateOf(selected);
  if (selected) state.select(views[sideOf(selected).name].isVisible ? selected : mate);
  if (state.selected) state.view().centreOn(state.selected);
  if (!state.selected) showDetails(null, state);
}

for (const button of document.querySelectorAll("[data-show]")) button.addEventListener("click", () => show(button.dataset.show));
const visibleViews = () => Object.values(views).filter((view) => view.isVisible);

// --- toolbar ---------------------------------------------------------------------------------------------------

const EXPAND_UP_TO = 1200;  // ops
const setAll = (isOpen) => {
  for (const view of visibleViews()) {
    for (const group of groupsIn(view.side.root)) setOpen(group, isOpen);
    view.side.root.layout = null;
    view.draw();
    view.fit(isOpen ? 0 : FIRST_SCALE);
  }
  showDetails(state.selected, state);
};
const fitAll = () => visibleViews().forEach((view) => view.fit(0));
const zoomAll = (factor) => visibleViews().forEach((view) => view.zoomBy(factor));
byId("expand").addEventListener("click", () => setAll(true));
byId("collapse").addEventListener("click", () => setAll(false));
byId("fit").addEventListener("click", fitAll);
byId("larger").addEventListener("click", () => zoomAll(1.3));
byId("smaller").addEventListener("click", () => zoomAll(1 / 1.3));
byId("colours").addEventListener("change", (event) => {
  state.colours = event.target.value;
  visibleViews().forEach((view) => view.draw());
});

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { byId("search").focus(); event.preventDefault(); }
  if (event.key === "0") fitAll();
  if (event.key === "+") zoomAll(1.3);
  if (event.key === "-") zoomAll(1 / 1.3);
  if (event.key === "Escape") state.select(null);
});

// --- search ----------------------------------------------------------------------------------------------------

const found = byId("found"), search = byId("search"), MOST = 40;
let hits = [], current = 0;
const LEGEND = {cast: "layout conversions", move: "Transposes that move bytes", view: "metadata-only op"};

function matches(side, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const isFirst = (node) => words.every((word) => `${node.op} ${node.name}`.toLowerCase().includes(word));
  const all = side.nodes.filter((node) => {
    node.words = node.words || [node.op, node.name, node.scope, LEGEND[node.kind] || "", node.format >= 0 ? formats[node.format].name : "",
      ...[...node.inputs, ...node.outputs].flatMap((each) => [each.name, each.type, each.format])].join(" ").toLowerCase();
    return words.every((word) => node.words.includes(word));
  });
  return [...all.filter(isFirst), ...all.filter((node) => !isFirst(node))];
}

function showHits() {
  const query = search.value.trim();
  found.replaceChildren();
  found.hidden = !query;
  if (!query) return;
  hits = matches(state.side, query);
  current = 0;
  hits.slice(0, MOST).forEach((node, index) => {
    const entry = element("li");
    entry.setAttribute("aria-selected", String(index === current));
    entry.append(element("span", `${firstLine(node)}  ${node.name}`), element("span", node.format >= 0 ? formats[node.format].name : node.kind));
    entry.addEventListener("mousedown", (event) => { event.preventDefault(); choose(index); });
    found.append(entry);
  });
  const elsewhere = state.other() ? matches(state.other(), query).length : 0;
  const parts = [hits.length > MOST ? `${hits.length - MOST} more` : hits.length ? "" : "nothing found",
    elsewhere && !hits.length ? `${elsewhere} in the graph ${state.other().name} planning` : ""].filter(Boolean);
  if (parts.length) found.append(element("li", parts.join("; "), "note"));
}

function choose(index) {
  if (!hits[index]) return;
  current = index;
  found.hidden = true;
  state.goTo(hits[index]);
}

function move(step) {
  const entries = [...found.querySelectorAll("li:not(.note)")];
  if (!entries.length) return;
  current = (current + step + entries.length) % entries.length;
  entries.forEach((entry, index) => entry.setAttribute("aria-selected", String(index === current)));
  entries[current].scrollIntoView({block: "nearest"});
}

search.addEventListener("input", showHits);
search.addEventListener("focus", showHits);
search.addEventListener("blur", () => { found.hidden = true; });
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") { move(event.key === "ArrowDown" ? 1 : -1); event.preventDefault(); }
  if (event.key === "Enter") {
    if (!found.hidden) choose(current);
    else if (hits.length) choose((current + 1) % hits.length);
  }
  if (event.key === "Escape") { search.value = ""; showHits(); search.blur(); }
});

// --- legend and tables -----------------------------------------------------------------------------------------

const holds = (item, test) => (item.isGroup ? item.children.some((child) => holds(child, test)) : test(item));

function highlightRow(row) {
  const isOn = row.getAttribute("aria-pressed") === "true";
  for (const each of document.querySelectorAll("#legend tr[tabindex]")) each.setAttribute("aria-pressed", "false");
  state.highlight = null;
  if (!isOn) {
    row.setAttribute("aria-pressed", "true");
    const {format, kind} = row.dataset;
    const test = format !== undefined ? (node) => node.format === Number(format) : (node) => node.kind === kind;
    state.highlight = (item) => holds(item, test);
  }
  markAll();
}

function onChoice(selector, action) {
  for (const row of document.querySelectorAll(selector)) {
    row.addEventListener("click", () => action(row));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") action(row); });
  }
}

onChoice("#legend tr[tabindex]", highlightRow);
onChoice("#remaining tr[data-node]", (row) => {
  state.goTo(sides.after.nodes[Number(row.dataset.node)]);
  byId("canvas").scrollIntoView({block: "center", behavior: "smooth"});
});

// --- colours ---------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];
const store = {
  get: () => { try { return localStorage.getItem("layoutopt-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("layoutopt-theme", value); } catch { /* a file without storage */ } },
};

function applyTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = {auto: "Colours: system", light: "Colours: light", dark: "Colours: dark"}[theme];
}

let theme = THEMES.includes(store.get()) ? store.get() : "auto";
applyTheme(theme);
byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  store.set(theme);
  applyTheme(theme);
});

// --- first picture ---------------------------------------------------------------------------------------------

const opsOf = (side) => (side ? side.nodes.length : 0);
if (Math.max(opsOf(sides.after), opsOf(sides.before)) > EXPAND_UP_TO) {
  byId("expand").disabled = true;
  byId("expand").title = `Only for models of up to ${EXPAND_UP_TO} ops: expand single groups`;
}
show(sides.before && window.innerWidth >= WIDE ? "both" : "after");
document.documentElement.dataset.ready = String(Math.round(performance.now()));
