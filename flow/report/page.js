/* Values under the pointer, other axes, smoothing and the data as files. The page is whole without
   it: it draws again what stands in the page already, by the numbers in the block "data". */
(function () {
'use strict';
var W = 460, H = 210, LEFT = 58, RIGHT = 452, TOP = 12, BOTTOM = 178; /* as in plot.c */
var block = document.getElementById('data');
if (!block) return;
var data = JSON.parse(block.textContent);
var view = { x: 'step', smooth: 0, logx: false, logy: false };
try { Object.assign(view, JSON.parse(sessionStorage.getItem('loong-flow') || '{}')); } catch (e) { }

function fmt(v) {
  var a = Math.abs(v), k = 0, s = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
  if (!isFinite(v)) return String(v);
  if (a < 10000) return String(+v.toPrecision(a !== 0 && a < 1e-3 ? 3 : a < 10 ? 4 : 5));
  while (a >= 1000 && k < 6) { a /= 1000; k++; }
  return (v < 0 ? '-' : '') + +a.toPrecision(4) + s[k];
}

/* ---- data ---- */

function xs_of(stage) {
  if (view.x === 'hours') return stage.hours;
  if (view.x !== 'tokens') return stage.step;
  var k = stage.keys.indexOf('tokens'), s = k < 0 ? null : stage.series[k];
  return !s ? stage.step : s.at ? null : s.hi || s.v;
}
/* Points {x, y, lo, hi, step} of a line; a word of data-lines is RUN.STAGE.KEY.COLOUR. */
function points_of(word) {
  var n = word.split('.'), stage = data.runs[n[0]].stages[n[1]], s = stage.series[n[2]];
  var xs = xs_of(stage), out = [];
  if (!s || !xs) return out;
  for (var i = 0; i < s.v.length; i++) {
    var row = s.at ? s.at[i] : i;
    if (s.v[i] !== null && xs[row] !== null && xs[row] !== undefined)
      out.push({ x: xs[row], y: s.v[i], lo: s.lo ? s.lo[i] : s.v[i], hi: s.hi ? s.hi[i] : s.v[i],
                 step: stage.step[row], hours: stage.hours[row] });
  }
  return out;
}
/* An exponential mean that starts unbiased: m_t = w m_{t-1} + (1 - w) y_t, shown m_t / (1 - w^t). */
function smoothed(points, w) {
  var m = 0, t = 1;
  return points.map(function (p) {
    m = w * m + (1 - w) * p.y;
    t *= w;
    return Object.assign({}, p, { y: m / (1 - t) });
  });
}

/* ---- axes ---- */

function round_step(span, n) {
  var raw = span / n, p = Math.pow(10, Math.floor(Math.log10(raw))), m = raw / p;
  return (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * p;
}
function axis(lo, hi, log, room, whole) {
  var a = { log: log && lo > 0, ticks: [] }, v, step;
  if (a.log) { lo = Math.log10(lo); hi = Math.log10(hi); }
  if (hi <= lo) { var d = hi !== 0 ? Math.abs(hi) * .1 : 1; lo -= room ? 0 : d; hi += d; }
  if (room) {
    var zero = !a.log && lo >= 0 && lo < .3 * hi, s = hi - lo;
    lo = zero ? 0 : lo - .06 * s;
    hi += .06 * s;
  }
  a.lo = lo; a.hi = hi;
  if (a.log) {
    var each = hi - lo > 2.5 ? [1] : [1, 2, 5];
    for (var e = Math.floor(lo); e <= hi; e++)
      each.forEach(function (m) {
        v = e + Math.log10(m);
        if (v >= lo && v <= hi) a.ticks.push([v, fmt(m * Math.pow(10, e))]);
      });
    if (a.ticks.length < 2) a.ticks = [lo, (lo + hi) / 2, hi].map(function (t) {
      return [t, fmt(+Math.pow(10, t).toPrecision(3))];
    });
    if (a.ticks.length > 8) a.ticks = a.ticks.filter(function (t, i) { return i % 2 === 0; });
    return a;
  }
  step = round_step(hi - lo, whole ? 6 : 5);
  if (whole && step < 1) step = 1;
  for (v = Math.ceil(lo / step) * step; v <= hi + 1e-9 * step; v += step)
    a.ticks.push([v, fmt(Math.abs(v) < 1e-9 * step ? 0 : +v.toPrecision(12))]);
  return a;
}
function place(a, v, from, to) {
  return from + ((a.log ? Math.log10(v) : v) - a.lo) / (a.hi - a.lo) * (to - from);
}

/* ---- one figure ---- */

function path(points, fx, fy, cls) {
  var d = '';
  points.forEach(function (p, i) { d += (i ? 'L' : 'M') + fx(p.x).toFixed(1) + ' ' + fy(p.y).toFixed(1); });
  return '<path class="' + cls + '" d="' + d + '"/>';
}
function band(points, fx, fy, colour) {
  var up = '', down = '';
  points.forEach(function (p, i) {
    up += (i ? 'L' : 'M') + fx(p.x).toFixed(1) + ' ' + fy(p.hi).toFixed(1);
    down = 'L' + fx(p.x).toFixed(1) + ' ' + fy(p.lo).toFixed(1) + down;
  });
  return '<path class="band c' + colour + '" d="' + up + down + 'Z"/>';
}
var AXES = { step: 'step', tokens: 'tokens', hours: 'hours in its starts' };

function draw(fig) {
  var svg = fig.querySelector('svg'), ref = fig.dataset.ref ? +fig.dataset.ref : null;
  var log = view.logy || fig.dataset.log === '1', lines = [], x0 = Infinity, x1 = -Infinity,
      y0 = Infinity, y1 = -Infinity, positive = true, out = '';
  fig.dataset.lines.split(' ').forEach(function (word, place) {
    var p = points_of(word), colour = +word.split('.')[3];
    if (view.logx) p = p.filter(function (q) { return q.x > 0; });
    if (!p.length) return;
    /* a mean of a few validations would say something that none of them does */
    var m = view.smooth > 0 && p.length >= 30 ? smoothed(p, view.smooth) : null;
    lines.push({ place: place, points: p, mean: m, colour: colour % 8, dash: colour >= 8 });
    p.forEach(function (q) {
      x0 = Math.min(x0, q.x); x1 = Math.max(x1, q.x);
      y0 = Math.min(y0, q.lo); y1 = Math.max(y1, q.hi);
      positive = positive && q.lo > 0;
    });
  });
  fig.lines = lines;
  if (!lines.length) {
    svg.innerHTML = '<text class="dim" x="' + LEFT + '" y="' + H / 2 + '">no values on this axis<\/text>';
    return;
  }
  if (ref !== null) { y0 = Math.min(y0, ref); y1 = Math.max(y1, ref); }
  log = log && positive && (view.logy || y1 > 4 * y0);
  var ax = axis(x0, x1, view.logx, false, view.x !== 'hours'), ay = axis(y0, y1, log, true, false);
  function fx(v) { return place(ax, v, LEFT, RIGHT); }
  function fy(v) { return place(ay, v, BOTTOM, TOP); }
  ay.ticks.forEach(function (t) {
    var y = BOTTOM - (t[0] - ay.lo) / (ay.hi - ay.lo) * (BOTTOM - TOP);
    out += '<path class="axis" d="M' + LEFT + ' ' + y.toFixed(1) + 'H' + RIGHT + '"/><text class="dim end" x="' +
           (LEFT - 6) + '" y="' + (y + 4).toFixed(1) + '">' + t[1] + '<\/text>';
  });
  ax.ticks.forEach(function (t) {
    var x = LEFT + (t[0] - ax.lo) / (ax.hi - ax.lo) * (RIGHT - LEFT);
    out += '<path class="axis" d="M' + x.toFixed(1) + ' ' + BOTTOM + 'v4"/><text class="dim ' +
           (x > RIGHT - 12 ? 'end' : 'mid') + '" x="' + Math.min(x, W).toFixed(1) + '" y="' + (BOTTOM + 17) + '">' + t[1] + '<\/text>';
  });
  out += '<path class="axis strong" d="M' + LEFT + ' ' + TOP + 'V' + BOTTOM + 'H' + RIGHT + '"/><text class="dim end" x="' +
         RIGHT + '" y="' + (BOTTOM + 29) + '">' + AXES[view.x] + (ax.log ? ', logarithmic' : '') + '<\/text>';
  if (ref !== null) out += '<path class="ref" d="M' + LEFT + ' ' + fy(ref).toFixed(1) + 'H' + RIGHT + '"/>';
  lines.forEach(function (l) {
    var cls = 'line c' + l.colour + (l.dash ? ' dash' : ''), s = l.mean || l.points, end = s[s.length - 1];
    if (l.points.some(function (p) { return p.hi > p.lo; })) out += band(l.points, fx, fy, l.colour);
    if (l.mean) out += path(l.points, fx, fy, cls + ' raw');
    out += path(s, fx, fy, cls);
    out += '<circle class="dot c' + l.colour + '" cx="' + fx(end.x).toFixed(1) + '" cy="' + fy(end.y).toFixed(1) + '" r="3"/>';
  });
  svg.innerHTML = out + '<path class="cross" visibility="hidden"/>';
  fig.fx = fx;
}

/* ---- values under the pointer ---- */

function nearest(points, x, fx) {
  var best = null, far = Infinity;
  points.forEach(function (p) {
    var d = Math.abs(fx(p.x) - x);
    if (d < far) { far = d; best = p; }
  });
  return best;
}
/* The legend has an entry for each word of data-lines. */
function name_of(fig, place) {
  var key = fig.querySelectorAll('figcaption .key')[place], i, text = '';
  for (i = key ? key.firstChild : null; i; i = i.nextSibling)
    if (i.nodeType === 3 && !text) text = i.textContent.trim();
  return text === 'last' ? '' : text;
}
function say(box, text, cls) {
  var div = document.createElement('div');
  div.className = cls;
  if (cls !== 'dim') div.appendChild(document.createElement('i'));
  div.appendChild(document.createTextNode(text));
  box.appendChild(div);
}
function show(fig, x) {
  var box = fig.querySelector('.tip-box'), svg = fig.querySelector('svg'), at = null, all = [];
  if (!fig.fx || !fig.lines || !fig.lines.length) return;
  fig.lines.forEach(function (l) {
    var p = nearest(l.points, x, fig.fx);
    if (!at || Math.abs(fig.fx(p.x) - x) < Math.abs(fig.fx(at.x) - x)) at = p;
    all.push([l, p]);
  });
  if (!box) { box = document.createElement('div'); box.className = 'tip-box'; fig.appendChild(box); }
  box.textContent = '';
  box.hidden = false;
  say(box, 'step ' + at.step + (view.x === 'step' ? '' : ', ' + view.x + ' ' + fmt(at.x)), 'dim');
  all.forEach(function (e) {
    var p = e[1], name = name_of(fig, e[0].place), m = e[0].mean ? e[0].mean[e[0].points.indexOf(p)] : null;
    say(box, (name ? name + ' ' : '') + fmt(p.y) + (p.hi > p.lo ? ' (' + fmt(p.lo) + ' to ' + fmt(p.hi) + ')' : '') +
        (m ? ', smoothed ' + fmt(m.y) : '') + (p.step !== at.step ? ' at step ' + p.step : ''),
        'key c' + e[0].colour + (e[0].dash ? ' dash' : ''));
  });
  var px = fig.fx(at.x), r = svg.getBoundingClientRect(), f = fig.getBoundingClientRect();
  var left = r.left - f.left + px / W * r.width, w = box.offsetWidth;
  box.style.left = Math.max(0, Math.min(left + 10 + w > f.width ? left - w - 10 : left + 10, f.width - w)) + 'px';
  /* many values would hide the curves that they are of: they stand below the picture */
  box.style.top = (all.length > 3 ? r.bottom : r.top) - f.top + 6 + 'px';
  var cross = svg.querySelector('.cross');
  cross.setAttribute('d', 'M' + px.toFixed(1) + ' ' + TOP + 'V' + BOTTOM);
  cross.setAttribute('visibility', 'visible');
  fig.at = px;
}
function hide(fig) {
  var box = fig.querySelector('.tip-box'), cross = fig.querySelector('.cross');
  if (box) box.hidden = true;
  if (cross) cross.setAttribute('visibility', 'hidden');
}
function listen(fig) {
  var svg = fig.querySelector('svg');
  function at(e) {
    var r = svg.getBoundingClientRect();
    show(fig, (e.clientX - r.left) / r.width * W);
  }
  svg.addEventListener('pointermove', at);
  svg.addEventListener('pointerdown', at);
  svg.addEventListener('pointerleave', function () { hide(fig); });
  svg.setAttribute('tabindex', '0');
  svg.addEventListener('blur', function () { hide(fig); });
  svg.addEventListener('keydown', function (e) {
    var step = e.key === 'ArrowLeft' ? -4 : e.key === 'ArrowRight' ? 4 : 0;
    if (!step) return;
    e.preventDefault();
    show(fig, Math.max(LEFT, Math.min(RIGHT, (fig.at || LEFT) + step)));
  });
}

/* ---- controls ---- */

var figures = Array.prototype.slice.call(document.querySelectorAll('figure.plot'));
function redraw() {
  try { sessionStorage.setItem('loong-flow', JSON.stringify(view)); } catch (e) { }
  figures.forEach(draw);
}
function add(parent, tag, props, text) {
  var el = Object.assign(document.createElement(tag), props);
  if (text) el.textContent = text;
  parent.appendChild(el);
  return el;
}
function save(name, type, text) {
  var a = document.createElement('a');
  a.href = URL.createObjectURL(new Blob([text], { type: type }));
  a.download = name;
  a.click();
  setTimeout(function () { URL.revokeObjectURL(a.href); }, 1000);
}
function csv() {
  var rows = ['run,stage,step,hours,key,value,lowest,highest'];
  function q(s) { return /[",\n]/.test(s) ? '"' + s.replace(/"/g, '""') + '"' : s; }
  data.runs.forEach(function (r) {
    r.stages.forEach(function (st) {
      st.series.forEach(function (s, k) {
        s.v.forEach(function (v, i) {
          var row = s.at ? s.at[i] : i;
          rows.push([q(r.run), q(st.stage), st.step[row], st.hours[row], q(st.keys[k]), v,
                     s.lo ? s.lo[i] : v, s.hi ? s.hi[i] : v].join(','));
        });
      });
    });
  });
  return rows.join('\n') + '\n';
}
function check(box, text, key) {
  var label = add(box, 'label', {});
  var c = add(label, 'input', { type: 'checkbox', checked: view[key] });
  label.appendChild(document.createTextNode(text));
  c.addEventListener('change', function () { view[key] = c.checked; redraw(); });
}
function controls(box) {
  var label = add(box, 'label', {}, 'axis'), select = add(label, 'select', {}), smooth, said;
  box.className = 'controls';
  [['step', 'step'], ['tokens', 'tokens'], ['hours', 'hours']].forEach(function (o) {
    add(select, 'option', { value: o[0] }, o[1]);
  });
  select.value = view.x;
  select.addEventListener('change', function () { view.x = select.value; redraw(); });
  label = add(box, 'label', {}, 'smoothing');
  smooth = add(label, 'input', { type: 'range', min: 0, max: .99, step: .01, value: view.smooth });
  said = add(label, 'span', {}, String(view.smooth));
  smooth.addEventListener('input', function () {
    view.smooth = +smooth.value;
    said.textContent = smooth.value;
    redraw();
  });
  check(box, 'log x', 'logx');
  check(box, 'log y', 'logy');
  add(box, 'button', { type: 'button' }, 'save data as CSV').addEventListener('click', function () {
    save('report.csv', 'text/csv', csv());
  });
  add(box, 'button', { type: 'button' }, 'as JSON').addEventListener('click', function () {
    save('report.json', 'application/json', block.textContent);
  });
  var thin = data.runs.some(function (r) { return r.stages.some(function (s) { return s.bucket > 1; }); });
  if (thin) add(box, 'span', { className: 'dim' },
    'Of long stages each point is the mean of several records, with their lowest and highest value; ' +
    '`loong-flow metrics --json` has all.');
}
var box = document.getElementById('controls');
if (box && figures.length) controls(box);
figures.forEach(listen);
if (figures.length) redraw();
}());
