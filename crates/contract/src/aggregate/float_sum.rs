//! A sum of floating-point numbers that does not depend on their order.

/// Keeps the exact sum as a few numbers that do not overlap, as Shewchuk describes it and `math.fsum` of Python does.
#[derive(Debug, Clone, Default)]
pub struct FloatSum {
    /// From the smallest to the largest.
    partials: Vec<f64>,
    /// The sum of what is not finite.
    special: f64,
}

impl FloatSum {
    pub fn add(&mut self, mut value: f64) {
        if !value.is_finite() {
            self.special += value;
            return;
        }
        let mut kept = 0;
        for at in 0..self.partials.len() {
            let mut partial = self.partials[at];
            if value.abs() < partial.abs() {
                std::mem::swap(&mut value, &mut partial);
            }
            let high = value + partial;
            let low = partial - (high - value);
            if low != 0.0 {
                self.partials[kept] = low;
                kept += 1;
            }
            value = high;
        }
        if !value.is_finite() {
            // The sum is larger than every number; the order may matter here, and nothing else can be said.
            self.special += value;
            value = 0.0;
        }
        self.partials.truncate(kept);
        self.partials.push(value);
    }

    /// The exact sum, rounded once to the nearest number.
    pub fn value(&self) -> f64 {
        if self.special != 0.0 {
            return self.special;
        }
        let mut partials = self.partials.iter().rev().copied();
        let Some(mut high) = partials.next() else { return 0.0 };
        let mut low = 0.0;
        for partial in partials.by_ref() {
            let before = high;
            high = before + partial;
            low = partial - (high - before);
            if low != 0.0 {
                break;
            }
        }
        // Half-way between two numbers the next partial decides.
        if let Some(next) = partials.next()
            && ((low < 0.0 && next < 0.0) || (low > 0.0 && next > 0.0))
        {
            let doubled = low * 2.0;
            let rounded = high + doubled;
            if doubled == rounded - high {
                high = rounded;
            }
        }
        high + 0.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::FloatSum;

    fn sum(values: &[f64]) -> f64 {
        let mut sum = FloatSum::default();
        values.iter().for_each(|value| sum.add(*value));
        sum.value()
    }

    #[test]
    fn sums_are_rounded_once() {
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[1e100, 1.0, -1e100]), 1.0);
        assert_eq!(sum(&[1.0, 2f64.powi(-53), 2f64.powi(-106)]), 1.0 + f64::EPSILON);
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[-0.0]).to_bits(), 0.0_f64.to_bits());
        assert_eq!(sum(&[f64::INFINITY, 1.0]), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_the_order(mut values in prop::collection::vec(-1e15..1e15_f64, 0..40)) {
            let forward = sum(&values);
            values.reverse();
            prop_assert_eq!(forward.to_bits(), sum(&values).to_bits());
            values.sort_by(f64::total_cmp);
            prop_assert_eq!(forward.to_bits(), sum(&values).to_bits());
        }
    }
}
