package memstore

// Snapshot is an immutable, consistent state.
type Snapshot struct {
	revision Revision
}

// Revision is the commit that made this state.
func (s Snapshot) Revision() Revision { return s.revision }
