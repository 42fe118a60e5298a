//! The median of times: what a run takes that is neither lucky nor unlucky.
//!
//! ```text
//!   9 1 2   ─▶ 2             the one in the middle
//!   9 1 2 4 ─▶ (2 + 4) / 2   the mean of the two in the middle
//! ```

/// Returns the median of `numbers`; `None` if there are none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().checked_sub(1)?;
    let middle = numbers.len() / 2;
    Some((numbers[last - middle] + numbers[middle]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }
}
