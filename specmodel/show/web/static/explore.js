"use strict";
// Without this script the page works by its forms and links; with it only the answer is redrawn.
const form = document.getElementById("asked");
const answer = document.getElementById("answer");
const ENDED = "The server does not answer: it has ended, or cannot be reached.";
let asking = null;
let moved = null;
let cancels = false;

function copyable() {
  if (!navigator.clipboard) return;
  for (const text of answer.querySelectorAll("pre")) {
    const button = document.createElement("button");
    button.textContent = "Copy";
    button.className = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    });
    text.before(button);
  }
}

function range() {
  const found = document.getElementById("published");
  if (!found) return;
  for (const end of ["low", "high"]) rate.parentElement.style.setProperty(`--${end}`, found.dataset[end] || 0);
  document.getElementById("range").textContent = found.dataset.words || "";
  if (form.elements.acceptance.value !== "rate" && found.dataset.middle) place(found.dataset.middle);
}

function place(value) {
  rate.value = value;
  form.querySelector("output").value = Number(value).toFixed(2);
}

function query() {
  const fields = [...new FormData(form)].filter(([, value]) => value);
  const rate = form.elements.acceptance.value === "rate";
  return new URLSearchParams(fields.filter(([name]) => rate || name !== "acceptance_rate")).toString();
}

async function show(search, { push }) {
  history[push ? "pushState" : "replaceState"](null, "", `/?${search}`);
  const before = document.querySelector("#terms ~ figure svg");
  if (asking) asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  answer.setAttribute("aria-busy", "true");
  try {
    const got = await fetch(`/answer?${search}`, { signal });
    const text = await got.text();
    if ((got.headers.get("content-type") || "").startsWith("text/html")) answer.innerHTML = text;
    else answer.textContent = text;
    const verdict = answer.querySelector(".verdict h2 + p");
    document.getElementById("heard").textContent = verdict ? verdict.textContent : ""; // not all of it
    range();
    copyable();
    const setting = `${form.elements.target.value} on ${form.elements.hardware.value}`;
    document.getElementById("setting").textContent = setting;
    document.title = `${setting} - specmodel`;
    const figure = document.querySelector("#terms ~ figure");
    if (figure && before) figure.append(before); // until the new one is there, so that nothing jumps
    answer.removeAttribute("aria-busy");
    if (!figure) return;
    await new Promise((later) => setTimeout(later, 150)); // one who moves on does not wait for it
    figure.innerHTML = await (await fetch(`/waterfall?${search}`, { signal })).text();
  } catch (error) {
    if (error.name === "AbortError") return;
    answer.textContent = ENDED;
    answer.removeAttribute("aria-busy");
  }
}

async function look() {
  let text = "";
  try {
    text = await (await fetch(location)).text();
  } catch {
    answer.textContent = ENDED;
    return;
  }
  if (cancels) return; // to load this page again would end the way to another
  const now = new DOMParser().parseFromString(text, "text/html").getElementById("running");
  if (!now) return location.reload();
  running.querySelector("p").textContent = now.querySelector("p").textContent;
  setTimeout(look, 1500);
}

function fill(search) {
  const fields = new URLSearchParams(search);
  for (const control of form.elements) {
    if (!control.name || control.type === "range") continue;
    control.value = fields.get(control.name) || (control.name === "hardware" ? "h200_sxm" : "");
  }
  if (!fields.get("target")) form.elements.target.value = form.elements.target.defaultValue;
  if (fields.get("acceptance_rate")) place(fields.get("acceptance_rate"));
}

const rate = document.getElementById("rate");
const running = document.getElementById("running");
if (running) {
  setTimeout(look, 1500);
  running.addEventListener("submit", () => { cancels = true; });
} else if (form) {
  copyable();
  rate.addEventListener("input", () => {
    form.elements.acceptance.value = "rate";
    place(rate.value);
  });
  form.addEventListener("change", (event) => {
    show(query(), { push: event.target !== moved }); // one step back for all moves of a control
    moved = event.target;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show(query(), { push: true });
  });
  document.addEventListener("click", (event) => {
    const curve = event.target.closest("main:has(#terms) #curve + figure");
    if (curve) { // its axis is logarithmic, from 1 to 512 with a margin, between 0.14 and 0.97
      const box = curve.querySelector("svg").getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width - 0.14) / 0.83;
      const power = Math.round(place * 9.72 - 0.36);
      form.elements.batch_size.value = 2 ** Math.min(9, Math.max(0, power));
      show(query(), { push: true });
      return;
    }
    const link = event.target.closest("a");
    if (!link || !link.matches("[href^='/?']")) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    fill(link.search);
    show(link.search.slice(1), { push: true }).then(() => {
      const part = link.hash && document.querySelector(link.hash);
      if (part) part.scrollIntoView();
      else answer.focus();
    });
  });
  addEventListener("popstate", () => {
    fill(location.search);
    show(location.search.slice(1), { push: false });
  });
}
