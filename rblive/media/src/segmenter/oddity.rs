//! What encoders do wrong.

/// Something that an encoder does wrong, or that its settings make bad for viewers. It is mended as far as possible, and told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Oddity {
    /// A frame had a time that does not fit those around it.
    #[error(
        "a frame has a time far from those of its neighbours, and got one between them: if it happens often, look at the encoder's clock or \
         at the program that forwards the stream"
    )]
    Time,
    /// The tracks have different clocks.
    #[error(
        "the times of sound and pictures are not of one clock, so what came together is played together: let one encoder make both, and \
         restart it where sound and lips do not agree"
    )]
    Clocks,
    /// The times of all tracks jumped.
    #[error(
        "the encoder's times jumped, which is a discontinuity for viewers: the encoder, or what forwards the stream, was stopped or \
         started over"
    )]
    Jump,
    /// The sound is missing, and silence is in its place.
    #[error(
        "no sound comes, though the encoder announced or sent some: viewers hear silence until it is back. Look at the encoder's source of \
         sound, or remove the track of sound there"
    )]
    Silence,
    /// The sound is missing, and no silence can be made for its codec.
    #[error(
        "no sound comes, though the encoder announced or sent some, and there is no silence of its codec: players may stand still until it \
         is back. AAC has silence"
    )]
    NoSound,
    /// A track began after the stream.
    #[error(
        "a track begins later than the stream, for which some players must be started again: let the encoder announce all tracks at the \
         beginning (onMetaData of RTMP with audiocodecid and videocodecid)"
    )]
    LateTrack,
    /// Key frames are so many milliseconds apart, or more.
    #[error(
        "key frames are {}.{} s apart or more, so players that join are far behind, or see nothing for a while, and a segment that would be longer \
         than the stream's first one begins without one: set the encoder's distance of key frames to two seconds (OBS: Keyframe Interval; ffmpeg: \
         -g with twice the frames of a second)",
        .0 / 1000,
        .0 % 1000 / 100
    )]
    KeyFrames(u32),
}

impl Oddity {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Time,
        Self::Clocks,
        Self::Jump,
        Self::Silence,
        Self::NoSound,
        Self::LateTrack,
        Self::KeyFrames(0),
    ];

    /// A short name, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Clocks => "clocks",
            Self::Jump => "jump",
            Self::Silence => "silence",
            Self::NoSound => "no_sound",
            Self::LateTrack => "late_track",
            Self::KeyFrames(_) => "key_frames",
        }
    }
}
