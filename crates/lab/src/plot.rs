//! A plot: dedup ratio against the mean chunk, a line for each chunker, as an SVG file or inside a page.

use crate::{ChunkerChoice, Estimate};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
/// Left, right, top and bottom margin, in units of the picture.
const MARGIN: [f64; 4] = [60.0, 150.0, 30.0, 50.0];
/// Colours that can be told apart without seeing red or green (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000",
];

/// The plot as SVG. Solid lines: the ratio, with its error bar; dashed lines: metadata counted.
pub fn svg(points: &[(ChunkerChoice, Estimate)]) -> String {
    // A choice without data has no mean chunk.
    let points: Vec<_> = points
        .iter()
        .filter(|(_, point)| point.chunks > 0)
        .collect();
    let axes = Axes::of(&points);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    out += &axes.draw();
    let mut names: Vec<&str> = Vec::new();
    for (choice, _) in &points {
        if !names.contains(&&*choice.chunker) {
            names.push(&choice.chunker);
        }
    }
    for (i, name) in names.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let mut line: Vec<Estimate> = points
            .iter()
            .filter(|(choice, _)| choice.chunker == *name)
            .map(|(_, estimate)| *estimate)
            .collect();
        line.sort_by(|a, b| a.chunk_bytes_mean().total_cmp(&b.chunk_bytes_mean()));
        out += &axes.line(&line, colour, name, i);
    }
    out + "</svg>\n"
}

/// Style of the page: a readable table.
const STYLE: &str = "<style>body{font:14px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}\
     td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}</style>\n";

/// The plot in an HTML page, with the figures below it.
pub fn html(points: &[(ChunkerChoice, Estimate)]) -> String {
    let rows: String = points
        .iter()
        .map(|(choice, estimate)| {
            format!(
                "<tr><td>{}</td><td>{}</td><td>{:.0}</td><td>{:.3} ± {:.3}</td><td>{:.3}</td></tr>\n",
                escape(&choice.chunker),
                choice.mean,
                estimate.chunk_bytes_mean(),
                estimate.ratio(),
                estimate.ratio_error(),
                estimate.ratio_meta()
            )
        })
        .collect();
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Dedup ratio</title>\n{STYLE}{}<table>\n<tr><th>chunker</th><th>mean asked</th><th>mean</th>\
         <th>ratio</th><th>with metadata</th></tr>\n{rows}</table>\n",
        svg(points)
    )
}

/// The mapping of values to places on the picture.
struct Axes {
    log_min: f64,
    log_max: f64,
    /// The lowest and the highest horizontal line; `step` is the distance between lines.
    ratios: [f64; 2],
    step: f64,
}

impl Axes {
    fn of(points: &[&(ChunkerChoice, Estimate)]) -> Self {
        let logs = || {
            points
                .iter()
                .map(|(_, point)| point.chunk_bytes_mean().max(1.0).log2())
        };
        let log_min = logs().fold(f64::INFINITY, f64::min).floor();
        let log_max = logs().fold(f64::NEG_INFINITY, f64::max).ceil();
        let is_range = log_min.is_finite() && log_max.is_finite();
        let (ratios, step) = Self::ratios(points);
        Self {
            log_min: if is_range { log_min } else { 10.0 },
            log_max: if is_range {
                log_max.max(log_min + 1.0)
            } else {
                16.0
            },
            ratios,
            step,
        }
    }

    /// The range of all values in round numbers, and a step of 1, 2 or 5 times a power of ten.
    fn ratios(points: &[&(ChunkerChoice, Estimate)]) -> ([f64; 2], f64) {
        let (mut lowest, mut highest) = (1.0f64, 1.0f64);
        if let Some((_, first)) = points.first() {
            (lowest, highest) = (first.ratio_meta(), first.ratio());
        }
        for (_, point) in points {
            let (ratio, error) = (point.ratio(), point.ratio_error());
            lowest = lowest.min(ratio - error).min(point.ratio_meta());
            highest = highest.max(ratio + error);
        }
        let rough = ((highest - lowest) / 5.0).max(0.001);
        let place = 10f64.powf(rough.log10().floor());
        let step = place
            * [1.0, 2.0, 5.0, 10.0]
                .into_iter()
                .find(|n| n * place >= rough)
                .unwrap_or(10.0);
        let low = (lowest / step).floor() * step;
        let high = ((highest / step).ceil() * step).max(low + step);
        ([low, high], step)
    }

    fn x(&self, bytes: f64) -> f64 {
        let share = (bytes.max(1.0).log2() - self.log_min) / (self.log_max - self.log_min);
        MARGIN[0] + share * (WIDTH - MARGIN[0] - MARGIN[1])
    }

    fn y(&self, ratio: f64) -> f64 {
        let share = (ratio - self.ratios[0]) / (self.ratios[1] - self.ratios[0]);
        HEIGHT - MARGIN[3] - share * (HEIGHT - MARGIN[2] - MARGIN[3])
    }

    fn draw(&self) -> String {
        let (left, right) = (MARGIN[0], WIDTH - MARGIN[1]);
        let mut out = String::new();
        for log in self.log_min as i32..=self.log_max as i32 {
            let (x, bytes) = (self.x(f64::from(log).exp2()), f64::from(log).exp2());
            let label = match bytes {
                1_048_576.0.. => format!("{} MiB", bytes / 1_048_576.0),
                1024.0.. => format!("{} KiB", bytes / 1024.0),
                _ => format!("{bytes} B"),
            };
            out += &format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>\n",
                HEIGHT - MARGIN[3] + 18.0
            );
        }
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        let lines = ((self.ratios[1] - self.ratios[0]) / self.step).round() as u32;
        for line in 0..=lines {
            let ratio = self.ratios[0] + self.step * f64::from(line);
            let y = self.y(ratio);
            out += &format!(
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ratio:.decimals$}</text>\n",
                left - 6.0,
                y + 4.0
            );
        }
        out + &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">mean chunk</text>\n\
             <text x=\"{left}\" y=\"18\">dedup ratio (dashed: metadata counted)</text>\n",
            (left + right) / 2.0,
            HEIGHT - 10.0
        )
    }

    fn line(&self, points: &[Estimate], colour: &str, name: &str, row: usize) -> String {
        let path = |value: fn(&Estimate) -> f64| -> String {
            let place = |p: &Estimate| {
                format!(
                    "{:.1},{:.1} ",
                    self.x(p.chunk_bytes_mean()),
                    self.y(value(p))
                )
            };
            points.iter().map(place).collect()
        };
        let mut out = format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"4 3\"/>\n",
            path(Estimate::ratio),
            path(Estimate::ratio_meta)
        );
        // Where colours come again, marks are squares.
        let rounding = if row < COLOURS.len() { 3 } else { 0 };
        let mark = |x: f64, y: f64| {
            format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\" rx=\"{rounding}\" fill=\"{colour}\"/>",
                x - 3.0,
                y - 3.0
            )
        };
        for point in points {
            let x = self.x(point.chunk_bytes_mean());
            let (ratio, error) = (point.ratio(), point.ratio_error());
            out += &mark(x, self.y(ratio));
            out += &format!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>\n",
                self.y(ratio - error),
                self.y(ratio + error)
            );
        }
        let (x, y) = (
            WIDTH - MARGIN[1] + 18.0,
            MARGIN[2] + 16.0 * (row as f64 + 1.0),
        );
        out += &mark(x, y - 4.0);
        out + &format!(
            "<text x=\"{:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}</text>\n",
            x + 8.0,
            escape(name)
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
