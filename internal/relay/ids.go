package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// ids gives feeds the ids under which they are kept.
type ids struct {
	taken []string
	kept  []string // of which an earlier run has left something, the newest first
}

// claim takes the first id of what is kept that is free and wanted; empty if there is none.
func (s *ids) claim(wanted func(id string) bool) string {
	for _, id := range s.kept {
		if wanted(id) && !slices.Contains(s.taken, id) {
			s.taken = append(s.taken, id)
			return id
		}
	}
	return ""
}

// free takes the first id for a feed that is free: that of what it is made of and of its name, so that of several that are made of the same
// each finds its own after a restart.
func (s *ids) free(f *feed) string {
	made := f.made + "-" + f.read + f.named()
	id := made
	for n := 2; slices.Contains(s.taken, id); n++ { // one that was renamed has it
		id = fmt.Sprintf("%s-%d", made, n)
	}
	s.taken = append(s.taken, id)
	return id
}

// named is what the id of a feed ends with.
func (f *feed) named() string {
	sum := sha256.Sum256([]byte(f.config.Name))
	return "-" + hex.EncodeToString(sum[:4])
}
