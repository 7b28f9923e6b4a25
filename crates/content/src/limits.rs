//! The limits of a content folder.

/// A file or folder beyond a limit is not served, and a diagnostic says so.
#[derive(Debug, Clone)]
pub struct ContentLimits {
    /// Files in one of the folders, and how deep they may be nested.
    pub files_max: usize,
    pub folder_depth_max: usize,
    pub prompt_bytes_max: u64,
    /// One resource, one file of a skill or one app.
    pub resource_bytes_max: u64,
    pub front_matter_bytes_max: usize,
    /// The text of one rendered prompt.
    pub rendered_bytes_max: usize,
    /// The steps of rendering one prompt: nested loops multiply.
    pub render_steps_max: usize,
    /// What every client must accept of one skill (Skills extension, Limits).
    pub skill_files_max: usize,
    pub skill_bytes_max: u64,
}

impl Default for ContentLimits {
    fn default() -> Self {
        Self {
            files_max: 10_000,
            folder_depth_max: 16,
            prompt_bytes_max: 256 << 10,
            resource_bytes_max: 8 << 20,
            front_matter_bytes_max: 64 << 10,
            rendered_bytes_max: 1 << 20,
            render_steps_max: 100_000,
            skill_files_max: 512,
            skill_bytes_max: 16 << 20,
        }
    }
}
