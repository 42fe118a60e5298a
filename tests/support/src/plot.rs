//! Lines over two logarithmic axes, as SVG.
//!
//! ```text
//!   points (x, y > 0) ─▶ ranges of both axes ─▶ SVG: text stays text, no font is needed
//! ```
//!
//! Both axes are logarithmic, since sizes span five decades and times three. SVG because a text
//! file shows in a browser and in a review, and drawing it needs no font library. Costs nothing
//! beside the measuring; a plot drawn by another program from the CSV would be one more thing to
//! install and to keep in step.

use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

use crate::sql_bench::Result;

/// A line of a plot.
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in order.
    pub points: Vec<(f64, f64)>,
}

/// The corner where the legend covers no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legend {
    /// Above lines that rise.
    Left,
    /// Above lines that fall.
    Right,
}

const SIZE: (u32, u32) = (960, 600);

const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(23, 190, 207),
    RGBColor(140, 86, 75),
    RGBColor(127, 127, 127),
];

/// Draws `lines` into `path`; `false` if they have no point that logarithmic axes can show.
///
/// # Errors
/// Of the file system, with the path.
pub fn plot(
    path: &Path,
    title: &str,
    (x, y): (&str, &str),
    lines: &[Line],
    legend: Legend,
) -> Result<bool> {
    let shown = |line: &Line| -> Vec<(f64, f64)> {
        let points = line.points.iter().copied();
        points.filter(|(x, y)| *x > 0.0 && *y > 0.0).collect()
    };
    let all: Vec<(f64, f64)> = lines.iter().flat_map(shown).collect();
    let (Some(xs), Some(ys)) = (
        range(all.iter().map(|p| p.0)),
        range(all.iter().map(|p| p.1)),
    ) else {
        return Ok(false);
    };
    let failed = |e: &dyn std::fmt::Display| format!("cannot draw {}: {e}", path.display());
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|e| failed(&e))?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(xs.log_scale(), ys.log_scale())
        .map_err(|e| failed(&e))?;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .light_line_style(WHITE)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()
        .map_err(|e| failed(&e))?;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(shown(line), style).point_size(3))
            .map_err(|e| failed(&e))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(match legend {
            Legend::Left => SeriesLabelPosition::UpperLeft,
            Legend::Right => SeriesLabelPosition::UpperRight,
        })
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(|e| failed(&e))?;
    root.present().map_err(|e| failed(&e))?;
    Ok(true)
}

/// Returns the range from a little below the least to a little above the greatest.
fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let (least, greatest) = values.fold((f64::MAX, 0.0f64), |(least, greatest), value| {
        (least.min(value), greatest.max(value))
    });
    (least <= greatest).then_some(least * 0.8..greatest * 1.25)
}

/// Returns a text such as `1e6` from a million on, and plain digits below.
pub(crate) fn number(value: f64) -> String {
    if value >= 1e6 {
        format!("{value:e}")
    } else {
        // A tick's value is a power of ten but for its rounding.
        format!("{}", (value * 1e3).round() / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_svg() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        let lines = [Line {
            name: "stock".to_string(),
            points: vec![(1e3, 2.0), (1e5, 30.0), (1e8, 0.0)],
        }];
        assert!(plot(&path, "title", ("rows", "ms"), &lines, Legend::Left).unwrap());
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["<svg", "title", "stock", "polyline", "rows"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!plot(&path, "title", ("rows", "ms"), &[], Legend::Right).unwrap());
    }

    #[test]
    fn an_unwritable_path_is_named() {
        let lines = [Line {
            name: "stock".to_string(),
            points: vec![(1e3, 2.0)],
        }];
        let path = Path::new("/nonexistent/plot.svg");
        let error = plot(path, "title", ("rows", "ms"), &lines, Legend::Left).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/plot.svg"));
    }
}
