// Zoom, position, brightness and contrast of the images of an example. All images show the same
// position. The settings are kept in `shown` only: nothing is saved or sent, and the next example
// starts with the defaults. The page works without this file.

const STEP = 1.25; // zoom factor per key press
const LARGEST = 16;
const TENTH = 10; // percent of brightness or contrast per key press
const LEAST = 20;
const MOST = 400;
const SHIFT = 40; // screen pixels per key press
const NEAR = 2; // slices that are loaded before they are shown
const FIELDS = "input:not([type=checkbox], [type=range]), textarea, select";
const PLAIN = { zoom: 1, x: 0, y: 0, brightness: 100, contrast: 100 };

function within(value, least, most) {
  return Math.min(most, Math.max(least, value));
}

// One example: its images and their buttons.
class Look {
  constructor(panel) {
    this.panel = panel;
    this.sample = panel.closest(".sample");
    this.figures = [...this.sample.querySelectorAll("figure")];
    this.slider = panel.querySelector("[type=range]"); // null unless the images are slices
    this.shown = { ...PLAIN };
    this.acts = {
      back: () => this.changeSlice(-1),
      forth: () => this.changeSlice(1),
      smaller: () => this.zoomTo(this.shown.zoom / STEP),
      larger: () => this.zoomTo(this.shown.zoom * STEP),
      darker: () => this.change("brightness", -TENTH),
      brighter: () => this.change("brightness", TENTH),
      softer: () => this.change("contrast", -TENTH),
      harder: () => this.change("contrast", TENTH),
      left: () => this.move(SHIFT, 0),
      right: () => this.move(-SHIFT, 0),
      up: () => this.move(0, SHIFT),
      down: () => this.move(0, -SHIFT),
      reset: () => Object.assign(this.shown, PLAIN),
    };
  }

  // Limit of moving an image: no edge moves further in than without zoom.
  reach(image) {
    const beyond = (this.shown.zoom - 1) / 2;
    return { x: image.offsetWidth * beyond, y: image.offsetHeight * beyond };
  }

  // The largest image limits the movement. A smaller image stops at its own edge.
  keepInSight() {
    const reaches = this.figures.map((figure) => this.reach(figure.querySelector("img")));
    const mostX = Math.max(...reaches.map((most) => most.x));
    const mostY = Math.max(...reaches.map((most) => most.y));
    this.shown.x = within(this.shown.x, -mostX, mostX);
    this.shown.y = within(this.shown.y, -mostY, mostY);
  }

  // Show one slice. Browsers load its neighbors too, which are hidden.
  drawSlice() {
    const number = this.slider.valueAsNumber - 1;
    this.figures.forEach((figure, at) => {
      figure.hidden = at !== number;
      if (Math.abs(at - number) <= NEAR) figure.querySelector("img").loading = "eager";
    });
    this.panel.querySelector(".slice").textContent = `${number + 1} / ${this.figures.length}`;
  }

  changeSlice(by) {
    this.slider.valueAsNumber += by; // the browser keeps it between the first and the last
  }

  draw() {
    if (this.slider) this.drawSlice();
    this.keepInSight();
    const { zoom, brightness, contrast } = this.shown;
    const isZoomed = zoom > 1;
    const isPlain = brightness === 100 && contrast === 100;
    for (const figure of this.figures) {
      const image = figure.querySelector("img");
      const most = this.reach(image);
      const x = within(this.shown.x, -most.x, most.x);
      const y = within(this.shown.y, -most.y, most.y);
      image.style.transform = isZoomed ? `translate(${x}px, ${y}px) scale(${zoom})` : "";
      image.style.filter = isPlain ? "" : `brightness(${brightness}%) contrast(${contrast}%)`;
      figure.classList.toggle("zoomed", isZoomed);
    }
    for (const name of ["left", "right", "up", "down"]) {
      const button = this.panel.querySelector(`[data-look=${name}]`);
      button.setAttribute("aria-disabled", String(!isZoomed));
    }
    const output = this.panel.querySelector("output[data-text]");
    const text = output.dataset.text
      .replace("{zoom}", Math.round(100 * zoom))
      .replace("{brightness}", brightness)
      .replace("{contrast}", contrast);
    if (output.textContent !== text) output.textContent = text;
  }

  // (x, y): the fixed point, in pixels from the center of the image without zoom.
  zoomTo(zoom, x = 0, y = 0) {
    const shown = this.shown;
    const next = within(Math.abs(zoom - 1) < 0.01 ? 1 : zoom, 1, LARGEST);
    const ratio = next / shown.zoom;
    shown.x = x - (x - shown.x) * ratio;
    shown.y = y - (y - shown.y) * ratio;
    shown.zoom = next;
  }

  move(x, y) {
    this.shown.x += x;
    this.shown.y += y;
  }

  change(name, by) {
    this.shown[name] = within(this.shown[name] + by, LEAST, MOST);
  }

  act(name) {
    this.acts[name]();
    this.draw();
  }

  turnWheel(event) {
    if (event.ctrlKey) return; // the browser's own zoom
    const { zoom } = this.shown;
    const isOutOfThePlain = event.deltaY > 0 && zoom === 1;
    if (isOutOfThePlain || event.deltaY === 0) return; // the page scrolls
    event.preventDefault();
    const image = event.currentTarget.querySelector("img").getBoundingClientRect();
    const x = event.clientX - (image.left + image.width / 2) + this.shown.x;
    const y = event.clientY - (image.top + image.height / 2) + this.shown.y;
    this.zoomTo(event.deltaY < 0 ? zoom * STEP : zoom / STEP, x, y);
    this.draw();
  }

  drag(event) {
    if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
    this.move(event.movementX, event.movementY);
    this.draw();
  }

  listen() {
    this.panel.hidden = false;
    this.panel.addEventListener("click", (event) => {
      const control = event.target.closest("[data-look]");
      if (control && control.ariaDisabled !== "true") this.act(control.dataset.look);
    });
    this.slider?.addEventListener("input", () => this.draw());
    for (const figure of this.figures) {
      figure.querySelector("img").draggable = false;
      figure.addEventListener("wheel", (event) => this.turnWheel(event), { passive: false });
      figure.addEventListener("pointerdown", (event) => {
        if (event.button === 0 && this.shown.zoom > 1) figure.setPointerCapture(event.pointerId);
      });
      figure.addEventListener("pointermove", (event) => this.drag(event));
    }
    window.addEventListener("resize", () => this.draw());
    this.draw();
  }
}

const looks = [...document.querySelectorAll(".look")].map((panel) => new Look(panel));

// With several examples on a page, shortcuts apply to the one with the focus, or else to the one
// under the pointer.
function meant() {
  if (looks.length === 1) return looks[0];
  const part = (look) => look.sample.closest("article") ?? look.sample;
  const focused = looks.find((look) => part(look).contains(document.activeElement));
  return focused ?? looks.find((look) => part(look).matches(":hover"));
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches(FIELDS)) return;
  const look = meant();
  const key = event.key === "=" ? "+" : event.key; // on many keyboards + is = with Shift
  const controls = look?.panel.querySelectorAll(`[data-look-key="${CSS.escape(key)}"]`) ?? [];
  // arrow keys move a zoomed image, else change the slice, else open other examples
  const control = [...controls].find((one) => one.ariaDisabled !== "true");
  if (!control) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  look.act(control.dataset.look);
}

for (const look of looks) look.listen();
if (looks.length) document.addEventListener("keydown", press, { capture: true }); // before the label shortcuts
