package file

// Blind makes s do without events, as on a file system that has none.
func Blind(s *Source) { s.blind = true }
