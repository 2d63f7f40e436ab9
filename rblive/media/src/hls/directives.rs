//! The delivery directives of a playlist request (RFC 8216bis, 6.2.5).

/// Directives of a player in the query of a playlist's address.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Directives {
    /// `_HLS_msn`: the request waits until the playlist has this segment.
    pub number: Option<u64>,
    /// `_HLS_part`: the request waits until the playlist has this part of the segment.
    pub part: Option<u32>,
    /// `_HLS_skip`: the player has an older playlist and wants the difference.
    pub skip: bool,
}

/// Why directives are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectiveError {
    /// A value is not a number.
    #[error("{0} needs a decimal number")]
    NoNumber(&'static str),
    /// A directive occurs twice.
    #[error("{0} may occur once")]
    Twice(&'static str),
    /// `_HLS_part` without `_HLS_msn`.
    #[error("_HLS_part needs _HLS_msn")]
    PartWithoutNumber,
    /// Another value of `_HLS_skip`.
    #[error("_HLS_skip is YES or v2")]
    Skip,
}

impl Directives {
    /// Reads the directives of a query, without its `?`. Parameters with other names are ignored.
    ///
    /// ```
    /// use rblive_media::hls::Directives;
    /// let directives = Directives::parse("_HLS_msn=12&_HLS_part=3")?;
    /// assert_eq!((directives.number, directives.part), (Some(12), Some(3)));
    /// # Ok::<(), rblive_media::hls::DirectiveError>(())
    /// ```
    ///
    /// # Errors
    /// A directive has no valid value.
    pub fn parse(query: &str) -> Result<Self, DirectiveError> {
        let mut own = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "_HLS_msn" => set(&mut own.number, "_HLS_msn", value)?,
                "_HLS_part" => set(&mut own.part, "_HLS_part", value)?,
                "_HLS_skip" if own.skip => return Err(DirectiveError::Twice("_HLS_skip")),
                "_HLS_skip" if value == "YES" || value == "v2" => own.skip = true,
                "_HLS_skip" => return Err(DirectiveError::Skip),
                _ => {}
            }
        }
        if own.part.is_some() && own.number.is_none() {
            return Err(DirectiveError::PartWithoutNumber);
        }
        Ok(own)
    }
}

fn set<N: std::str::FromStr>(
    place: &mut Option<N>,
    name: &'static str,
    value: &str,
) -> Result<(), DirectiveError> {
    // `parse` of the standard library takes a sign too.
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|_| digits).ok_or(DirectiveError::NoNumber(name))?;
    if place.replace(number).is_some() { Err(DirectiveError::Twice(name)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{DirectiveError, Directives};

    #[test]
    fn directives_are_numbers_that_belong_together() {
        let all = Directives { number: Some(7), part: Some(0), skip: true };
        assert_eq!(Directives::parse("a=b&_HLS_msn=7&_HLS_part=0&_HLS_skip=YES&token=x"), Ok(all));
        assert_eq!(Directives::parse(""), Ok(Directives::default()));
        assert_eq!(Directives::parse("_HLS_part=1"), Err(DirectiveError::PartWithoutNumber));
        assert_eq!(Directives::parse("_HLS_skip=no"), Err(DirectiveError::Skip));
        for bad in ["", "-1", "+1", "1.5", "x", "99999999999999999999999"] {
            let query = format!("_HLS_msn={bad}");
            assert_eq!(Directives::parse(&query), Err(DirectiveError::NoNumber("_HLS_msn")), "{bad}");
        }
        assert_eq!(Directives::parse("_HLS_msn=1&_HLS_msn=2"), Err(DirectiveError::Twice("_HLS_msn")));
    }
}
