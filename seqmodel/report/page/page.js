"use strict";

/* A chart shows, above it, the figures of the point nearest to the pointer or chosen by arrow keys.
   The points are the rows of its table, their positions are in data-at: see charts.py. */
function chart(figure) {
  const plot = figure.querySelector(".plot");
  const axes = plot.querySelectorAll(".axes").length;
  const names = [...figure.querySelectorAll("thead th")].map((cell) => cell.textContent);
  const points = [...figure.querySelectorAll("tbody tr")].map((row) => {
    const at = row.dataset.at.split(" ").map((n) => Number(n) / 1000);
    const texts = [...row.cells].map((cell) => cell.textContent);
    return { lefts: at.slice(0, axes), tops: at.slice(axes), texts, row };
  });
  const tip = element("div", "tip");
  const said = element("output", "unseen");
  const spots = points[0].tops.map(() => element("span", "spot"));
  plot.append(...spots);
  figure.querySelector(".y-name").append(tip);
  figure.append(said);
  let chosen = null;

  const axis = () => (figure.querySelector(".choose-time:checked") ? 1 : 0);
  const left = (point) => point.lefts[axis()];

  function show(point) {
    chosen = point;
    for (const part of [tip, ...spots]) part.hidden = !point;
    if (!point) return;
    const colour = point.row.className;
    spots.forEach((spot, k) => {
      spot.className = `spot ${colour}`;
      spot.style.left = `${100 * left(point)}%`;
      spot.style.top = `${100 * point.tops[k]}%`;
    });
    const list = element("dl");
    point.texts.slice(1).forEach((text, k) => {
      list.append(element("dt", "", names[k + 1]), element("dd", "", text));
    });
    tip.className = `tip ${colour}`;
    tip.replaceChildren(element("b", "", point.texts[0]), list);
  }

  function nearest(candidates, x, y) {
    const far = (point) =>
      Math.hypot((left(point) - x) * plot.clientWidth, (point.tops[0] - y) * plot.clientHeight);
    return candidates.reduce((best, point) => (far(point) < far(best) ? point : best));
  }

  function point(event) {
    const box = plot.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width;
    show(nearest(points, x, (event.clientY - box.top) / box.height));
  }

  function step(key) {
    if (key === "Home" || key === "End") return points.at(key === "Home" ? 0 : -1);
    const along = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (along) return points[points.indexOf(chosen) + along];
    const series = [...new Set(points.map((each) => each.row.dataset.series))];
    const other = series.indexOf(chosen.row.dataset.series) + (key === "ArrowUp" ? -1 : 1);
    const others = points.filter((each) => each.row.dataset.series === series[other]);
    return others.length ? nearest(others, left(chosen), chosen.tops[0]) : null;
  }

  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-roledescription", "chart");
  plot.ariaLabel += " Use the arrow keys to move between points.";
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(null));
  plot.addEventListener("focus", () => chosen || show(points[0]));
  plot.addEventListener("blur", () => show(null));
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return show(null);
    if (!/^(Arrow|Home|End)/.test(event.key)) return undefined;
    event.preventDefault();
    show(chosen ? step(event.key) || chosen : points[0]);
    said.value = chosen.texts.map((text, k) => (k ? `${names[k]} ${text}` : text)).join(", ");
    return undefined;
  });
  figure.addEventListener("change", () => show(chosen));
  show(null);
}

/* A sample plays when its button or its picture is clicked; a cursor shows the position. */
function sample(figure) {
  const [button, seek, cursor, audio] = ["button", "input", ".cursor", "audio"].map((part) =>
    figure.querySelector(part),
  );
  const name = audio.ariaLabel;
  const seconds = Number(seek.max);
  const shown = Number(seek.parentElement.dataset.seconds); /* of the axis that all samples share */

  function follow() {
    const at = Math.min(audio.currentTime, seconds);
    cursor.style.left = `${(100 * at) / shown}%`;
    seek.value = String(at);
    seek.setAttribute("aria-valuetext", `${at.toFixed(1)} of ${seconds.toFixed(1)} seconds`);
    if (!audio.paused) requestAnimationFrame(follow);
  }

  function play() {
    cursor.hidden = false;
    audio.play().catch((error) => {
      if (error.name === "AbortError") return; /* paused before it began */
      if (!figure.querySelector(".note"))
        figure.append(element("p", "note", "This browser cannot play the sound."));
    });
  }

  function state() {
    figure.classList.toggle("playing", !audio.paused);
    button.ariaLabel = `${audio.paused ? "Play" : "Pause"} ${name}`;
    follow();
  }

  seek.style.width = `${(100 * seconds) / shown}%`;
  audio.controls = false;
  button.hidden = seek.hidden = false;
  button.addEventListener("click", () => (audio.paused ? play() : audio.pause()));
  seek.addEventListener("input", () => {
    audio.currentTime = Number(seek.value);
    cursor.hidden = false;
    follow();
  });
  seek.addEventListener("pointerup", play);
  for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, state);
  audio.addEventListener("play", () => {
    for (const other of document.querySelectorAll("audio")) if (other !== audio) other.pause();
  });
}

function element(name, kind = "", text = "") {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  return made;
}

document.querySelectorAll(".chart").forEach(chart);
document.querySelectorAll(".sample").forEach(sample);
