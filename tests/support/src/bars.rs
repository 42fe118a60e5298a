//! Ratios as horizontal bars that start at 1, as SVG.
//!
//! ```text
//!   q01            ┃▇▇▇▇ 1.42      right of 1: slower
//!   q02      ▇▇▇▇▇▇┃ 0.51          left of 1: faster
//!          0.5     1     2         a logarithmic axis
//! ```
//!
//! The axis is logarithmic, so that twice as fast is as long as twice as slow. Bars lie on their
//! side, as names of joins are long. The colours are two of Okabe and Ito's palette.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plot::number;
use crate::sql_bench::Result;

/// A ratio and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Title of what was measured.
    pub name: String,
    /// The ratio, above 0.
    pub ratio: f64,
}

const WIDTH: u32 = 960;
const BAR_HEIGHT: u32 = 20;
/// Title, labels of the axis and margins.
const FRAME_HEIGHT: u32 = 110;
/// Most labels of the axis: from ten on, the drawing library adds some between powers of two.
const X_LABELS: usize = 9;
/// A character of a name in `FONT`, about.
const CHARACTER: u32 = 7;
const FONT: (&str, i32) = ("sans-serif", 13);

const FASTER: RGBColor = RGBColor(0, 114, 178);
const SLOWER: RGBColor = RGBColor(213, 94, 0);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Draws `bars` from the top into `path`; `false` if there is no ratio to draw.
///
/// # Errors
/// Of the file system, with the path.
pub fn bars(path: &Path, title: &str, axis: &str, bars: &[Bar]) -> Result<bool> {
    let is_ratio = |bar: &&Bar| bar.ratio.is_finite() && bar.ratio > 0.0;
    let bars: Vec<&Bar> = bars.iter().filter(is_ratio).collect();
    if bars.is_empty() {
        return Ok(false);
    }
    let height = FRAME_HEIGHT + BAR_HEIGHT * bars.len() as u32;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    let drawn = draw(&area, title, axis, &bars);
    drawn.map_err(|e| format!("cannot draw {}: {e}", path.display()))?;
    Ok(true)
}

fn draw(area: &Area<'_>, title: &str, axis: &str, bars: &[&Bar]) -> Drawn {
    area.fill(&WHITE)?;
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max();
    let names = (longest.unwrap_or(0) as u32 + 3) * CHARACTER;
    let count = bars.len() as f64;
    let (least, most) = range(bars);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(names)
        .build_cartesian_2d((least..most).log_scale().base(2.0), -0.5..count - 0.5)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_labels(X_LABELS)
        .y_labels(0)
        .light_line_style(WHITE)
        .x_desc(axis)
        .x_label_formatter(&|value| number(*value))
        .draw()?;
    let rows = || {
        bars.iter()
            .zip((0..bars.len()).rev())
            .map(|(bar, y)| (*bar, y as f64))
    };
    chart.draw_series(rows().map(|(bar, y)| {
        let colour = if bar.ratio > 1.0 { SLOWER } else { FASTER };
        let ends = [bar.ratio.min(1.0), bar.ratio.max(1.0)];
        Rectangle::new([(ends[0], y - 0.35), (ends[1], y + 0.35)], colour.filled())
    }))?;
    let at = |side: HPos| {
        FONT.into_font()
            .color(&BLACK)
            .pos(Pos::new(side, VPos::Center))
    };
    chart.draw_series(rows().map(|(bar, y)| {
        let name = Text::new(bar.name.clone(), (-8, 0), at(HPos::Right));
        EmptyElement::at((least, y)) + name
    }))?;
    chart.draw_series(rows().map(|(bar, y)| {
        let ratio = Text::new(format!("{:.2}", bar.ratio), (6, 0), at(HPos::Left));
        EmptyElement::at((bar.ratio.max(1.0), y)) + ratio
    }))?;
    let one = vec![(1.0, -0.5), (1.0, count - 0.5)];
    chart.draw_series([PathElement::new(one, BLACK.stroke_width(1))])?;
    area.present()?;
    Ok(())
}

/// Returns the range from half to twice, or as far as the bars reach, with room for their figures.
fn range(bars: &[&Bar]) -> (f64, f64) {
    let ratios = bars.iter().map(|bar| bar.ratio);
    let (least, most) = ratios.fold((0.55f64, 1.6f64), |(least, most), ratio| {
        (least.min(ratio), most.max(ratio))
    });
    (least * 0.9, most * 1.25)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, ratio: f64) -> Bar {
        let name = name.to_string();
        Bar { name, ratio }
    }

    #[test]
    fn ratios_become_bars() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bars.svg");
        let all = [bar("q01", 1.42), bar("q02", 0.51), bar("none", f64::NAN)];
        assert!(bars(&path, "TPC-H", "horton / DataFusion", &all).unwrap());
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["TPC-H", "horton / DataFusion", "q01", "1.42", "q02", "0.51"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(svg.contains("#D55E00") && svg.contains("#0072B2"), "{svg}");
        assert!(!svg.contains("none<") && !svg.contains("none\n"), "{svg}");
        assert!(!bars(&path, "TPC-H", "", &all[2..]).unwrap());
    }

    #[test]
    fn the_axis_reaches_as_far_as_the_bars() {
        let (near, far) = (bar("a", 1.01), bar("b", 30.0));
        let (least, most) = range(&[&near]);
        assert!(least < 0.55 && most == 2.0);
        assert!(range(&[&near, &far]).1 > 30.0);
    }

    #[test]
    fn an_unwritable_path_is_named() {
        let path = Path::new("/nonexistent/bars.svg");
        let error = bars(path, "", "", &[bar("a", 1.0)]).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/bars.svg"));
    }
}
