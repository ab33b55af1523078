// What is cut, beyond the page or over another box, by the rectangles of the page.
() => {
  const seen = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 0;
  const all = (words, from) => [...(from || document).querySelectorAll(words)].filter(seen);
  const words = (e) => (e.textContent || e.value || e.name || "").trim().slice(0, 40);
  const told = (e) => `${e.tagName} ${words(e)}`;
  const faults = [], width = innerWidth;
  if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways");
  const boxes = all("h1, h2, p, label, input, select, button, summary, figure, pre, nav a, li, meter")
    .filter((e) => !e.closest(".wide") && !e.classList.contains("skip"));
  for (const e of boxes) {
    const r = e.getBoundingClientRect();
    if (r.left < 0 || r.right > width + 0.5) faults.push(`beyond the page: ${told(e)}`);
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
      faults.push(`cut: ${told(e)}`);
    if (e.placeholder && !e.value) {
      const c = document.createElement("canvas").getContext("2d");
      c.font = getComputedStyle(e).font;
      if (c.measureText(e.placeholder).width > e.clientWidth - 14) faults.push(`cut: ${e.placeholder}`);
    }
  }
  const over = (a, b) => {
    const [r, s] = [a.getBoundingClientRect(), b.getBoundingClientRect()];
    return Math.min(r.right, s.right) - Math.max(r.left, s.left) > 1
      && Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top) > 1;
  };
  const pairs = (list) => list.flatMap((a, i) => list.slice(i + 1).map((b) => [a, b]));
  for (const [a, b] of pairs(boxes))
    if (!a.contains(b) && !b.contains(a) && !(a.closest(".side") && !b.closest(".side")) && over(a, b))
      faults.push(`one over the other: ${told(a)}; ${told(b)}`);
  for (const svg of all("figure svg")) {
    const texts = all("text", svg), r = svg.getBoundingClientRect();
    for (const t of texts) {
      const s = t.getBoundingClientRect();
      if (s.left < r.left - 1 || s.right > r.right + 1 || s.top < r.top - 1 || s.bottom > r.bottom + 1)
        faults.push(`cut in a figure: ${told(t)}`);
    }
    for (const [a, b] of pairs(texts)) if (over(a, b)) faults.push(`in a figure: ${told(a)}; ${told(b)}`);
  }
  return faults;
}
