// The predictive distribution of one candidate: density by bins, atoms as stems, mean, quantiles and the split.
import { h, svg, number, percent } from "/console/dom.js";
import { ticks } from "/console/charts.js";

const WIDTH = 360, HEIGHT = 170, SIDE = 10, TOP = 26, BOTTOM = 40;

// Mass between the edges without the atoms', which lie in [left, right) and are drawn on their own.
export function densityOf(edges, masses, atoms) {
  return masses.map((mass, at) => {
    const isLast = at === masses.length - 1;
    const inside = atoms.filter((atom) => atom.value >= edges[at] && (atom.value < edges[at + 1] || isLast))
      .reduce((sum, atom) => sum + atom.mass, 0);
    return Math.max(0, mass - inside) / (edges[at + 1] - edges[at]);
  });
}

export function row(values, at, width) {
  return values ? values.slice(at * width, (at + 1) * width) : [];
}

export function candidateOf(answer, at) {
  const bins = answer.bins, atoms = answer.atoms, quantiles = answer.quantiles, spread = answer.uncertainty;
  const masses = bins ? row(bins.probabilities, at, bins.edges.length - 1) : [];
  const points = atoms ? row(atoms.probabilities, at, atoms.values.length).map((mass, each) => ({ value: atoms.values[each], mass })) : [];
  return {
    mean: answer.mean ? answer.mean[at] : null,
    edges: bins ? bins.edges : [],
    atoms: points,
    density: bins ? densityOf(bins.edges, masses, points) : [],
    quantiles: quantiles ? row(quantiles.values, at, quantiles.levels.length).map((value, each) => ({ level: quantiles.levels[each], value })) : [],
    aleatoric: spread ? spread.aleatoric[at] : null,
    epistemic: spread ? spread.epistemic[at] : null,
  };
}

export function densityCard(title, candidate, target, rank) {
  const share = candidate.epistemic === null ? null : candidate.epistemic / (candidate.epistemic + candidate.aleatoric || 1);
  return h("article", { class: "panel candidate" },
    h("header", {}, h("h3", {}, title), rank ? h("span", { class: "pill" }, `rank ${rank}`) : null),
    candidate.edges.length ? draw(title, candidate, target) : h("p", { class: "muted" }, "This model returns no bins."),
    h("dl", { class: "facts small" },
      fact("mean", number(candidate.mean)),
      candidate.quantiles.filter((each, at, all) => at === 0 || at === all.length - 1 || Math.abs(each.level - 0.5) < 1e-6)
        .map((each) => fact(`${Math.round(100 * each.level)}%`, number(each.value)))),
    share === null ? null : h("div", { class: "split" },
      h("div", { class: "track", role: "img", "aria-label": `Aleatoric ${percent(1 - share)}, epistemic ${percent(share)} of the variance` },
        splitBar(share)),
      h("p", {}, h("span", {}, h("i", { class: "key aleatoric" }), "aleatoric sd ", h("b", {}, number(Math.sqrt(candidate.aleatoric)))),
        h("span", {}, h("i", { class: "key epistemic" }), "epistemic sd ", h("b", {}, number(Math.sqrt(candidate.epistemic)))))));
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function splitBar(share) {
  const edge = 100 * (1 - share);
  return svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "aleatoric", x: 0, y: 0, width: edge, height: 6 }),
    svg("rect", { class: "epistemic", x: edge, y: 0, width: 100 - edge, height: 6 }));
}

function draw(title, candidate, target) {
  const { edges, density, atoms, quantiles, mean } = candidate;
  const low = edges[0], high = edges[edges.length - 1];
  const x = (value) => SIDE + (WIDTH - 2 * SIDE) * (Math.min(high, Math.max(low, value)) - low) / (high - low || 1);
  const most = Math.max(...density, 1e-12), heaviest = Math.max(...atoms.map((atom) => atom.mass), 1e-12);
  const floor = HEIGHT - BOTTOM;
  const y = (value) => floor - (floor - TOP) * value / most;
  let path = `M${x(low)},${floor}`;
  density.forEach((value, at) => { path += `L${x(edges[at]).toFixed(1)},${y(value).toFixed(1)}L${x(edges[at + 1]).toFixed(1)},${y(value).toFixed(1)}`; });
  path += `L${x(high)},${floor}Z`;
  const outer = quantiles.length > 1 ? [quantiles[0], quantiles[quantiles.length - 1]] : [];
  const label = `Predictive density of ${title} over ${target.name}: mean ${number(mean)}`
    + (outer.length ? `, ${Math.round(100 * outer[0].level)}% quantile ${number(outer[0].value)}, ${Math.round(100 * outer[1].level)}% quantile ${number(outer[1].value)}` : "")
    + (atoms.length ? `, atoms ${atoms.map((atom) => `${number(atom.value)} with ${percent(atom.mass)}`).join(", ")}` : "") + ".";
  const anchor = x(mean) > WIDTH - 70 ? "end" : x(mean) < 70 ? "start" : "middle";
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "density" },
    svg("path", { class: "area", d: path }),
    svg("line", { class: "axis", x1: SIDE, x2: WIDTH - SIDE, y1: floor, y2: floor }),
    atoms.filter((atom) => atom.mass > 0.001).map((atom) => {
      const top = floor - (floor - TOP) * Math.min(1, atom.mass / Math.max(heaviest, 0.05));
      return svg("g", {}, svg("title", {}, `P(${target.name} = ${number(atom.value)}) = ${percent(atom.mass)}`),
        svg("line", { class: "stem", x1: x(atom.value), x2: x(atom.value), y1: floor, y2: top }),
        svg("circle", { class: "stem", cx: x(atom.value), cy: top, r: 3.5 }));
    }),
    outer.length ? svg("line", { class: "whisker", x1: x(outer[0].value), x2: x(outer[1].value), y1: floor + 7, y2: floor + 7 }) : null,
    quantiles.map((each) => svg("line", { class: "whisker", x1: x(each.value), x2: x(each.value), y1: floor + 4, y2: floor + 10 })),
    mean === null ? null : [svg("line", { class: "mean", x1: x(mean), x2: x(mean), y1: TOP - 8, y2: floor }),
      svg("text", { class: "tick strong", x: x(mean), y: TOP - 13, "text-anchor": anchor }, `mean ${number(mean)}`)],
    ticks(low, high, 5).map((value) => svg("text", { class: "tick", x: x(value), y: HEIGHT - 12, "text-anchor": value === low ? "start" : value >= high ? "end" : "middle" }, number(value))));
}
