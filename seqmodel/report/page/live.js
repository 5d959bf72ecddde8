
/* While runs train, show the page as it is now. Choices, searches and sorting persist unless a run
   or a column is new. */

const EVERY_MS = 2000;
let known = "";

setInterval(async () => {
  const answer = await fetch(location.href).catch(() => null);
  const text = await answer?.text();
  if (!answer?.ok || text === known) return;
  known = text;
  const pages = [document, new DOMParser().parseFromString(text, "text/html")];
  const [outline, fresh] = pages.map((page) =>
    [...page.querySelectorAll("h1, h2, h3, thead, .legend, option")].map((one) => one.textContent));
  const [old, now] = pages.map((page) => [...page.querySelectorAll("tbody, .lead, .note, option")]);
  if (String(outline) !== String(fresh) || old.length !== now.length) return location.reload();
  old.forEach((one, k) => {
    one.replaceChildren(...now[k].childNodes);
    Object.assign(one.dataset, now[k].dataset);
  });
  document.querySelectorAll("table").forEach(sort);
  document.querySelectorAll("section").forEach(show);
}, EVERY_MS);
