//! A picture: dedup ratio against the mean chunk, a line for each chunker, as SVG that stands alone or inside a page.

use crate::{Choice, Estimate};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
/// Left, right, top, bottom.
const MARGIN: [f64; 4] = [60.0, 150.0, 30.0, 50.0];
/// Told apart also by those who see no red or no green (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000",
];

/// The picture. Solid: the ratio, with its error bar; dashed: metadata counted.
pub fn svg(points: &[(Choice, Estimate)]) -> String {
    let axes = Axes::of(points);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    out += &axes.draw();
    let mut names: Vec<&str> = Vec::new();
    for (choice, _) in points {
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

/// The picture in a page of its own, with the figures below it.
pub fn html(points: &[(Choice, Estimate)]) -> String {
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
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Dedup ratio</title>\n{}<table>\n<tr><th>chunker</th><th>mean asked</th><th>mean</th>\
         <th>ratio</th><th>with metadata</th></tr>\n{rows}</table>\n",
        svg(points)
    )
}

/// Where values lie on the picture.
struct Axes {
    log_min: f64,
    log_max: f64,
    ratio_max: f64,
}

impl Axes {
    fn of(points: &[(Choice, Estimate)]) -> Self {
        let logs = || {
            points
                .iter()
                .map(|(_, point)| point.chunk_bytes_mean().max(1.0).log2())
        };
        let highest = points
            .iter()
            .map(|(_, point)| point.ratio() + point.ratio_error());
        let log_min = logs().fold(f64::INFINITY, f64::min).floor();
        let log_max = logs().fold(f64::NEG_INFINITY, f64::max).ceil();
        let is_range = log_min.is_finite() && log_max.is_finite();
        Self {
            log_min: if is_range { log_min } else { 10.0 },
            log_max: if is_range {
                log_max.max(log_min + 1.0)
            } else {
                16.0
            },
            ratio_max: highest.fold(1.0, f64::max) * 1.1,
        }
    }

    fn x(&self, bytes: f64) -> f64 {
        let share = (bytes.max(1.0).log2() - self.log_min) / (self.log_max - self.log_min);
        MARGIN[0] + share * (WIDTH - MARGIN[0] - MARGIN[1])
    }

    fn y(&self, ratio: f64) -> f64 {
        HEIGHT - MARGIN[3] - ratio / self.ratio_max * (HEIGHT - MARGIN[2] - MARGIN[3])
    }

    fn draw(&self) -> String {
        let (left, right) = (MARGIN[0], WIDTH - MARGIN[1]);
        let mut out = String::new();
        for log in self.log_min as i32..=self.log_max as i32 {
            let (x, bytes) = (self.x(f64::from(log).exp2()), f64::from(log).exp2());
            let label = if bytes >= 1024.0 {
                format!("{} KiB", bytes / 1024.0)
            } else {
                format!("{bytes} B")
            };
            out += &format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>\n",
                HEIGHT - MARGIN[3] + 18.0
            );
        }
        for tick in 0..=5 {
            let ratio = self.ratio_max * f64::from(tick) / 5.0;
            let y = self.y(ratio);
            out += &format!(
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ratio:.2}</text>\n",
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
        for point in points {
            let x = self.x(point.chunk_bytes_mean());
            let (ratio, error) = (point.ratio(), point.ratio_error());
            out += &format!(
                "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>\
                 <line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>\n",
                self.y(ratio),
                self.y(ratio - error),
                self.y(ratio + error)
            );
        }
        out + &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>\n",
            WIDTH - MARGIN[1] + 12.0,
            MARGIN[2] + 16.0 * (row as f64 + 1.0),
            escape(name)
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
