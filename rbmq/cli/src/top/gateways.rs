//! The gateways of a broker in `rbmq top`: a line for each.

use std::time::Duration;

use rbmq::GatewayStats;

use super::text;

/// The most gateways that a window names.
pub(super) const SHOWN: usize = 4;

/// A line for each gateway, at most `most` of them and the number of the others.
pub(super) fn lines(
    now: &[GatewayStats],
    old: Option<&[GatewayStats]>,
    elapsed: Duration,
    width: usize,
    most: usize,
) -> Vec<String> {
    let before = |gateway: &GatewayStats| old?.iter().find(|old| old.gateway == gateway.gateway);
    let shown = now.iter().take(most);
    let mut lines: Vec<String> =
        shown.map(|gateway| text::cut(&line(gateway, before(gateway), elapsed), width)).collect();
    if let Some(more) = now.len().checked_sub(most).filter(|more| *more > 0) {
        lines.push(text::cut(&format!("and {more} more gateways"), width));
    }
    lines
}

/// `mqtt:127.0.0.1:1883 · 12 clients · in 1.20 kB/s · out 3.40 kB/s · lost 5 messages`.
fn line(now: &GatewayStats, old: Option<&GatewayStats>, elapsed: Duration) -> String {
    let rate = |of: fn(&GatewayStats) -> u64| text::bytes_or_dash(text::rate(of(now), old.map(of), elapsed));
    let mut words = vec![
        text::name(&now.gateway, 60),
        format!("{} client{}", now.connections, if now.connections == 1 { "" } else { "s" }),
        format!("in {}/s", rate(|of| of.bytes_in)),
        format!("out {}/s", rate(|of| of.bytes_out)),
    ];
    if !now.is_serving {
        words.insert(1, "serves nobody".to_owned());
    }
    let refused = now.turned_away + now.logins_refused + now.denied + now.cut_off;
    for (count, what) in [
        (now.dropped, "messages lost"),
        (now.too_slow, "too slow"),
        (refused, "refused"),
        (now.protocol_errors, "broke the protocol"),
    ] {
        if count > 0 {
            words.push(format!("{} {what}", text::position(count)));
        }
    }
    words.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_has_a_line_with_what_is_of_interest() {
        let old = GatewayStats {
            gateway: "mqtt:127.0.0.1:1883".into(),
            is_serving: true,
            connections: 1,
            bytes_in: 1_000,
            ..GatewayStats::default()
        };
        let mut now = vec![
            GatewayStats { bytes_in: 4_000, bytes_out: 9, ..old.clone() },
            GatewayStats {
                gateway: "resp:h:1".into(),
                dropped: 2_000,
                denied: 1,
                cut_off: 2,
                ..GatewayStats::default()
            },
        ];
        let second = Duration::from_secs(1);
        assert_eq!(
            lines(&now, Some(std::slice::from_ref(&old)), second, 200, 2),
            [
                "mqtt:127.0.0.1:1883 · 1 client · in 3.00 kB/s · out 9 B/s",
                "resp:h:1 · serves nobody · 0 clients · in -/s · out -/s · 2,000 messages lost · 3 refused",
            ]
        );
        now.push(old);
        assert_eq!(lines(&now, None, second, 200, 2)[2], "and 1 more gateways");
        assert_eq!(lines(&now, None, second, 10, 1)[0], "mqtt:127.…");
    }
}
