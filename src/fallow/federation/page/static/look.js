// Zoom, place, brightness and contrast of the image on the page. All of it lives in `shown`: nothing
// is kept or sent, and the next sample begins anew. The page works without this file.

const STEP = 1.25; // of the zoom, a key press
const LARGEST = 16;
const TENTH = 10; // per cent of brightness or contrast, a key press
const LEAST = 20;
const MOST = 400;
const SHIFT = 40; // pixels on the screen, a key press
const FIELDS = "input:not([type=checkbox]), textarea, select";
const PLAIN = { zoom: 1, x: 0, y: 0, brightness: 100, contrast: 100 };

const panel = document.querySelector(".look");
const figures = [...document.querySelectorAll(".sample figure")];
const shown = { ...PLAIN };

function within(value, least, most) {
  return Math.min(most, Math.max(least, value));
}

// An edge of the image never comes further in than where it stands without zoom.
function keepInSight() {
  const { offsetWidth, offsetHeight } = figures[0].querySelector("img");
  const mostX = (offsetWidth * (shown.zoom - 1)) / 2;
  const mostY = (offsetHeight * (shown.zoom - 1)) / 2;
  shown.x = within(shown.x, -mostX, mostX);
  shown.y = within(shown.y, -mostY, mostY);
}

function draw() {
  keepInSight();
  const isZoomed = shown.zoom > 1;
  for (const figure of figures) {
    const style = figure.querySelector("img").style;
    style.transform = isZoomed ? `translate(${shown.x}px, ${shown.y}px) scale(${shown.zoom})` : "";
    const isPlain = shown.brightness === 100 && shown.contrast === 100;
    style.filter = isPlain ? "" : `brightness(${shown.brightness}%) contrast(${shown.contrast}%)`;
    figure.classList.toggle("zoomed", isZoomed);
  }
  for (const name of ["left", "right", "up", "down"]) {
    panel.querySelector(`[data-look=${name}]`).setAttribute("aria-disabled", String(!isZoomed));
  }
  const zoom = Math.round(100 * shown.zoom);
  const said = `Zoom ${zoom} %, brightness ${shown.brightness} %, contrast ${shown.contrast} %.`;
  const told = document.getElementById("looks");
  if (told.textContent !== said) told.textContent = said;
}

// (x, y): the point that stays where it is, in pixels from the middle of the image without zoom.
function zoomTo(zoom, x = 0, y = 0) {
  const next = within(Math.abs(zoom - 1) < 0.01 ? 1 : zoom, 1, LARGEST);
  const ratio = next / shown.zoom;
  shown.x = x - (x - shown.x) * ratio;
  shown.y = y - (y - shown.y) * ratio;
  shown.zoom = next;
}

function move(x, y) {
  shown.x += x;
  shown.y += y;
}

function change(name, by) {
  shown[name] = within(shown[name] + by, LEAST, MOST);
}

const ACTS = {
  smaller: () => zoomTo(shown.zoom / STEP),
  larger: () => zoomTo(shown.zoom * STEP),
  darker: () => change("brightness", -TENTH),
  brighter: () => change("brightness", TENTH),
  softer: () => change("contrast", -TENTH),
  harder: () => change("contrast", TENTH),
  left: () => move(SHIFT, 0),
  right: () => move(-SHIFT, 0),
  up: () => move(0, SHIFT),
  down: () => move(0, -SHIFT),
  reset: () => Object.assign(shown, PLAIN),
};

function act(name) {
  ACTS[name]();
  draw();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches(FIELDS)) return;
  const key = event.key === "=" ? "+" : event.key; // on many keyboards + is = with Shift
  const control = panel.querySelector(`[data-look-key="${CSS.escape(key)}"]`);
  // arrow keys lead to other samples as long as there is nothing to move
  if (!control || control.ariaDisabled === "true") return;
  event.preventDefault();
  event.stopImmediatePropagation();
  act(control.dataset.look);
}

function turnWheel(event) {
  if (event.ctrlKey) return; // the browser's own zoom
  const isOutOfThePlain = event.deltaY > 0 && shown.zoom === 1;
  if (isOutOfThePlain || event.deltaY === 0) return; // the page scrolls
  event.preventDefault();
  const image = event.currentTarget.querySelector("img").getBoundingClientRect();
  const x = event.clientX - (image.left + image.width / 2) + shown.x;
  const y = event.clientY - (image.top + image.height / 2) + shown.y;
  zoomTo(event.deltaY < 0 ? shown.zoom * STEP : shown.zoom / STEP, x, y);
  draw();
}

function drag(event) {
  if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
  move(event.movementX, event.movementY);
  draw();
}

if (panel && figures.length) {
  panel.hidden = false;
  panel.addEventListener("click", (event) => {
    const control = event.target.closest("[data-look]");
    if (control && control.ariaDisabled !== "true") act(control.dataset.look);
  });
  document.addEventListener("keydown", press, { capture: true }); // before the keys of answers
  for (const figure of figures) {
    figure.querySelector("img").draggable = false;
    figure.addEventListener("wheel", turnWheel, { passive: false });
    figure.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && shown.zoom > 1) figure.setPointerCapture(event.pointerId);
    });
    figure.addEventListener("pointermove", drag);
  }
  window.addEventListener("resize", draw);
  draw();
}
