package relay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// free takes the first id for a feed that is free. Of several feeds that are made of the same any may be the one that is left, so what is
// kept of one is not always under the first.
func (s *ids) free(f *feed) string {
	for n := 1; ; n++ {
		if id := counted(f.made+"-"+f.read, n); !slices.Contains(s.taken, id) {
			s.taken = append(s.taken, id)
			return id
		}
	}
}

func counted(made string, n int) string {
	if n == 1 {
		return made
	}
	return fmt.Sprintf("%s-%d", made, n)
}

// isNumbered reports whether an id is one of those of what is made so.
func isNumbered(id, made string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(id, made+"-"))
	return id == made || err == nil && n > 1 && id == counted(made, n)
}
