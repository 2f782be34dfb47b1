//! Charts as SVG, over the size of leases.

use std::fmt::Write;

/// One chart.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// Of the vertical axis, from the bottom to the top.
    pub(crate) ticks: Vec<f64>,
    pub(crate) is_log: bool,
    /// Where on that axis the legend begins: no line should run there.
    pub(crate) legend: f64,
    pub(crate) series: Vec<Series>,
}

/// One line in it.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) color: &'static str,
    /// Whether it was not measured, but is what was promised.
    pub(crate) is_bound: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
/// Of one chart, with its title above and its axis below.
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 48.0;
const STYLE: &str =
    "text{font:13px sans-serif;fill:#222}.title{font-weight:bold;font-size:15px}.axis{stroke:#bbb}";

/// All of them, one below the other.
pub(crate) fn picture(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
         <style>{STYLE}</style>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (number, chart) in charts.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", HEIGHT * number as f64);
        chart.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

impl Chart {
    fn draw(&self, svg: &mut String) {
        text(svg, LEFT, 24.0, "start\" class=\"title", self.title);
        for tick in &self.ticks {
            let y = self.y(*tick);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT
            );
            text(svg, LEFT - 8.0, y + 4.0, "end", &tick.to_string());
        }
        for (x, _) in self.series.first().map_or(&[][..], |series| &series.points) {
            text(svg, self.x(*x), HEIGHT - BOTTOM + 18.0, "middle", &x.to_string());
        }
        text(
            svg,
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 10.0,
            "middle",
            "maximum lease in tokens (1: no leases)",
        );
        for (number, series) in self.series.iter().enumerate() {
            self.line(svg, series);
            self.legend(svg, number, series);
        }
    }

    fn line(&self, svg: &mut String, series: &Series) {
        let points: Vec<String> =
            series.points.iter().map(|(x, y)| format!("{:.1},{:.1}", self.x(*x), self.y(*y))).collect();
        let dashes = if series.is_bound { " stroke-dasharray=\"6 4\"" } else { "" };
        let (color, points) = (series.color, points.join(" "));
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dashes} points=\"{points}\"/>"
        );
    }

    /// One below the other, at the right.
    fn legend(&self, svg: &mut String, number: usize, series: &Series) {
        let (x, y) = (WIDTH - RIGHT - 250.0, self.y(self.legend) + 16.0 * number as f64);
        let dashes = if series.is_bound { " stroke-dasharray=\"6 4\"" } else { "" };
        let color = series.color;
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{color}\" stroke-width=\"2\"{dashes}/>",
            x - 34.0,
            x - 6.0,
            y - 4.0,
            y - 4.0
        );
        text(svg, x, y, "start", &series.name);
    }

    /// Sizes are spread by their logarithm.
    fn x(&self, size: f64) -> f64 {
        let largest =
            self.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x).fold(1.0, f64::max);
        LEFT + (WIDTH - LEFT - RIGHT) * size.ln() / largest.ln()
    }

    fn y(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.ln() } else { value };
        let [Some(low), Some(high)] =
            [self.ticks.first(), self.ticks.last()].map(|tick| tick.map(|tick| scale(*tick)))
        else {
            return TOP;
        };
        let part = (scale(value) - low) / (high - low);
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - part.clamp(0.0, 1.0))
    }
}

/// `anchor` says which end of the text is there.
fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}
