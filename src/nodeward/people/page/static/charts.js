// The last ten minutes of a resource (uPlot), and sparklines.

const DRAWN_AT_MOST_EVERY_MS = 1000;
// The steps between an axis' numbers: whole seconds; whole keys and round amounts of memory.
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300];
const POWERS = [...Array(50).keys()].map((power) => 2 ** power);

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class History {
  constructor(place, label) {
    this.place = place;
    this.label = label;
    this.chart = null;
    this.data = [[], [], []];
    const again = () => this.make();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    new ResizeObserver(() => this.chart?.setSize(this.size())).observe(place);
  }

  size() {
    return { width: Math.max(120, this.place.clientWidth), height: 96 };
  }

  make() {
    this.chart?.destroy();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    this.chart = new uPlot({
      ...this.size(),
      cursor: { show: false },
      legend: { show: false },
      scales: { y: { range: (_, __, most) => [0, Math.max((most ?? 0) * 1.1, 1)] } },
      axes: [{ ...axis, size: 24, space: 90, incrs: SECONDS, values: (_, ticks) => ticks.map(clock) },
        { ...axis, size: 56, space: 24, incrs: POWERS, values: (_, ticks) => ticks.map(short) }],
      series: [{}, { stroke: colour("--used"), width: 2, fill: colour("--used") + "22", points: { show: false } },
        { stroke: colour("--dim"), width: 1.5, dash: [4, 3], points: { show: false } }],
    }, this.data, this.place);
    this.place.firstElementChild?.setAttribute("aria-hidden", "true");
  }

  draw(data) {
    const now = performance.now();
    if (this.chart && now - this.drawn < DRAWN_AT_MOST_EVERY_MS / 2) return;
    this.drawn = now;
    this.data = data;
    if (this.chart) this.chart.setData(data);
    else this.make();
  }
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

function short(value) {
  for (const [size, unit] of [[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"]])
    if (value >= size) return `${+(value / size).toFixed(1)}${unit}`;
  return `${value}`;
}

const SVG = "http://www.w3.org/2000/svg";

export function spark() {
  const drawn = document.createElementNS(SVG, "svg");
  drawn.setAttribute("class", "spark");
  drawn.setAttribute("viewBox", "0 0 60 10");
  drawn.setAttribute("preserveAspectRatio", "none");
  drawn.setAttribute("role", "img");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("fill", "currentColor");
  drawn.append(path);
  return drawn;
}

export function drawSpark(drawn, counts) {
  const most = Math.max(1, ...counts);
  const bars = counts.map((count, place) => (count ? `M${60 - counts.length + place} 10v-${((9 * count) / most + 1).toFixed(1)}h.8V10z` : ""));
  const path = bars.join("");
  if (drawn.firstChild.getAttribute("d") !== path) drawn.firstChild.setAttribute("d", path);
  const sum = counts.reduce((one, two) => one + two, 0);
  drawn.setAttribute("aria-label", sum ? `${sum} refused in the last minute` : "none refused in the last minute");
}
