//! The files of the pages, which are parts of the program.

/// A file of a page.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Asset {
    /// Its address.
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its content.
    pub text: &'static str,
}

impl Asset {
    /// A file with this content at this address; its extension says its media type.
    ///
    /// ```
    /// let asset = rblive_deliver::assets::Asset::new("/page.css", "body { margin: 0 }");
    /// assert_eq!(asset.kind, "text/css; charset=utf-8");
    /// ```
    pub const fn new(path: &'static str, text: &'static str) -> Self {
        let kind = match path.as_bytes() {
            [.., b'.', b'c', b's', b's'] => "text/css; charset=utf-8",
            [.., b'.', b'j', b's'] => "text/javascript; charset=utf-8",
            [.., b'.', b's', b'v', b'g'] => "image/svg+xml",
            [.., b'/'] => "text/html; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        Self { path, kind, text }
    }
}

/// The colours and the basic parts of all pages of a node, the button between light and dark colours, and the icon.
pub const LOOK: [Asset; 3] = [
    Asset::new("/theme.css", web::STYLE),
    Asset::new("/theme.js", web::THEME),
    Asset::new("/icon.svg", include_str!("../assets/icon.svg")),
];

/// The viewers' page.
pub(crate) const VIEWERS: [Asset; 12] = [
    LOOK[0],
    LOOK[1],
    LOOK[2],
    Asset::new("/", include_str!("../assets/page.html")),
    Asset::new("/page.css", include_str!("../assets/page.css")),
    Asset::new("/page.js", include_str!("../assets/page.js")),
    Asset::new("/player.js", include_str!("../assets/player.js")),
    Asset::new("/peer.js", include_str!("../assets/peer.js")),
    Asset::new("/recordings.js", include_str!("../assets/recordings.js")),
    Asset::new("/poster.js", include_str!("../assets/poster.js")),
    Asset::new("/hls.js", include_str!("../assets/hls.light.min.js")),
    Asset::new("/hls.LICENSE", include_str!("../assets/hls.LICENSE")),
];
