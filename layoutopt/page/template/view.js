// One graph in its pane: the visible nodes and edges, zoom, and a map.

const MAP = {width: 96, height: 200};
const TOP = 30;  // pixels for the title of a pane
const SMALLEST = 0.55;  // scale of the first picture of a wide graph
const curve = d3.line().curve(d3.curveBasis);

class View {
  // pane: the element with the drawing; side: the graph.
  constructor(pane, side) {
    Object.assign(this, {pane, side, places: [], byItem: new Map(), mapScale: 1, isDrawn: false});
    this.svg = d3.select(pane).select("svg.graph");
    this.map = d3.select(pane).select("svg.map");
    this.scene = this.svg.append("g");
    this.zoom = d3.zoom().scaleExtent([0.04, 3]).filter(canZoom).wheelDelta(zoomSpeed).on("zoom", ({transform}) => {
      this.scene.attr("transform", transform);
      this.drawMapView();
    });
    this.svg.on("wheel.scroll", (event) => this.scroll(event), {passive: false});
    this.svg.call(this.zoom).on("dblclick.zoom", null).on("click", () => state.select(null));
    const move = (event) => this.svg.call(this.zoom.translateTo, event.x / this.mapScale, event.y / this.mapScale);
    this.map.call(d3.drag().container(this.map.node()).on("start drag", move));
  }

  // The wheel moves the graph, and the page where the graph ends.
  scroll(event) {
    if (event.ctrlKey || event.metaKey) return;
    const {y, k} = d3.zoomTransform(this.svg.node()), bottom = y + layoutOf(this.side.root).height * k;
    const ends = event.deltaY > 0 ? bottom <= this.size.height : y >= TOP;
    if (ends && !event.deltaX) return;
    event.preventDefault();
    const step = event.deltaMode === 1 ? 18 : 1;
    this.svg.call(this.zoom.translateBy, -event.deltaX * step / k, -event.deltaY * step / k);
  }

  get isVisible() {
    return !this.pane.hidden;
  }

  // Draws the graph; with the first picture, in the first view.
  draw() {
    const {side, scene} = this;
    scene.selectAll("*").remove();
    this.svg.classed("heat", state.colours === "time");
    this.places = placed(side.root);
    this.byItem = new Map(this.places.map((place) => [place.item, place]));
    const lines = scene.append("g"), shapes = scene.append("g");
    for (const place of this.places) {
      if (place.item.isGroup) drawGroup(shapes, place); else drawNode(shapes, place, side);
    }
    this.drawLines(side.root, 0, 0, lines, shapes);
    this.drawMap();
    this.mark();
    if (!this.isDrawn) this.fit(FIRST_SCALE);
    this.isDrawn = true;
  }

  drawLines(group, left, top, below, above) {
    const layer = group.parent ? above : below, layout = layoutOf(group);
    for (const {points, link, isExit} of layout.lines) {
      const edge = link && link.edges[0];
      const path = curve(points.map(([x, y]) => [x + left, y + top]));
      layer.append("path").attr("class", `edge ${edge ? colourOf(edge.source) : ""} ${edge && edge.isBody ? "body" : ""}`)
        .attr("d", path).attr("marker-end", isExit ? null : "url(#arrow)").datum(link);
      if (edge) layer.append("path").attr("class", "reach").attr("d", path).append("title").text(tensorsOf(link));
    }
    for (const port of layout.ports) {
      layer.append("circle").attr("class", "port").attr("cx", left + port.x).attr("cy", top + port.y).attr("r", 3);
    }
    for (const each of layout.items) {
      if (!each.item.isGroup || !each.item.isOpen) continue;
      const x = left + each.x - each.width / 2 + shiftOf(each.item, each), y = top + each.y - each.height / 2 + HEADER;
      this.drawLines(each.item, x, y, below, above);
    }
  }

  // Marks the selected item, its edges, and the items that the legend highlights.
  mark() {
    const {selected, highlight} = state, mate = mateOf(selected);
    this.svg.classed("dimmed", Boolean(highlight));
    this.scene.selectAll(".node, .group").classed("selected", (item) => item === selected).classed("mate", (item) => Boolean(mate) && item === mate)
      .classed("dim", (item) => Boolean(highlight) && !highlight(item));
    this.scene.selectAll("path.edge").classed("near", (link) => Boolean(link && selected) && (link.source === selected || link.target === selected));
  }

  get size() {
    const {width, height} = this.svg.node().getBoundingClientRect();
    return {width: width || 800, height: height || 600};
  }

  place(x, y, scale) {
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(x, y).scale(scale));
  }

  // Shows the whole graph, or its beginning at the scale `least`, or at a smaller one if the graph is wide.
  fit(least) {
    const layout = layoutOf(this.side.root), room = this.size, height = room.height - TOP;
    const whole = Math.min(room.width / layout.width, height / layout.height, 1);
    const scale = Math.max(whole, Math.min(least, Math.max(room.width / layout.width, SMALLEST)));
    const below = scale > whole ? 0 : (height - layout.height * scale) / 2;
    this.place((room.width - layout.width * scale) / 2, TOP + below, scale);
  }

  // Shows an item in the middle, or the beginning of an item that is too high; nothing above or below the graph.
  centreOn(item) {
    const place = this.byItem.get(item), room = this.size;
    if (!place) return;
    const scale = Math.max(d3.zoomTransform(this.svg.node()).k, FIRST_SCALE);
    const above = Math.max((room.height - place.height * scale) / 2, TOP) - (place.y - place.height / 2) * scale;
    const last = Math.min(room.height - layoutOf(this.side.root).height * scale, TOP);
    this.place(room.width / 2 - place.x * scale, Math.min(Math.max(above, last), TOP), scale);
  }

  // Draws again, with the left upper corner of an item where it was on the screen.
  redrawAround(item) {
    const before = this.byItem.get(item);
    this.draw();
    const after = this.byItem.get(item);
    if (!before || !after) return;
    const {x, y, k} = d3.zoomTransform(this.svg.node());
    this.place(x + (before.x - after.x) * k, y + (before.y - before.height / 2 - after.y + after.height / 2) * k, k);
  }

  zoomBy(factor) {
    this.svg.call(this.zoom.scaleBy, factor);
  }

  drawMap() {
    const layout = layoutOf(this.side.root), {map} = this;
    const scale = this.mapScale = Math.min(MAP.width / layout.width, MAP.height / layout.height);
    map.attr("width", Math.max(layout.width * scale, 24)).attr("height", layout.height * scale);
    map.selectAll("*").remove();
    for (const {item, x, y, width, height} of this.places) {
      if (item.isGroup && item.isOpen) continue;
      map.append("rect").attr("x", (x - width / 2) * scale).attr("y", (y - height / 2) * scale).attr("width", width * scale)
        .attr("height", Math.max(1, height * scale)).attr("class", MOVING.has(item.kind) || item.moving ? "moving" : null);
    }
    map.append("rect").attr("class", "window");
    this.drawMapView();
  }

  drawMapView() {
    const view = this.map.select(".window"), scale = this.mapScale;
    if (view.empty()) return;
    const {x, y, k} = d3.zoomTransform(this.svg.node()), room = this.size, layout = layoutOf(this.side.root);
    const isWhole = x >= -1 && y >= -1 && x + layout.width * k <= room.width + 1 && y + layout.height * k <= room.height + 1;
    this.map.style("display", isWhole ? "none" : null);
    view.attr("x", -x / k * scale).attr("y", -y / k * scale).attr("width", room.width / k * scale).attr("height", room.height / k * scale);
  }
}

// Dragging moves; the wheel zooms with Ctrl or Cmd, as a pinch does.
function canZoom(event) {
  return event.type === "wheel" ? event.ctrlKey || event.metaKey : !event.button && !event.ctrlKey;
}

function zoomSpeed(event) {
  return -event.deltaY * (event.deltaMode === 1 ? 0.05 : Math.abs(event.deltaY) < 40 ? 0.012 : 0.003);
}

function colourOf(node) {
  return node.format >= 0 ? formats[node.format].colour : "";
}

// The tensors of a link, for its tooltip.
function tensorsOf(link) {
  const rows = link.edges.filter((edge) => edge.value).map((edge) => [edge.value, edge.type, edge.format].filter(Boolean).join("  "));
  return [...rows.slice(0, 8), ...(rows.length > 8 ? [`${rows.length - 8} more`] : [])].join("\n");
}
