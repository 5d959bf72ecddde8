/* Charts of the tables below them. Colours and marks are those of the rows; rows with the same name
   form a line. */

const [HEIGHT, LEFT, TOP, BOTTOM, MARK] = [340, 64, 8, 26, 14]; /* pixels */

/* The ends of an axis: around all values, except those above `most` if others are below it. */
function axis(values, log, most = Infinity) {
  const [least, greatest] = [Math.min(...values), Math.max(...values)];
  const shown = least < most ? Math.min(greatest, most) : greatest;
  const [turn, back] = log ? [Math.log, Math.exp] : [(v) => v, (v) => v];
  const [low, high] = [turn(least), turn(shown)];
  const room = (high - low) / 20 || Math.abs(low) / 10 || 1;
  const place = (v) => (turn(v) - low + room) / (high - low + 2 * room);
  return { low: back(low - room), high: back(high + room), place };
}

/* Round numbers on an axis. */
function ticks({ low, high }, log) {
  const powers = Array.from({ length: 40 }, (_, k) => 10 ** (k - 20));
  const within = (all) => all.filter((tick) => tick >= low && tick <= high);
  const round = [[1], [1, 3], [1, 2, 5]].map((few) =>
    within(powers.flatMap((power) => few.map((k) => k * power))));
  const found = log ? round.find((some) => some.length > 2) : undefined;
  if (found) return found;
  const unit = 10 ** Math.floor(Math.log10((high - low) / 5));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((each) => (high - low) / each <= 6);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, k) => (first + k) * step);
}

function written(tick) {
  const small = tick && Math.abs(tick) < 1e-3;
  return small ? tick.toExponential() : Number(tick.toPrecision(9)).toLocaleString("en");
}

/* The lines to draw for the chosen columns: each value is the mean of those up to it, each weighted
   `smooth` times as much as the next. */
function lines(figure, x, columns, smooth) {
  const found = new Map();
  for (const row of figure.querySelectorAll("tbody tr:not([hidden])")) {
    for (const [k, column] of columns.entries()) {
      const [at, height] = [value(row.cells[x]), value(row.cells[column])];
      if (typeof height !== "number") continue;
      const key = `${row.cells[0].textContent} ${column}`;
      const { textContent: mark, attributes } = row.querySelector(".key text");
      if (!found.has(key)) found.set(key, { mark, colour: attributes.fill.value, k, points: [] });
      const best = Boolean(row.cells[column].querySelector("strong"));
      found.get(key).points.push({ at, height, best });
    }
  }
  for (const { points } of found.values()) {
    points.sort((a, b) => a.at - b.at);
    let [sum, weight] = [0, 0];
    for (const point of points) {
      [sum, weight] = [smooth * sum + point.height, smooth * weight + 1];
      point.height = sum / weight;
    }
  }
  return [...found.values()];
}

function draw(figure) {
  const [plot, over, of, log, smooth] = [".plot", ".over", ".of", ".log", ".smooth"].map((part) =>
    figure.querySelector(part));
  const [{ dataset: across }, { dataset: up }] = [over.selectedOptions[0], of.selectedOptions[0]];
  const columns = of.value.split(" ").map(Number);
  const drawn = lines(figure, Number(over.value), columns, Number(smooth.value));
  const points = drawn.flatMap((line) => line.points);
  const [wide, high] = [plot.clientWidth - LEFT - MARK, HEIGHT - TOP - BOTTOM];
  plot.replaceChildren();
  if (!points.length || wide < 0) return;
  const [ats, heights] = ["at", "height"].map((name) => points.map((point) => point[name]));
  const inLog = (values, wanted) => wanted && Math.min(...values) > 0;
  const [logX, logY] = [inLog(ats, log.checked || "log" in across), inLog(heights, log.checked)];
  const [xs, ys] = [axis(ats, logX), axis(heights, logY, logY ? Infinity : up.most)];
  const x = (at) => (wide * xs.place(at)).toFixed(1);
  const y = (height) => (high * (1 - ys.place(height))).toFixed(1);
  const room = Math.ceil((60 * ticks(xs, logX).length) / wide); /* show every so many along x */
  const below = ticks(xs, logX).filter((_, k) => k % room === 0).map((tick) =>
    `<path d="M${x(tick)} 0v${high}"/><text x="${x(tick)}" y="${high + 20}">${written(tick)}</text>`);
  const beside = ticks(ys, logY).map((tick) =>
    `<path d="M0 ${y(tick)}h${wide}"/><text class="left" x="-8" y="${y(tick)}">${written(tick)}</text>`);
  const shapes = drawn.map((line) => {
    const places = line.points.map(({ at, height }) => [x(at), y(height)]);
    const marks = places.filter((_, k) => line.points[k].best || "dots" in up).map(([left, top]) =>
      `<text x="${left}" y="${top}" fill="${line.colour}">${line.mark}</text>`);
    const dashes = line.k ? 'stroke-dasharray="5 3"' : 'stroke-width="1.8"';
    return `<polyline points="${places.join(" ")}" stroke="${line.colour}" ${dashes}/>${marks.join("")}`;
  });
  plot.innerHTML = `<svg viewBox="${-LEFT} ${-TOP} ${plot.clientWidth} ${HEIGHT}" role="img">
    <g class="grid">${below.join("")}${beside.join("")}</g>
    <svg width="${wide}" height="${high}">${shapes.join("")}</svg></svg>`;
  const [what, along] = [of, over].map((select) => select.selectedOptions[0].text);
  plot.firstChild.ariaLabel = `${what} over ${along}, as in the table below`;
}

for (const figure of document.querySelectorAll(".chart")) {
  for (const entry of figure.querySelectorAll(".entry")) {
    entry.addEventListener("click", () => {
      entry.ariaPressed = String(entry.ariaPressed !== "true");
      show(figure.closest("section"));
    });
  }
  figure.querySelector(".options").addEventListener("input", () => draw(figure));
  new ResizeObserver(() => draw(figure)).observe(figure.querySelector(".plot"));
}
