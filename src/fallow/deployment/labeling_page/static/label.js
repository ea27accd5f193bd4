"use strict";
// Adds keyboard shortcuts and polls for changes. The page works without this file.

const TYPED = "input:not([type=checkbox], [type=radio], [type=range]), textarea, select";
const EVERY = 5000; // milliseconds between two polls

// Browsers set the focus some time after the page is shown, and annotators may type immediately.
document.querySelector("[autofocus]")?.focus();

function next(group) {
  const answers = [...group.querySelectorAll("input[type=radio]")];
  const at = answers.findIndex((answer) => answer.checked);
  answers[(at + 1) % answers.length].checked = true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches(TYPED)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = event.key === "Backspace" ? "u" : event.key;
  const known = document.querySelector(`[data-key="${CSS.escape(key.length === 1 ? key.toLowerCase() : key)}"]`);
  if (!known) return;
  event.preventDefault();
  if (known.tagName === "FIELDSET") return next(known);
  if (known.tagName !== "DETAILS") return known.click();
  known.open = !known.open;
  const first = known.open && known.querySelector("button");
  (first || known.querySelector("summary")).focus();
});

// Ignore a second click while a form is being sent. The server would count it once in any case.
document.addEventListener("submit", (event) => {
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});

// The back button may show an outdated page.
window.addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

const { live, state, seen, waits } = document.body.dataset;
const texts = JSON.parse(document.body.dataset.texts);

function tell(sentence) {
  const notice = document.getElementById("live");
  if (notice.textContent !== sentence) notice.textContent = sentence;
  notice.hidden = !sentence;
}

function changed(news) {
  if (news.seen !== seen) return texts.elsewhere;
  if (news.state === state) return "";
  return texts[news.state] ?? texts.other;
}

async function look() {
  try {
    const answer = await fetch(live, { headers: { accept: "application/json" } });
    if (!answer.ok || answer.redirected) throw new Error();
    const news = await answer.json();
    if (waits !== undefined && news.waiting) return location.replace("/");
    const summary = document.getElementById("summary");
    const bar = document.getElementById("bar");
    if (summary && summary.textContent !== news.summary) summary.textContent = news.summary;
    if (bar) Object.assign(bar, { max: news.asked || 1, value: news.done });
    tell(waits === undefined ? changed(news) : "");
  } catch {
    tell(texts.stopped);
  }
  return setTimeout(look, EVERY);
}

if (live) setTimeout(look, EVERY);
