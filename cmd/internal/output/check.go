package output

import (
	"io"
	"strings"

	"tributary/server/admin"
)

// Check writes in a few lines whether all is well, and reports it.
func Check(w io.Writer, st *admin.Status) (well bool, err error) {
	v := st.Verdict()
	lines := []string{v.Sentence}
	if !v.Well {
		lines = each(v.Troubles, func(t admin.Trouble) string { return t.Text })
	}
	_, err = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return v.Well, err
}
