"use strict";
// Adds hot keys and looks for news; the page works without it.

const TYPED = "input:not([type=checkbox]), textarea, select";
const EVERY = 5000; // milliseconds between two looks

// Browsers give the focus some time after the page is shown; a person may type at once.
document.querySelector("[autofocus]")?.focus();

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
  if (known.tagName === "DETAILS") known.open = !known.open;
  else known.click();
});

// A second click while the first is on its way; the server would count it once in any case.
document.addEventListener("submit", (event) => {
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});

// The back button may show a page that is out of date.
window.addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

const { live, state, seen, waits } = document.body.dataset;

function tell(sentence) {
  const notice = document.getElementById("live");
  if (notice.textContent !== sentence) notice.textContent = sentence;
  notice.hidden = !sentence;
}

function changed(news) {
  if (news.seen !== seen) return "You have answered this sample elsewhere. Load this page again to see it.";
  if (news.state === state) return "";
  if (news.state === "expired") return "The cycle was closed: this question has expired, and an answer is not kept any more.";
  if (news.state === "withdrawn") return "This sample was withdrawn meanwhile.";
  return "Somebody else has answered this sample meanwhile. You may still say what you think.";
}

async function look() {
  try {
    const answer = await fetch(live, { headers: { accept: "application/json" } });
    if (!answer.ok || answer.redirected) throw new Error();
    const news = await answer.json();
    if (waits !== undefined && news.waiting) return location.replace("/");
    const said = document.getElementById("said");
    const bar = document.getElementById("bar");
    if (said && said.textContent !== news.said) said.textContent = news.said;
    if (bar) Object.assign(bar, { max: news.asked || 1, value: news.done });
    tell(waits === undefined ? changed(news) : "");
  } catch {
    tell("The labeling page has stopped or was started anew. Saved labels are safe. Open the address that 'fallow label' prints.");
  }
  return setTimeout(look, EVERY);
}

if (live) setTimeout(look, EVERY);
