//! Functions of real numbers for computing parameters.
//!
//! The functions are `libm`'s with and without the standard library: a platform's own may round the last bit
//! differently, and cut points must not depend on who compiled the program.

pub use libm::{exp, exp2, log1p as ln_1p, log2, pow as power, round};

/// 2 to the power of `exponent`, exactly.
pub fn power_of_two(exponent: u16) -> f64 {
    f64::from_bits((1023 + u64::from(exponent)) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact() {
        for exponent in [0, 1, 31, 64, 1023] {
            assert_eq!(power_of_two(exponent), 2f64.powi(exponent.into()));
        }
    }

    #[test]
    fn the_platforms_functions_differ_in_the_last_bits_at_most() {
        for step in 1..2000u32 {
            let x = f64::from(step) / 100.0;
            for (ours, theirs) in [
                (exp(-x), (-x).exp()),
                (exp2(-x), (-x).exp2()),
                (ln_1p(-x / 21.0), (-x / 21.0).ln_1p()),
                (log2(x), x.log2()),
                (power(x / 21.0, 300.0), (x / 21.0).powf(300.0)),
            ] {
                assert!(
                    (ours - theirs).abs() <= 1e-14 * theirs.abs(),
                    "{x}: {ours} {theirs}"
                );
            }
        }
    }
}
