//! Horizontal bars on a logarithmic axis, with the report's numbers as marks: a figure as SVG.

/// One bar.
pub struct Bar {
    /// The name left of it.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// The report's number, or the lowest and the highest one.
    pub said: Option<(f64, f64)>,
}

/// A figure: groups of bars with a title each.
pub struct Bars {
    /// The figure's title.
    pub title: String,
    /// The quantity, with its unit.
    pub unit: &'static str,
    /// Title and bars of each group.
    pub groups: Vec<(String, Vec<Bar>)>,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 60.0;
const TOP: f64 = 46.0;
const ROW: f64 = 16.0;
/// Height of a group's title and of its axis.
const TITLE: f64 = 26.0;
const AXIS: f64 = 30.0;

/// The figure as SVG. Bars are what was measured here, black marks what the report says.
pub fn svg(bars: &Bars) -> String {
    let rows: usize = bars.groups.iter().map(|(_, bars)| bars.len()).sum();
    let height = TOP + rows as f64 * ROW + bars.groups.len() as f64 * (TITLE + AXIS);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\">{}</text>\n\
         <text x=\"8\" y=\"36\">{}. Blue: here, modelled; black: the report's text.</text>\n",
        escape(&bars.title),
        escape(bars.unit)
    );
    let mut y = TOP;
    for (title, bars) in &bars.groups {
        out += &format!(
            "<text x=\"8\" y=\"{:.1}\" font-weight=\"bold\">{}</text>\n",
            y + 16.0,
            escape(title)
        );
        y += TITLE;
        let axis = Axis::of(bars);
        let end = y + bars.len() as f64 * ROW;
        out += &axis.draw(y, end);
        for bar in bars {
            out += &axis.bar(bar, y);
            y += ROW;
        }
        y = end + AXIS;
    }
    out + "</svg>\n"
}

/// Powers of ten around all numbers of a group.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    fn of(bars: &[Bar]) -> Self {
        let said = |bar: &Bar| bar.said.unwrap_or((bar.value, bar.value));
        let all = bars
            .iter()
            .flat_map(|bar| [bar.value, said(bar).0, said(bar).1]);
        let logs: Vec<f64> = all
            .filter(|number| *number > 0.0 && number.is_finite())
            .map(f64::log10)
            .collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low.is_finite() {
            (low.floor() as i32, high.ceil() as i32)
        } else {
            (0, 1)
        };
        Self {
            low,
            high: high.max(low + 1),
        }
    }

    fn x(&self, number: f64) -> f64 {
        let share = (number.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn draw(&self, top: f64, end: f64) -> String {
        let mut out = String::new();
        for log in self.low..=self.high {
            let number = 10f64.powi(log);
            let x = self.x(number);
            out += &format!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{end:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{number}</text>\n",
                end + 14.0
            );
        }
        out
    }

    fn bar(&self, bar: &Bar, y: f64) -> String {
        let x = self.x(bar.value);
        let mut out = format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#56b4e9\"/>",
            LEFT - 6.0,
            y + 12.0,
            escape(&bar.label),
            y + 2.0,
            x - LEFT,
            ROW - 4.0
        );
        let mut right = x;
        if let Some((low, high)) = bar.said {
            let (low, high, middle) = (self.x(low), self.x(high), y + ROW / 2.0);
            right = right.max(high);
            out += &format!(
                "<line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#000\"/>"
            );
            for x in [low, high] {
                out += &format!(
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#000\" stroke-width=\"2\"/>",
                    y + 2.0,
                    y + ROW - 2.0
                );
            }
        }
        let digits = usize::from(bar.value < 100.0);
        out + &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\" fill=\"#333\">{:.digits$}</text>\n",
            right + 4.0,
            y + 12.0,
            bar.value
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_their_numbers_and_marks_stand_where_the_report_says() {
        let bar = |label: &str, value, said| Bar {
            label: label.into(),
            value,
            said,
        };
        let bars = vec![bar("a<b", 1.0, None), bar("c", 100.0, Some((10.0, 10.0)))];
        let axis = Axis::of(&bars);
        assert_eq!((axis.low, axis.high), (0, 2));
        assert_eq!(axis.x(10.0), (axis.x(1.0) + axis.x(100.0)) / 2.0);
        let drawn = svg(&Bars {
            title: "t".into(),
            unit: "MB/s",
            groups: vec![("g".into(), bars)],
        });
        assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"));
        assert!(drawn.contains("a&lt;b"));
        assert!(drawn.contains(&format!("x1=\"{:.1}\"", axis.x(10.0))));
    }
}
