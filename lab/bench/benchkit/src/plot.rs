//! Plots as SVG: lines with 95 % intervals, on plain or logarithmic axes. Text in, text out; no library.
//!
//! ```text
//!   title
//!   y ▲  ╭─┬─╮          each series a colour, a shape and a name on the right
//!     │ ─┼─┴─┼─
//!     └──┴───┴──▶ x     sizes have their own ticks, everything else round numbers
//! ```

use std::fmt::Write;

use crate::stats;

/// The least width, and about that of a character of a name.
const WIDTH: f64 = 860.0;
const CHARACTER: f64 = 7.0;
const HEIGHT: f64 = 460.0;
/// The edges of the plot area, with margins for numbers, names, title and axis.
const FIELD: [f64; 4] = [86.0, 650.0, 44.0, 400.0];

/// Distinct also in print and for most colour-blind readers.
const COLOURS: [&str; 8] =
    ["#0072b2", "#000000", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];

/// A chart under construction.
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

struct Axis {
    name: String,
    scale: Scale,
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Plain,
    Log,
    /// Logarithmic, with a tick at each value and bytes as its name.
    Sizes,
}

struct Series {
    name: String,
    points: Vec<Spot>,
}

#[derive(Clone, Copy)]
struct Spot {
    x: f64,
    y: f64,
    interval: Option<(f64, f64)>,
}

/// The visible part of an axis, and its mapping to the picture.
struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Chart {
    /// An empty chart with plain axes.
    pub fn new(title: &str, x: &str, y: &str) -> Chart {
        let axis = |name: &str| Axis { name: name.to_owned(), scale: Scale::Plain };
        Chart { title: title.to_owned(), x: axis(x), y: axis(y), series: Vec::new() }
    }

    /// The x axis shows sizes in bytes.
    pub fn sizes(mut self) -> Chart {
        self.x.scale = Scale::Sizes;
        self
    }

    /// The x axis is logarithmic.
    pub fn log_x(mut self) -> Chart {
        self.x.scale = Scale::Log;
        self
    }

    /// The y axis is logarithmic.
    pub fn log_y(mut self) -> Chart {
        self.y.scale = Scale::Log;
        self
    }

    /// A line for each series of the rows, a point for each x: the median over repetitions, with its interval.
    pub fn points<R>(
        mut self,
        rows: &[R],
        series: impl Fn(&R) -> String,
        x: impl Fn(&R) -> f64,
        y: impl Fn(&R) -> f64,
    ) -> Chart {
        for row in rows {
            let (name, at) = (series(row), x(row));
            let known = self.series.iter().position(|series| series.name == name);
            let index = known.unwrap_or(self.series.len());
            if known.is_none() {
                self.series.push(Series { name: name.clone(), points: Vec::new() });
            }
            if self.series[index].points.iter().any(|spot| spot.x == at) {
                continue;
            }
            let same = rows.iter().filter(|other| series(other) == name && x(other) == at);
            if let Some(estimate) = stats::estimate(same.map(&y)) {
                let spot = Spot { x: at, y: estimate.median, interval: estimate.interval };
                self.series[index].points.push(spot);
            }
        }
        for series in &mut self.series {
            series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        self
    }

    /// The picture. Zeros are left out on a logarithmic axis.
    pub fn svg(&self) -> String {
        let [left, right, top, bottom] = FIELD;
        let longest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let width = WIDTH.max(right + 60.0 + CHARACTER * longest as f64);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(
            &mut out,
            left,
            24.0,
            "start",
            &format!("<tspan font-size=\"15\">{}</tspan>", escape(&self.title)),
        );
        let spots = || self.series.iter().flat_map(|series| &series.points).filter(|spot| self.shows(spot));
        if spots().next().is_none() {
            text(&mut out, left, 60.0, "start", "nothing was measured");
            out.push_str("</svg>\n");
            return out;
        }
        let xs = Span::over(self.x.scale, spots().map(|spot| spot.x), left, right);
        let ends = |spot: &Spot| {
            let (low, high) = spot.interval.unwrap_or((spot.y, spot.y));
            // An interval down to zero would extend a logarithmic axis without end.
            let low = if self.y.scale == Scale::Plain { low } else { low.max(spot.y / 3.0) };
            [low, spot.y, high]
        };
        let ys = Span::over(self.y.scale, spots().flat_map(ends), bottom, top);
        self.axes(&mut out, &xs, &ys);
        for (index, series) in self.series.iter().enumerate() {
            self.draw(&mut out, index, series, &xs, &ys);
        }
        out.push_str("</svg>\n");
        out
    }

    fn shows(&self, spot: &Spot) -> bool {
        let fits = |value: f64, scale: Scale| value.is_finite() && (scale == Scale::Plain || value > 0.0);
        fits(spot.x, self.x.scale) && fits(spot.y, self.y.scale)
    }

    fn axes(&self, out: &mut String, xs: &Span, ys: &Span) {
        let [left, right, top, bottom] = FIELD;
        for x in self.x_ticks(xs) {
            let at = xs.place(x);
            line(out, [at, top, at, bottom], "#e5e5e5", 1.0);
            let name = if self.x.scale == Scale::Sizes { size_name(x) } else { number_name(x) };
            text(out, at, bottom + 18.0, "middle", &name);
        }
        for y in ys.ticks() {
            let at = ys.place(y);
            line(out, [left, at, right, at], "#e5e5e5", 1.0);
            text(out, left - 8.0, at + 4.0, "end", &number_name(y));
        }
        line(out, [left, bottom, right, bottom], "#333333", 1.0);
        line(out, [left, top, left, bottom], "#333333", 1.0);
        text(out, f64::midpoint(left, right), bottom + 42.0, "middle", &escape(&self.x.name));
        let middle = f64::midpoint(top, bottom);
        let _ = writeln!(
            out,
            "<text transform=\"translate(18,{middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(&self.y.name)
        );
    }

    fn x_ticks(&self, xs: &Span) -> Vec<f64> {
        if self.x.scale != Scale::Sizes {
            return xs.ticks();
        }
        let mut sizes: Vec<f64> =
            self.series.iter().flat_map(|series| series.points.iter().map(|spot| spot.x)).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    }

    fn draw(&self, out: &mut String, index: usize, series: &Series, xs: &Span, ys: &Span) {
        let [_, right, top, _] = FIELD;
        let colour = COLOURS[index % COLOURS.len()];
        let shown: Vec<&Spot> = series.points.iter().filter(|spot| self.shows(spot)).collect();
        let places: Vec<String> =
            shown.iter().map(|spot| format!("{:.1},{:.1}", xs.place(spot.x), ys.place(spot.y))).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>",
            places.join(" ")
        );
        for spot in shown {
            let (x, y) = (xs.place(spot.x), ys.place(spot.y));
            mark(out, index, colour, x, y);
            if let Some((low, high)) = spot.interval {
                let (low, high) = (ys.place(low), ys.place(high));
                line(out, [x, low, x, high], colour, 1.0);
                line(out, [x - 4.0, low, x + 4.0, low], colour, 1.0);
                line(out, [x - 4.0, high, x + 4.0, high], colour, 1.0);
            }
        }
        let at = top + 10.0 + 20.0 * index as f64;
        line(out, [right + 14.0, at, right + 38.0, at], colour, 1.8);
        mark(out, index, colour, right + 26.0, at);
        text(out, right + 44.0, at + 4.0, "start", &escape(&series.name));
    }
}

impl Span {
    fn over(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Span {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        match scale {
            Scale::Plain => low = low.min(0.0),
            Scale::Log => {
                low = 10_f64.powf(low.log10().floor());
                high = 10_f64.powf(high.log10().ceil());
            }
            Scale::Sizes => {}
        }
        if high <= low {
            high = if scale == Scale::Plain { low + 1.0 } else { low * 10.0 };
        }
        Span { scale, low, high, from, to }
    }

    /// The place of a value in the picture, limited to its edges.
    fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.scale {
            Scale::Plain => (value - self.low) / (self.high - self.low),
            Scale::Log | Scale::Sizes => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Round numbers: the powers of ten, or six to ten multiples of 1, 2 or 5.
    fn ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Plain {
            let rough = (self.high - self.low) / 6.0;
            let unit = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * unit);
            let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
            let first = (self.low / step).ceil() as i64;
            let last = (self.high / step).floor() as i64;
            return (first..=last).map(|n| n as f64 * step).collect();
        }
        let (first, last) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
        (first..=last).map(|power| 10_f64.powi(power)).collect()
    }
}

fn line(out: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str, width: f64) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
         stroke-width=\"{width}\"/>"
    );
}

fn mark(out: &mut String, index: usize, colour: &str, x: f64, y: f64) {
    let shape = match index % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"),
        1 => {
            let (x, y) = (x - 3.5, y - 3.5);
            format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>")
        }
        _ => {
            let (top, bottom, left, right) = (y - 5.0, y + 4.0, x - 4.5, x + 4.5);
            format!(
                "<path d=\"M {left:.1} {bottom:.1} L {x:.1} {top:.1} L {right:.1} {bottom:.1} Z\" fill=\"{colour}\"/>"
            )
        }
    };
    let _ = writeln!(out, "{shape}");
}

/// `content` may hold elements: the caller escapes plain text.
fn text(out: &mut String, x: f64, y: f64, anchor: &str, content: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn size_name(bytes: f64) -> String {
    match bytes as u64 {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} Mi", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} Ki", n >> 10),
        n => n.to_string(),
    }
}

fn number_name(number: f64) -> String {
    let (scaled, unit) = match number.abs() {
        n if n >= 1e9 => (number / 1e9, " G"),
        n if n >= 1e6 => (number / 1e6, " M"),
        n if n >= 1e3 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let text = format!("{scaled:.4}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    #[test]
    fn an_empty_chart_says_so() {
        let svg = Chart::new("a < b", "x", "y").log_y().svg();
        assert!(
            svg.contains("a &lt; b") && svg.contains("nothing was measured") && svg.ends_with("</svg>\n")
        );
    }

    #[test]
    fn one_point_is_a_chart() {
        for chart in [Chart::new("t", "x", "y"), Chart::new("t", "x", "y").sizes().log_y()] {
            let svg = chart.points(&[(8.0, 5.0)], |_| "one".into(), |of| of.0, |of| of.1).svg();
            assert_eq!(count(&svg, "<polyline"), 1);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn many_series_and_a_zero_on_a_logarithmic_axis() {
        let mut chart = Chart::new("t", "x", "y").log_x().log_y();
        for n in 0..12 {
            let points: Vec<(f64, f64)> = (0..50).map(|x| (f64::from(x), f64::from(x * n))).collect();
            chart = chart.points(&points, |_| format!("series {n}"), |of| of.0, |of| of.1);
        }
        let svg = chart.svg();
        assert_eq!(count(&svg, "<polyline"), 12);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn ticks_are_round() {
        let span = |scale, low, high| Span { scale, low, high, from: 0.0, to: 100.0 };
        assert_eq!(span(Scale::Plain, 0.0, 5.3).ticks(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(span(Scale::Log, 10.0, 1e4).ticks(), [10.0, 100.0, 1e3, 1e4]);
        assert_eq!(span(Scale::Log, 1.0, 100.0).place(10.0), 50.0);
        assert_eq!([1e6, 2500.0, 0.05].map(number_name), ["1 M", "2.5 k", "0.05"]);
        assert_eq!([8.0, 1024.0, 524_288.0].map(size_name), ["8", "1 Ki", "512 Ki"]);
    }
}
