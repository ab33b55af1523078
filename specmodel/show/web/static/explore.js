"use strict";
// Without this script the page works by its forms and links; with it only the answer is redrawn.
const form = document.getElementById("asked");
const side = document.querySelector(".side");
const answer = document.getElementById("answer");
const ENDED = "The server does not answer: it has ended, or cannot be reached.";
let asking = null;
let moved = null;

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

const values = () => Object.fromEntries(new FormData(form));

function query() {
  const fields = Object.entries(values()).filter(([, value]) => value);
  const rate = form.elements.acceptance.value === "rate";
  return new URLSearchParams(fields.filter(([name]) => rate || name !== "acceptance_rate")).toString();
}

async function show({ push }) {
  const search = query();
  history[push ? "pushState" : "replaceState"](values(), "", `/?${search}`);
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
    const setting = `${form.elements.target.value} on ${form.elements.hardware.value}`;
    const size = form.elements.batch_size.value;
    document.getElementById("setting").textContent = setting + (size ? `, ${size} at once` : "");
    document.title = `${setting} - specmodel`;
    document.querySelector("nav [aria-current]")?.removeAttribute("aria-current");
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

function copied(button) {
  const text = button.nextElementSibling;
  getSelection().selectAllChildren(text);
  button.textContent = navigator.clipboard ? "Copied" : "Selected"; // a page of http may not copy
  navigator.clipboard?.writeText(text.textContent);
}

document.addEventListener("click", (event) => {
  const copy = event.target.closest(".copy");
  if (copy) copied(copy);
  const curve = event.target.closest("main:has(#terms) #curve + figure");
  if (!curve) return;
  // its axis is logarithmic, from 1 to 512 with a margin, between 0.14 and 0.97
  const box = curve.querySelector("svg").getBoundingClientRect();
  const place = ((event.clientX - box.left) / box.width - 0.14) / 0.83;
  const power = Math.round(place * 9.72 - 0.36);
  form.elements.batch_size.value = 2 ** Math.min(9, Math.max(0, power));
  show({ push: true });
});
const rate = document.getElementById("rate");
rate.addEventListener("input", () => {
  form.elements.acceptance.value = "rate";
  place(rate.value);
});
form.addEventListener("change", (event) => {
  show({ push: event.target !== moved }); // one step back for all moves of a control
  moved = event.target;
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show({ push: true });
  side.open = false; // which it is not where it stands beside the answer
  answer.scrollIntoView({ block: "nearest" });
});
history.replaceState(values(), "");
addEventListener("popstate", ({ state }) => {
  if (!state) return; // a place on this page
  for (const name in state) form.elements[name].value = state[name];
  place(rate.value);
  show({ push: false });
});
