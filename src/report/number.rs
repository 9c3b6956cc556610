//! Numbers for people: short where a table needs it, exact where a limit was missed by a hair.

/// Scientific with so many significant digits: `2.09e-4`; `0`, `NaN`, `inf`, `-inf` as they are.
#[must_use]
pub fn sci(value: f64, digits: usize) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value.is_finite() {
        format!("{value:.*e}", digits.saturating_sub(1))
    } else {
        value.to_string()
    }
}

/// [`sci`] with fewer digits where it would be wider than `width` characters.
#[must_use]
pub fn sci_within(value: f64, digits: usize, width: usize) -> String {
    let mut text = sci(value, digits);
    for fewer in (1..digits).rev() {
        if text.len() <= width {
            break;
        }
        text = sci(value, fewer);
    }
    text
}

/// Plain where that is short (`0.11`, `48`), scientific elsewhere.
#[must_use]
pub fn plain(value: f64, digits: usize) -> String {
    let text = sci(value, digits);
    // The exponent after rounding, so that 9.99 at two digits is `10`, not `10.0`.
    let exponent = text
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match exponent {
        Some(exponent @ -3..=4) => {
            let decimals = digits as i32 - 1 - exponent;
            format!("{value:.*}", usize::try_from(decimals).unwrap_or(0))
        }
        _ => text,
    }
}

/// A share of a limit at two digits, or as many more as it takes to tell on which side of 1 it is.
#[must_use]
pub fn share(value: f64) -> String {
    (2..=5)
        .map(|digits| plain(value, digits))
        .find(|text| {
            text.parse().is_ok_and(|shown: f64| {
                (shown > 1.0) == (value > 1.0) && (shown < 1.0) == (value < 1.0)
            })
        })
        .unwrap_or_else(|| plain(value, 2))
}

/// The shortest text that reads back as the same number.
#[must_use]
pub fn exact(value: f64) -> String {
    let size = value.abs();
    if value.is_finite() && size != 0.0 && !(1e-3..1e6).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

/// So many of a thing: `1 site`, `86 sites`.
#[must_use]
pub fn count(many: usize, one: &str) -> String {
    match many {
        1 => format!("1 {one}"),
        _ => format!("{many} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_asked() {
        assert_eq!(sci(2.0911e-4, 3), "2.09e-4");
        assert_eq!(sci(9.996e-4, 3), "1.00e-3");
        assert_eq!(sci(0.0, 3), "0");
        assert_eq!(sci(f64::NAN, 3), "NaN");
        assert_eq!(sci(f64::NEG_INFINITY, 3), "-inf");
        assert_eq!(sci_within(-3.14e-10, 2, 7), "-3e-10");
        assert_eq!(sci_within(-3.14e-9, 2, 7), "-3.1e-9");
        assert_eq!(plain(0.1149, 2), "0.11");
        assert_eq!(plain(9.99, 2), "10");
        assert_eq!(share(0.1149), "0.11");
        assert_eq!(share(0.998), "0.998");
        assert_eq!(share(1.002), "1.002");
        assert_eq!(share(1.0), "1.0");
        assert_eq!(share(f64::NAN), "NaN");
        assert_eq!(plain(48.3, 2), "48");
        assert_eq!(plain(1.0, 2), "1.0");
        assert_eq!(plain(1.2e7, 2), "1.2e7");
        assert_eq!(plain(1.2e-5, 2), "1.2e-5");
        assert_eq!(plain(f64::NAN, 2), "NaN");
    }

    #[test]
    fn a_limit_missed_by_a_hair_can_be_told_from_the_limit() {
        assert_eq!(exact(2.500_000_1e-4), "2.5000001e-4");
        assert_eq!(exact(2.5e-4), "2.5e-4");
        assert_eq!(exact(0.995), "0.995");
        assert_eq!(exact(3.0), "3");
        assert_eq!(exact(f64::INFINITY), "inf");
    }
}
