"use strict";
// Without this script the page works by its form and links; with it all but the form is redrawn.
const form = document.getElementById("asked");
const rate = document.getElementById("rate");
const answer = document.getElementById("answer");
const DRAWN = ["answer", "published", "scenarios", "setting"];
let asking = null;
let moved = null;

function place(value) {
  rate.value = value;
  form.querySelector("output").value = Number(value).toFixed(2);
}

async function show({ push }) {
  const own = form.elements.acceptance.value === "rate";
  const fields = [...new FormData(form)].filter(([name, value]) => value && (own || name !== "acceptance_rate"));
  const address = `/?${new URLSearchParams(fields)}`;
  history[push ? "pushState" : "replaceState"](true, "", address);
  asking?.abort();
  asking = new AbortController();
  answer.setAttribute("aria-busy", "true");
  try {
    const got = await fetch(address, { signal: asking.signal });
    const page = new DOMParser().parseFromString(await got.text(), "text/html");
    if (!page.getElementById("answer")) throw new Error();
    for (const id of DRAWN) document.getElementById(id).replaceChildren(...page.getElementById(id).childNodes);
    if (!own) place(page.getElementById("rate").value);
    document.title = page.title;
    document.getElementById("heard").textContent = answer.querySelector("h2").textContent; // not all of it
  } catch (error) {
    if (error.name === "AbortError") return;
    answer.textContent = "The server does not answer: it has ended or cannot be reached.";
  }
  answer.removeAttribute("aria-busy");
}

document.addEventListener("click", ({ target }) => {
  if (!target.matches(".copy")) return;
  const text = target.previousElementSibling;
  getSelection().selectAllChildren(text);
  target.textContent = navigator.clipboard ? "Copied" : "Selected"; // a page of http may not copy
  navigator.clipboard?.writeText(text.textContent);
});
rate.addEventListener("input", () => {
  form.elements.acceptance.value = "rate";
  place(rate.value);
});
form.addEventListener("change", ({ target }) => {
  show({ push: target !== moved }); // one step back for all moves of a control
  moved = target;
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show({ push: true });
  document.querySelector(".side").open = false; // which it is not where it stands beside the answer
  answer.scrollIntoView({ block: "nearest" });
});
history.replaceState(true, "");
addEventListener("popstate", ({ state }) => { if (state) location.reload(); }); // else a place on this page
