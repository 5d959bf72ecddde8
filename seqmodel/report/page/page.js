/* While a sample plays, a cursor moves through its picture; clicks there play from that point. */
for (const figure of document.querySelectorAll(".sample")) {
  const [time, cursor, audio] = [".time", ".cursor", "audio"].map((part) =>
    figure.querySelector(part),
  );
  const seconds = Number(time.dataset.seconds); /* of the axis that all samples share */

  function follow() {
    cursor.style.left = `${(100 * audio.currentTime) / seconds}%`;
    if (!audio.paused) requestAnimationFrame(follow);
  }

  for (const event of ["play", "seeking"]) audio.addEventListener(event, follow);
  audio.addEventListener("play", () => {
    for (const other of document.querySelectorAll("audio")) if (other !== audio) other.pause();
  });
  time.addEventListener("click", (event) => {
    const box = time.getBoundingClientRect();
    const moment = (seconds * (event.clientX - box.left)) / box.width;
    if (audio.duration < moment) return; /* beyond the end of a shorter sample */
    audio.currentTime = moment;
    audio.play().catch(() => {}); /* the player shows whether a sound cannot be played */
  });
}
