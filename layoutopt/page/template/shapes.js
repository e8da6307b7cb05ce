// Shapes of nodes and groups, and texts that fit into them.

const ruler = document.createElement("canvas").getContext("2d");
const FAMILY = getComputedStyle(document.body).fontFamily;
const LARGE = {size: 12.5, weight: 600}, FINE = {size: 11, weight: 400};
const fitted = new Map();

function widthOf(content, font) {
  ruler.font = `${font.weight} ${font.size}px ${FAMILY}`;
  return ruler.measureText(content).width;
}

// The text, shortened to a width in pixels.
function fitText(content, width, font) {
  const key = `${Math.round(width)}|${font.size}|${content}`;
  if (!fitted.has(key)) {
    let short = content;
    if (widthOf(content, font) > width) {
      let low = 0, high = content.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (widthOf(`${content.slice(0, middle)}…`, font) <= width) low = middle; else high = middle - 1;
      }
      short = `${content.slice(0, low)}…`;
    }
    fitted.set(key, short);
  }
  return fitted.get(key);
}

function write(shape, content, x, y, room, font, anchor) {
  return shape.append("text").attr("x", x).attr("y", y).attr("class", font === FINE ? "small" : null)
    .attr("text-anchor", anchor || "start").text(fitText(content, room, font));
}

function shapeAt(layer, place, classes) {
  const {item, x, y, width, height} = place;
  return layer.append("g").datum(item).attr("class", classes).attr("transform", `translate(${x - width / 2},${y - height / 2})`)
    .attr("tabindex", 0).on("click", (event) => { event.stopPropagation(); state.select(item); })
    .on("keydown", (event) => { if (event.key === "Enter") state.select(item); });
}

const ROUND = new Set(["cast", "input", "output"]);

function drawNode(layer, place, side) {
  const node = place.item, {width, height} = place;
  const colour = node.format >= 0 ? formats[node.format].colour : "none";
  const shape = shapeAt(layer, place, `node ${node.kind} ${colour}`);
  const isRound = ROUND.has(node.kind);
  shape.append("rect").attr("class", "box").attr("width", width).attr("height", height).attr("rx", isRound ? height / 2 : 6);
  shape.append("title").text(`${node.op}  ${node.name}`);
  shape.style("--h", (side.largest ? Math.sqrt(node.seconds / side.largest) * 75 : 0).toFixed(1));
  const extents = shapeOf((node.outputs[0] || node.inputs[0] || {type: ""}).type);
  if (node.kind === "cast") {
    const change = `${shortFormat(node.inputs[0].format)} → ${shortFormat(node.outputs[0].format)}`;
    write(shape, change, width / 2, 17.5, width - 20, LARGE, "middle");
  } else if (node.kind === "view") {
    write(shape, firstLine(node), width / 2, 17.5, width - 16, LARGE, "middle");
  } else if (isRound) {
    write(shape, node.name, width / 2, 17, width - 28, LARGE, "middle");
    write(shape, extents, width / 2, 31.5, width - 32, FINE, "middle");
  } else {
    shape.append("path").attr("class", "stripe").attr("d", `M6,0H5a5,5 0 0 0 -5,5V${height - 5}a5,5 0 0 0 5,5H6Z`);
    const time = secondsText(node.seconds), format = node.format >= 0 ? formats[node.format].name : "";
    write(shape, firstLine(node), 14, 17, width - 30 - widthOf(time, FINE), LARGE);
    write(shape, time, width - 9, 17, 80, FINE, "end");
    write(shape, [extents, format === CANONICAL ? "" : format].filter(Boolean).join(" · "), 14, 32, width - 22, FINE);
  }
}

function drawGroup(layer, place) {
  const group = place.item, {width, height} = place;
  const shape = shapeAt(layer, place, `group ${group.kind} ${group.isOpen ? "open" : ""}`)
    .on("dblclick", (event) => { event.stopPropagation(); state.toggle(group); });
  shape.append("rect").attr("class", "box").attr("width", width).attr("height", height).attr("rx", 8);
  shape.append("title").text(titleOf(group));
  const time = group.kind === "interface" ? "" : secondsText(group.seconds);
  if (group.isOpen) {
    const about = `${countText(group)} · ${time}`, room = widthOf(about, FINE) + 14;
    const hasRoom = widthOf(titleOf(group), LARGE) + room + 44 < width;
    write(shape, titleOf(group), 32, 20, width - 42 - (hasRoom ? room : 0), LARGE);
    if (hasRoom) write(shape, about, width - 10, 20, room, FINE, "end");
  } else {
    write(shape, titleOf(group), 32, 19.5, width - 42 - (group.moving ? 32 : 0), LARGE);
    write(shape, countText(group), 32, 35, width - 120, FINE);
    write(shape, time, width - 10, 35, 90, FINE, "end");
    if (group.moving) drawAlarm(shape, group, width);
    drawShares(shape, group, width, height);
  }
  drawButton(shape, group);
}

// The number of ops of a group that move data.
function drawAlarm(shape, group, width) {
  const alarm = shape.append("g").attr("transform", `translate(${width - 36},7)`);
  alarm.append("rect").attr("class", "alarm").attr("width", 28).attr("height", 16).attr("rx", 8);
  alarm.append("text").attr("class", "alarmed").attr("x", 14).attr("y", 12).attr("text-anchor", "middle").text(group.moving);
  alarm.append("title").text(`${group.moving} ops that move data`);
}

// A bar with the formats of the ops of a group.
function drawShares(shape, group, width, height) {
  const total = [...group.counts.values()].reduce((sum, count) => sum + count, 0);
  let x = 10;
  for (const [format, count] of [...group.counts].sort((a, b) => a[0] - b[0])) {
    const length = (width - 20) * count / total;
    shape.append("rect").attr("class", `share ${formats[format].colour}`).attr("x", x).attr("y", height - 10).attr("width", length).attr("height", 4);
    x += length;
  }
}

function drawButton(shape, group) {
  const button = shape.append("g").attr("class", "button").attr("transform", "translate(10,8)")
    .on("click", (event) => { event.stopPropagation(); state.toggle(group); });
  button.append("rect").attr("width", 15).attr("height", 15).attr("rx", 4);
  button.append("path").attr("d", group.isOpen ? "M4,7.5H11" : "M4,7.5H11M7.5,4V11");
  button.append("title").text(group.isOpen ? "Collapse" : "Expand");
}

function shortFormat(format) {
  return format.replace(` (${CANONICAL})`, "");
}

function titleOf(group) {
  return group.label || "group";
}

function countText(group) {
  return group.kind === "interface" ? "" : `${group.count} ops`;
}
