//! Lines that are made up come back, with noise on them and with wrong points among them.

use proptest::prelude::*;

use super::*;

/// The slow and obvious one: every pair's slope, the line that leaves the smallest median of
/// distances. No repeated medians, no least squares.
fn model(points: &[(f64, f64)]) -> (f64, f64) {
    let mut best = (f64::INFINITY, (0.0, 0.0));
    for (at, a) in points.iter().enumerate() {
        for b in points[at + 1..].iter().filter(|b| b.0 != a.0) {
            let slope = (b.1 - a.1) / (b.0 - a.0);
            let constant = a.1 - slope * a.0;
            let away = |p: &(f64, f64)| (p.1 - constant - slope * p.0).abs();
            let usual = median(points.iter().map(away).collect()).unwrap();
            if usual < best.0 {
                best = (usual, (slope, constant));
            }
        }
    }
    best.1
}

proptest! {
    #[test]
    fn a_line_comes_back_exactly(
        slope in -1e7..1e7f64,
        constant in 0.0..1e9f64,
        xs in prop::collection::btree_set(1..100_000u32, 3..20),
    ) {
        let points: Vec<_> = xs.iter().map(|x| (f64::from(*x), constant + slope * f64::from(*x))).collect();
        let line = line(&points).unwrap();
        let scale = slope.abs() * 1e5 + constant;
        prop_assert!((line.slope - slope).abs() <= scale * 1e-9, "{line:?}");
        prop_assert!((line.constant - constant).abs() <= scale * 1e-6, "{line:?}");
        prop_assert!(line.r2 > 0.999_999 || slope.abs() < 1e-3, "{line:?}");
    }

    /// Up to a third of the points are far off; the line that the others lie on is found, as by
    /// the model.
    #[test]
    fn outliers_do_not_move_it(
        slope in 1e3..1e7f64,
        constant in 0.0..1e8f64,
        count in 9..24usize,
        wrong in prop::collection::vec((0..24usize, 2.0..50.0f64), 0..4),
        noise in prop::collection::vec(-1.0..1.0f64, 24),
    ) {
        let usual = slope * 0.05;
        let mut points: Vec<_> = (0..count)
            .map(|at| {
                let x = (at + 1) as f64 * 4.0;
                (x, constant + slope * x + usual * noise[at])
            })
            .collect();
        let mut off = std::collections::BTreeSet::new();
        for (at, factor) in wrong.iter().filter(|_| count >= 9) {
            if off.len() * 3 < count && off.insert(at % count) {
                points[at % count].1 *= factor;
            }
        }
        let found = line(&points).unwrap();
        prop_assert!((found.slope / slope - 1.0).abs() < 0.02, "{found:?} {points:?}");
        let (slow, _) = model(&points);
        prop_assert!((found.slope / slow - 1.0).abs() < 0.03, "{found:?} {slow}");
    }

    #[test]
    fn powers_come_back(
        exponent in 1.6..3.0f64,
        factor in 1e2..1e4f64,
        constant in 0.0..1e6f64,
    ) {
        let points: Vec<_> = (0..8)
            .map(|at| f64::from(1 << at))
            .map(|x| (x, constant + factor * x.powf(exponent)))
            .collect();
        let fitted = line(&points).unwrap();
        let found = power(&points).unwrap();
        prop_assert!((found.exponent - exponent).abs() < 0.01, "{found:?}");
        prop_assert_eq!(shape(&points, &fitted, Some(&found)), Shape::Superlinear);
    }
}

fn shaped(values: &[(f64, f64)]) -> Shape {
    let fitted = line(values).unwrap();
    shape(values, &fitted, power(values).as_ref())
}

#[test]
fn shapes() {
    let of = |law: fn(f64) -> f64| -> Vec<(f64, f64)> {
        let xs = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
        xs.iter().map(|x| (*x, law(*x))).collect()
    };
    assert_eq!(shaped(&of(|_| 5e6)), Shape::Flat);
    assert_eq!(shaped(&of(|x| 5e6 + 50.0 * x)), Shape::Flat);
    assert_eq!(shaped(&of(|x| 5e6 + 5e4 * x)), Shape::Linear);
    assert_eq!(shaped(&of(|x| 5e6 + 50.0 * x * x)), Shape::Superlinear);
    assert_eq!(shaped(&of(|x| 5e6 + 1e6 * x.min(8.0))), Shape::Sublinear);
    let jump = [(1.0, 1e6), (2.0, 1e6), (3.0, 1e6), (4.0, 9e6)];
    assert_eq!(shaped(&jump), Shape::Unclear);
    let zigzag = [(1.0, 9e6), (2.0, 1e6), (3.0, 8e6), (4.0, 2e6), (5.0, 9e6)];
    assert_eq!(shaped(&zigzag), Shape::Unclear);
}

#[test]
fn two_points_are_no_line() {
    assert_eq!(line(&[(1.0, 1.0), (2.0, 2.0), (2.0, 3.0)]), None);
    assert_eq!(line(&[]), None);
    assert_eq!(power(&[(1.0, 1.0), (2.0, 2.0)]), None);
    assert_eq!(power(&[(-1.0, 1.0), (1.0, 1.0), (2.0, 2.0)]), None);
}

#[test]
fn a_wrong_point_shows_in_r2() {
    let right = [(1.0, 1e6), (2.0, 2e6), (3.0, 3e6), (4.0, 4e6), (5.0, 5e6)];
    let mut wrong = right;
    wrong[2].1 = 3e7;
    assert!(line(&right).unwrap().r2 > 0.999);
    let found = line(&wrong).unwrap();
    assert!((found.slope - 1e6).abs() < 1.0, "{found:?}");
    assert!(found.r2 < 0.5, "{found:?}");
}
