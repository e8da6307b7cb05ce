// Layered layout. Each open group is laid out by itself, so that opening a group moves only the groups around it.

const NODE = {width: 172, height: 40}, SMALL = {width: 128, height: 26}, GROUP = {width: 244, height: 52};
const HEADER = 30, PORT = 6, MARGIN = 14;
const FIRST_SCALE = 0.85;  // the smallest scale of the first picture
const SIMPLEX_UP_TO = 120;  // children, for the slower and better ranking

function sizeOf(item) {
  if (!item.isGroup) {
    if (item.kind === "view") return {...SMALL};
    return item.kind === "cast" ? {width: 172, height: 26} : {...NODE};
  }
  if (!item.isOpen) return {...GROUP};
  const inner = layoutOf(item);
  return {width: Math.max(inner.width, 200), height: inner.height + HEADER};
}

// The layout of an open group: {width, height, items: [{item, x, y, width, height}], lines: [{points, link}]}, with the
// centres of items relative to the left upper corner below the header.
function layoutOf(group) {
  if (group.layout) return group.layout;
  const graph = new dagre.graphlib.Graph({multigraph: false, compound: false});
  const ranker = group.children.length > SIMPLEX_UP_TO ? "tight-tree" : "network-simplex";
  graph.setGraph({rankdir: "TB", nodesep: 20, ranksep: 24, edgesep: 12, marginx: MARGIN, marginy: 12, ranker});
  graph.setDefaultEdgeLabel(() => ({}));
  const ids = new Map();
  group.children.forEach((item, index) => {
    ids.set(item, String(index));
    graph.setNode(String(index), sizeOf(item));
  });
  const isRoot = !group.parent;
  if (!isRoot) addPorts(group, graph, ids);
  const links = [...group.links.values()].flatMap((row) => [...row.values()]);
  for (const link of links) graph.setEdge(ids.get(link.source), ids.get(link.target), {link, weight: link.edges.length > 1 ? 2 : 1});
  dagre.layout(graph);
  const at = (id) => graph.node(id);
  const items = group.children.map((item) => ({item, ...box(at(ids.get(item)))}));
  const lines = graph.edges().map((edge) => lineOf(graph.edge(edge), edge, at));
  const ports = ["entry", "exit"].filter((id) => graph.hasNode(id)).map((id) => ({id, x: at(id).x, y: at(id).y}));
  const middle = (id) => (graph.hasNode(id) ? at(id).x : null);
  const {width, height} = graph.graph();
  return (group.layout = {width, height, items, lines, ports, entry: middle("entry"), exit: middle("exit")});
}

function addPorts(group, graph, ids) {
  for (const [id, ends] of [["entry", group.reads], ["exit", group.writes]]) {
    if (!ends.size) continue;
    graph.setNode(id, {width: PORT, height: PORT});
    for (const item of ends) {
      if (id === "entry") graph.setEdge(id, ids.get(item), {link: null});
      else graph.setEdge(ids.get(item), id, {link: null});
    }
  }
}

function box({x, y, width, height}) {
  return {x, y, width, height};
}

// Lines leave and reach open groups at their ports.
function lineOf(label, edge, at) {
  const points = label.points.map(({x, y}) => [x, y]);
  const source = label.link && label.link.source, target = label.link && label.link.target;
  if (source && source.isOpen && source.isGroup && source.layout && source.layout.exit !== null) {
    const corner = at(edge.v);
    points[0] = [corner.x - corner.width / 2 + shiftOf(source, corner) + source.layout.exit, corner.y + corner.height / 2];
  }
  if (target && target.isOpen && target.isGroup && target.layout && target.layout.entry !== null) {
    const corner = at(edge.w);
    points[points.length - 1] = [corner.x - corner.width / 2 + shiftOf(target, corner) + target.layout.entry, corner.y - corner.height / 2];
  }
  return {points, link: label.link, isExit: edge.w === "exit"};
}

// Small contents are centred in the width of the group.
function shiftOf(group, corner) {
  return (corner.width - group.layout.width) / 2;
}

// All visible items with absolute centres, groups before their contents.
function placed(root) {
  const found = [];
  const walk = (group, left, top) => {
    for (const each of layoutOf(group).items) {
      const x = left + each.x, y = top + each.y;
      found.push({item: each.item, x, y, width: each.width, height: each.height});
      if (each.item.isGroup && each.item.isOpen) {
        walk(each.item, x - each.width / 2 + shiftOf(each.item, each), y - each.height / 2 + HEADER);
      }
    }
  };
  walk(root, 0, 0);
  return found;
}
