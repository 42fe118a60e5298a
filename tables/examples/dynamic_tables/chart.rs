//! A figure: printed, as CSV, as SVG.

use std::error::Error;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

/// A line of a figure. `is_source`: read off the source, not measured here.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub is_source: bool,
}

impl Series {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            points: Vec::new(),
            is_source: false,
        }
    }

    /// Returns what the source says.
    pub fn source(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            is_source: true,
        }
    }
}

/// An axis; logarithmic where `log` says so.
#[derive(Clone, Copy)]
pub struct Axis {
    pub name: &'static str,
    pub log: bool,
}

impl Axis {
    pub fn linear(name: &'static str) -> Self {
        Self { name, log: false }
    }

    pub fn log(name: &'static str) -> Self {
        Self { name, log: true }
    }

    fn place(self, value: f64) -> f64 {
        if self.log {
            value.max(1e-9).log10()
        } else {
            value
        }
    }

    fn label(self, place: f64) -> String {
        let value = if self.log { 10f64.powf(place) } else { place };
        match value {
            v if v >= 1e6 => format!("{:.3}M", v / 1e6),
            v if v >= 100.0 => format!("{v:.0}"),
            v => format!("{v:.2}"),
        }
    }
}

pub struct Figure {
    /// File name without extension.
    pub name: &'static str,
    pub title: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

impl Figure {
    pub fn print(&self) {
        println!("\n{} ({})", self.title, self.name);
        for series in &self.series {
            let origin = if series.is_source {
                ", the source's"
            } else {
                ""
            };
            println!(
                "  {}{origin}: {} by {}",
                series.name, self.y.name, self.x.name
            );
            for (x, y) in &series.points {
                println!("    {x:>14.4} {y:>14.4}");
            }
        }
    }

    pub fn write(&self, folder: &Path) -> Result<(), Box<dyn Error>> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(self.name).with_extension("csv"), self.csv())?;
        self.draw(&folder.join(self.name).with_extension("svg"))
    }

    fn csv(&self) -> String {
        let mut text = format!("series,source,\"{}\",\"{}\"\n", self.x.name, self.y.name);
        for series in &self.series {
            for (x, y) in &series.points {
                let _ = writeln!(text, "\"{}\",{},{x},{y}", series.name, series.is_source);
            }
        }
        text
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let place = |(x, y): &(f64, f64)| (self.x.place(*x), self.y.place(*y));
        let points = || self.series.iter().flat_map(|s| s.points.iter().map(place));
        let xs = span(points().map(|(x, _)| x), self.x.log);
        let ys = span(points().map(|(_, y)| y), self.y.log);
        let root = SVGBackend::new(path, (900, 560)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(xs, ys)?;
        chart
            .configure_mesh()
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .x_label_formatter(&|place| self.x.label(*place))
            .y_label_formatter(&|place| self.y.label(*place))
            .draw()?;
        for (i, series) in self.series.iter().enumerate() {
            let color = match series.is_source {
                true => RGBColor(130, 130, 130).to_rgba(),
                false => Palette99::pick(i).to_rgba(),
            };
            let line = LineSeries::new(series.points.iter().map(place), color.stroke_width(2));
            chart
                .draw_series(line)?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

/// Returns the range from the least value, or 0, to a little above the largest.
fn span(values: impl Iterator<Item = f64>, log: bool) -> Range<f64> {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
    let least = if log { least } else { least.min(0.0) };
    let room = ((most - least) * 0.05).max(1e-6);
    least..most + room
}
