//! A figure: its points as CSV, and drawn as SVG.
//!
//! ```text
//!  ┌────────────────── title ─────────────┐
//!  │   ·  ×                │ ─ a model    │   The legend stands beside the chart, where it hides
//!  │ ──·──·──              │ ● measured   │   no point; a color is a kind of table or bucket size,
//!  └───────────────────────┴ × the paper ─┘   and a shape says where a number is from.
//! ```

use std::fmt::Write as _;
use std::path::Path;

use horton_tables::error::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels of a figure, of which so many are the legend's.
const SIZE: (u32, u32) = (900, 460);
const LEGEND: u32 = 220;
/// Place where the legend starts, and how far its lines stand apart.
const LEGEND_TOP: i32 = 48;
const LEGEND_LINE: i32 = 22;

/// The palette of Okabe and Ito, which people who see few colors tell apart, too.
const COLORS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 86, 86),
];

/// The way in which points are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Style {
    /// A model.
    Curve,
    /// Figures measured here.
    Measured,
    /// Figures measured here, with lines in between for the eye.
    Joined,
    /// Figures that the paper states.
    Paper,
}

impl Style {
    fn name(self) -> &'static str {
        match self {
            Self::Curve => "Curve",
            Self::Measured | Self::Joined => "Measured",
            Self::Paper => "Paper",
        }
    }

    fn has_line(self) -> bool {
        matches!(self, Self::Curve | Self::Joined)
    }
}

/// Points that belong together; series of one color differ in style.
pub struct Series {
    pub name: String,
    pub style: Style,
    pub color: usize,
    pub points: Vec<(f64, f64)>,
}

impl Series {
    pub fn new(name: impl Into<String>, style: Style, color: usize) -> Self {
        Self {
            name: name.into(),
            style,
            color,
            points: Vec::new(),
        }
    }

    fn color(&self) -> RGBColor {
        COLORS[self.color % COLORS.len()]
    }

    /// Points of joined series are drawn the smaller the later, as many lie on each other.
    fn radius(&self) -> i32 {
        match self.style {
            Style::Joined => 5 - self.color.min(2) as i32,
            _ => 3,
        }
    }
}

/// The axes of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Axes {
    /// Numbers, just as far as there are points.
    Plain,
    /// Sizes of tables, each twice the one before, and quantities that start at zero.
    Sizes,
}

/// One figure of the paper.
pub struct Figure {
    /// File name without extension.
    pub file: &'static str,
    pub title: String,
    /// Device where it was measured.
    pub subtitle: String,
    pub x: &'static str,
    pub y: &'static str,
    pub axes: Axes,
    pub series: Vec<Series>,
}

impl Figure {
    /// Writes `file.csv` and `file.svg` to `folder`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let fail = |what: String| Error::Invalid(format!("{}: {what}", self.file));
        std::fs::write(folder.join(format!("{}.csv", self.file)), self.csv())
            .map_err(|e| fail(e.to_string()))?;
        self.draw(&folder.join(format!("{}.svg", self.file)))
            .map_err(|e| fail(e.to_string()))
    }

    fn csv(&self) -> String {
        let mut text = String::from("series,kind,x,y\n");
        for series in &self.series {
            for (x, y) in &series.points {
                let (x, y) = (short(*x, 6), short(*y, 6));
                let _ = writeln!(text, "\"{}\",{},{x},{y}", series.name, series.style.name());
            }
        }
        text
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        match self.axes {
            Axes::Sizes => (x.log2(), y),
            Axes::Plain => (x, y),
        }
    }

    fn draw(&self, path: &Path) -> Drawn<()> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let titled = area.titled(&self.title, ("sans-serif", 17))?;
        let (chart, legend) = titled.split_horizontally(SIZE.0 - LEGEND);
        self.draw_chart(&chart)?;
        self.draw_legend(&legend)?;
        area.present()?;
        Ok(())
    }

    fn draw_chart(&self, area: &Area<'_>) -> Drawn<()> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let points: Vec<(f64, f64)> = points.map(|point| self.place(*point)).collect();
        let x = range(points.iter().map(|point| point.0));
        let mut y = range(points.iter().map(|point| point.1));
        if self.axes == Axes::Sizes {
            y.start = 0.0;
        }
        let mut chart = ChartBuilder::on(area)
            .caption(&self.subtitle, ("sans-serif", 13))
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(74)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE.mix(0.0))
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|x| self.x_label(*x))
            .y_label_formatter(&|y| short(*y, 3))
            .draw()?;
        for series in &self.series {
            let color = series.color();
            let points = series.points.iter().map(|point| self.place(*point));
            if series.style.has_line() {
                chart.draw_series(LineSeries::new(points.clone(), color))?;
            }
            let radius = series.radius();
            match series.style {
                Style::Curve => {}
                Style::Measured | Style::Joined => {
                    chart.draw_series(points.map(|p| Circle::new(p, radius, color.filled())))?;
                }
                Style::Paper => {
                    chart.draw_series(points.map(|p| Cross::new(p, 6, color.stroke_width(2))))?;
                }
            }
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn<()> {
        let font = ("sans-serif", 13).into_font();
        for (i, series) in self.series.iter().enumerate() {
            let (color, y) = (series.color(), LEGEND_TOP + LEGEND_LINE * i as i32);
            if series.style.has_line() {
                area.draw(&PathElement::new(vec![(2, y), (22, y)], color))?;
            }
            match series.style {
                Style::Curve => {}
                Style::Measured | Style::Joined => {
                    area.draw(&Circle::new((12, y), series.radius(), color.filled()))?;
                }
                Style::Paper => area.draw(&Cross::new((12, y), 5, color.stroke_width(2)))?,
            }
            area.draw(&Text::new(series.name.clone(), (30, y - 6), font.clone()))?;
        }
        Ok(())
    }

    fn x_label(&self, x: f64) -> String {
        if self.axes == Axes::Plain {
            return short(x, 2);
        }
        match x.exp2() / 1024.0 {
            kib if kib < 1023.0 => format!("{kib:.0} KiB"),
            kib if kib < 1023.0 * 1024.0 => format!("{:.0} MiB", kib / 1024.0),
            kib => format!("{:.0} GiB", kib / 1024.0 / 1024.0),
        }
    }
}

/// Returns the range from the least to the greatest, and a little more.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let margin = ((high - low) * 0.04).max(1e-6);
    low - margin..high + margin
}

/// Returns a number with so many digits behind the point, if it needs them.
fn short(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
