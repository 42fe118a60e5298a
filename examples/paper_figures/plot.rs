//! A figure: its points as CSV, and drawn as SVG.

use std::fmt::Write as _;
use std::path::Path;

use horton_join::error::{Error, Result};
use plotters::prelude::*;

/// How points are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Style {
    /// A model.
    Curve,
    /// What was measured here.
    Measured,
    /// What the paper states.
    Paper,
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
}

/// One figure of the paper.
pub struct Figure {
    /// File name without extension.
    pub file: &'static str,
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    /// Whether x is a size, drawn as a power of two.
    pub log_x: bool,
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
                let (x, y) = (short(*x), short(*y));
                let _ = writeln!(text, "{},{:?},{x},{y}", series.name, series.style);
            }
        }
        text
    }

    fn place(&self, x: f64) -> f64 {
        if self.log_x { x.log2() } else { x }
    }

    fn range(&self, of: impl Fn(&(f64, f64)) -> f64) -> std::ops::Range<f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let (low, high) = points.map(of).fold((f64::MAX, f64::MIN), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let margin = ((high - low) * 0.04).max(1e-6);
        low - margin..high + margin
    }

    fn draw(&self, path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::new(path, (760, 460)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 17))
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(self.range(|p| self.place(p.0)), self.range(|p| p.1))?;
        chart
            .configure_mesh()
            .light_line_style(WHITE.mix(0.0))
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|x| self.x_label(*x))
            .draw()?;
        for series in &self.series {
            let color = Palette99::pick(series.color).to_rgba();
            let points = series.points.iter().map(|(x, y)| (self.place(*x), *y));
            let drawn = match series.style {
                Style::Curve => chart.draw_series(LineSeries::new(points, color))?,
                Style::Measured => {
                    chart.draw_series(points.map(|p| Circle::new(p, 3, color.filled())))?
                }
                Style::Paper => {
                    chart.draw_series(points.map(|p| Cross::new(p, 6, BLACK.stroke_width(2))))?
                }
            };
            let style = series.style;
            drawn.label(&series.name).legend(move |(x, y)| match style {
                Style::Curve => PathElement::new(vec![(x, y), (x + 16, y)], color).into_dyn(),
                Style::Measured => Circle::new((x + 8, y), 3, color.filled()).into_dyn(),
                Style::Paper => Cross::new((x + 8, y), 5, BLACK.stroke_width(2)).into_dyn(),
            });
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .position(SeriesLabelPosition::UpperLeft)
            .draw()?;
        area.present()?;
        Ok(())
    }

    fn x_label(&self, x: f64) -> String {
        if !self.log_x {
            return format!("{x:.2}");
        }
        match x.exp2() / 1024.0 {
            kib if kib < 1023.0 => format!("{kib:.0} KiB"),
            kib if kib < 1023.0 * 1024.0 => format!("{:.0} MiB", kib / 1024.0),
            kib => format!("{:.0} GiB", kib / 1024.0 / 1024.0),
        }
    }
}

/// A number with six digits behind the point, if it needs them.
fn short(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
